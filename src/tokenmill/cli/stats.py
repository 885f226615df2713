"""`tokenmill stats`: what an output holds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.cli.streams import result_on_stdout
from tokenmill.cli.terminal import (
    EXIT_CODES_OF_LOOKING,
    HelpFormatter,
    add_message_options,
    byte_progress,
    whole_number,
)
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    from tokenmill.inspect.stats import Stats

_EPILOG = """\
examples:
  tokenmill stats tokenized/
  tokenmill stats tokenized/ --json > stats.json

"""
_MOST_FILES = 20
_BAR = 40


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "stats",
        usage="%(prog)s OUTPUT [OPTION...]",
        help="documents and tokens by file, lengths, padding, frequent tokens, rejects",
        formatter_class=HelpFormatter,
        description="Count what a finished output holds. Every chunk is read once.",
        epilog=_EPILOG + EXIT_CODES_OF_LOOKING,
    )
    add = parser.add_argument
    add("output", metavar="OUTPUT", help="the directory that `tokenmill run` wrote")
    add(
        "--files",
        type=whole_number,
        default=_MOST_FILES,
        metavar="N",
        help=f"how many files to list (default: {_MOST_FILES})",
    )
    add("--json", action="store_true", help="print everything, all files included, as JSON")
    add_message_options(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    import msgspec

    from tokenmill.inspect.stats import collect_stats

    if args.files < 0:
        raise ConfigError(f"--files: must be 0 or more, not {args.files}")
    with byte_progress(args, "counting") as progress:
        stats = collect_stats(args.output, progress)
    with result_on_stdout():
        if args.json:
            derived = {"bytes_per_token": stats.bytes_per_token, "padding_share": stats.padding_share}
            print(json.dumps(msgspec.to_builtins(stats) | derived))
        else:
            for line in _lines(stats, args.files):
                print(line)
    return 0


def _lines(stats: Stats, most: int) -> Iterator[str]:
    from tokenmill.cli.show import visible
    from tokenmill.messages import aligned, counted, printable

    ledger = stats.ledger
    tokens = f"{counted(ledger.tokens, 'token')} (+ {counted(ledger.separators, 'separator')})"
    yield f"{counted(ledger.documents, 'document')}, {tokens}, {counted(ledger.rows, 'row')}"
    padding, empty = 100 * stats.padding_share, counted(ledger.empty, "empty document")
    yield f"{stats.bytes_per_token:.2f} bytes per token, {padding:.3f} % padding, {empty}"
    yield ""
    rows = [("file", "documents", "tokens", "tokens per document")]
    by_tokens = sorted(stats.by_file.items(), key=lambda item: -item[1][1])
    for name, (documents, count) in by_tokens[:most]:
        rows.append((printable(name), f"{documents:,}", f"{count:,}", f"{count / documents:,.1f}"))
    yield from aligned(rows)
    if len(by_tokens) > most:
        yield f"… and {counted(len(by_tokens) - most, 'more file')} (--files, --json)"
    yield ""
    yield "tokens per document, separators included"
    yield from _histogram(stats.lengths)
    yield ""
    frequent = [("most frequent tokens", "id", "count", "share")]
    total = max(1, ledger.tokens + ledger.separators)
    for number, token, count in stats.frequent:
        shown = visible(token).replace("\n", "").replace("\t", "")
        frequent.append((f"{shown!r}", f"{number}", f"{count:,}", f"{100 * count / total:.2f} %"))
    yield from aligned(frequent)
    if ledger.rejects_by_reason:
        yield ""
        reasons = [("rejects", "records")]
        reasons += [(printable(reason), f"{count:,}") for reason, count in sorted(ledger.rejects_by_reason.items())]
        yield from aligned(reasons)


def _histogram(buckets: list[int]) -> Iterator[str]:
    from tokenmill.messages import aligned

    used = [n for n, count in enumerate(buckets) if count]
    if not used:
        return
    most = max(buckets)
    rows = []
    for n in range(used[0], used[-1] + 1):
        bar = "█" * round(_BAR * buckets[n] / most) or ("▏" if buckets[n] else "")
        rows.append((f"{1 << n:,} to {(2 << n) - 1:,}", f"{buckets[n]:,}", bar.ljust(_BAR)))
    yield from aligned(rows)
