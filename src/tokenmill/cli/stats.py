"""`tokenmill stats`: what an output holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.cli.streams import result_on_stdout
from tokenmill.cli.terminal import (
    EXIT_CODES_OF_LOOKING,
    HelpFormatter,
    add_message_options,
    byte_progress,
    columns,
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
_LEAST_NAME = 12


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
            for line in _lines(stats, args.files, columns(sys.stdout)):
                print(line)
    return 0


def _lines(stats: Stats, most: int, wide: int | None) -> Iterator[str]:
    """All of it, as wide as the terminal if it goes to one."""
    from tokenmill.messages import aligned, counted, printable, wrapped

    ledger = stats.ledger
    for line in _totals(stats):
        yield line if wide is None else wrapped(line, wide, 4)
    yield ""
    if stats.by_file:
        yield from _by_file(stats, most, wide)
        yield ""
        yield "tokens per document, separators included"
        yield from _histogram(stats.lengths, wide)
    else:
        yield "no document is wholly in the rows" if ledger.rows else "the output has no documents"
    if stats.frequent:
        yield ""
        yield from aligned(_frequent(stats))
    if ledger.rejects_by_reason:
        yield ""
        reasons = [("rejects", counted(ledger.rejected, "record"))]
        reasons += [(printable(reason), f"{count:,}") for reason, count in sorted(ledger.rejects_by_reason.items())]
        yield from aligned(reasons)


def _totals(stats: Stats) -> Iterator[str]:
    from tokenmill.cli.display import describe_dropped
    from tokenmill.messages import counted, some_of

    ledger = stats.ledger
    tokens = f"{counted(ledger.tokens, 'token')} + {counted(ledger.separators, 'separator')}"
    yield f"{counted(ledger.documents, 'document')}, {tokens}, {counted(ledger.rows, 'row')}"
    padding, empty = 100 * stats.padding_share, counted(ledger.empty, "empty document")
    rate = f"{stats.bytes_per_token:.2f} bytes per token, {padding:.3f} % padding, " if ledger.tokens else ""
    yield f"{rate}{empty}"
    if dropped := describe_dropped(ledger):
        yield f"dropped: {dropped}"
    lacking = (
        ("missing", stats.missing),
        ("damaged", stats.damaged),
        ("skipped, but it looks like data", stats.skipped_data),
    )
    for what, files in lacking:
        if files:
            yield f"{what}: {some_of([*files])}"


def _by_file(stats: Stats, most: int, wide: int | None) -> Iterator[str]:
    from tokenmill.messages import aligned, counted, printable, shortened

    rows: list[tuple[str, ...]] = [("file", "documents", "tokens", "tokens per document")]
    by_tokens = sorted(stats.by_file.items(), key=lambda item: -item[1][1])
    for name, (documents, count) in by_tokens[:most]:
        rows.append((printable(name), f"{documents:,}", f"{count:,}", f"{count / documents:,.1f}"))
    if wide is not None:
        others = sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[1:])
        rows = [(shortened(name, max(_LEAST_NAME, wide - others)), *rest) for name, *rest in rows]
    yield from aligned(rows)
    if len(by_tokens) > most:
        yield f"… and {counted(len(by_tokens) - most, 'more file')} (--files, --json)"


def _frequent(stats: Stats) -> list[tuple[str, ...]]:
    from tokenmill.cli.show import visible

    rows: list[tuple[str, ...]] = [("most frequent tokens", "id", "count", "share")]
    total = stats.ledger.tokens + stats.ledger.separators - stats.ledger.dropped_tokens
    for number, token, count in stats.frequent:
        shown = visible(token).replace("\n", "").replace("\t", "")
        rows.append((f"{shown!r}", f"{number}", f"{count:,}", f"{100 * count / total:.2f} %"))
    return rows


def _histogram(buckets: list[int], wide: int | None) -> Iterator[str]:
    from tokenmill.messages import aligned

    used = [n for n, count in enumerate(buckets) if count]
    most = max(buckets)
    labels = [(f"{1 << n:,} to {(2 << n) - 1:,}", f"{buckets[n]:,}") for n in range(used[0], used[-1] + 1)]
    beside = sum(max(map(len, column)) + 2 for column in zip(*labels, strict=True))
    longest = _BAR if wide is None else max(1, min(_BAR, wide - beside))
    rows = []
    for n, label in zip(range(used[0], used[-1] + 1), labels, strict=True):
        bar = "█" * round(longest * buckets[n] / most) or ("▏" if buckets[n] else "")
        rows.append((*label, bar.ljust(longest)))
    yield from aligned(rows)
