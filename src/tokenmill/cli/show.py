"""`tokenmill show`: rows as a person wants to look at them."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from tokenmill.cli.streams import result_on_stdout
from tokenmill.cli.terminal import EXIT_CODES_OF_LOOKING, HelpFormatter, add_message_options, columns, whole_number
from tokenmill.errors import ConfigError
from tokenmill.messages import first_columns

if TYPE_CHECKING:
    from rich.text import Text

    from tokenmill.inspect.show import Asked, Row, Span, Viewer

log = logging.getLogger("tokenmill")

_EPILOG = """\
examples:
  # the first row, then some others
  tokenmill show tokenized/
  tokenmill show tokenized/ --row 0,17,40-42
  # five at random
  tokenmill show tokenized/ --sample 5 --seed 1
  # one document: line 17 of that file
  tokenmill show tokenized/ --file part-003 --record 17
  # one document by its own id, of a job with --id-field
  tokenmill show tokenized/ --id doc-00042

"""
_MOST_WITH_ID = 5
_MOST_OF_ID = 60
_MOST_LINES = 3
_STYLES = ("black on bright_cyan", "black on bright_yellow")


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "show",
        usage="%(prog)s OUTPUT [OPTION...]",
        help="look at rows: text, token boundaries, documents and where they came from",
        formatter_class=HelpFormatter,
        description="Show rows with the boundaries of tokens in alternating colours and those of documents marked.",
        epilog=_EPILOG + EXIT_CODES_OF_LOOKING,
    )
    add = parser.add_argument
    add("output", metavar="OUTPUT", help="the directory that `tokenmill run` wrote")
    add("--row", metavar="LIST", help="row numbers, from 0, e.g. 0,17 or 3-5 (default: 0)")
    add("--sample", type=whole_number, metavar="N", help="N rows at random")
    add("--seed", type=whole_number, metavar="N", help="seed for --sample (default: 0)")
    add("--file", metavar="NAME", help="with --record: an input file, by its path or a part of its name")
    add("--record", type=whole_number, metavar="N", help="with --file: its line or row, counted from 1")
    add("--id", metavar="ID", help="a document by its own id, of a job with --id-field")
    add("--ids", action="store_true", help="the token id beside the text of each token")
    add("--json", action="store_true", help="one JSON object per row")
    add_message_options(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from tokenmill.inspect.show import Viewer

    _check(args)
    rows = _row_numbers(args.row or "0")
    viewer = Viewer(args.output)
    asked = _asked(args, viewer)
    if args.sample is not None:
        rows = viewer.sample(args.sample, args.seed)
        if not rows:
            log.warning("the output has no rows")
    with result_on_stdout():
        shown: list[tuple[Asked | None, Iterable[int]]] = [(d, d.rows) for d in asked]
        for document, numbers in shown or [(None, rows)]:
            for row in map(viewer.row, numbers):
                if args.json:
                    print(json.dumps(_as_json(viewer, row, document)))
                else:
                    _print(args, viewer, row, document)
    return 0


def _check(args: argparse.Namespace) -> None:
    if (args.file is None) != (args.record is None):
        raise ConfigError("--file and --record go together: which line of which file")
    if sum(choice is not None for choice in (args.row, args.sample, args.file, args.id)) > 1:
        raise ConfigError("choose one: --row, --sample, --id, or --file with --record")
    if args.sample is not None and args.sample < 1:
        raise ConfigError(f"--sample: must be at least 1, not {args.sample}")
    if args.seed is not None and args.sample is None:
        log.warning("--seed is of no use without --sample")
    args.seed = args.seed or 0


def _asked(args: argparse.Namespace, viewer: Viewer) -> list[Asked]:
    """The documents that were asked for, if it was for documents, not for rows."""
    if args.file is not None:
        return [viewer.find(args.file, args.record)]
    if args.id is None:
        return []
    found = viewer.find_id(args.id)
    if len(found) > _MOST_WITH_ID:
        log.info("%s documents have this id; these are the first %d", f"{len(found):,}", _MOST_WITH_ID)
    return found[:_MOST_WITH_ID]


def _row_numbers(text: str) -> Iterable[int]:
    """Of "0,17,3-5": 0, 17, 3, 4, 5, one at a time, for a range may be long."""
    ranges = []
    for numbers in text.split(","):
        first, dash, last = numbers.partition("-")
        try:
            ranges.append(range(int(first), int(last if dash else first) + 1))
        except ValueError:
            ranges.append(range(0))
    if not all(ranges):
        raise ConfigError(f"--row: expected row numbers such as 0,17 or 3-5, got {text!r}")
    return chain.from_iterable(ranges)


def _as_json(viewer: Viewer, row: Row, asked: Asked | None) -> dict[str, Any]:
    texts = ("".join(t.text for t in viewer.texts(row.token_ids[s.start : s.end])) for s in row.spans)
    spans = [asdict(span) | {"text": text} for span, text in zip(row.spans, texts, strict=True)]
    if not viewer.has_ids:
        spans = [{name: value for name, value in span.items() if name != "id"} for span in spans]
    if asked is not None:
        spans = [shown | {"asked": asked.covers(row, span)} for shown, span in zip(spans, row.spans, strict=True)]
    return {"row": row.number, "ids": row.token_ids, "documents": spans}


def _print(args: argparse.Namespace, viewer: Viewer, row: Row, asked: Asked | None) -> None:
    from rich.console import Console

    from tokenmill.messages import counted

    coloured = sys.stdout.isatty()
    console = Console(soft_wrap=True, highlight=False)
    groups = groupby(row.spans, key=lambda span: asked is None or asked.covers(row, span))
    with console.capture() as shown:  # rich would end the program itself when a pipe is closed
        console.print(f"row {row.number}: {counted(len(row.token_ids), 'token')}", style="bold")
        for wanted, group in groups:
            spans = list(group)
            if not wanted and not coloured:  # there is no dim text in a file
                console.print(_summary(spans), markup=False)
            elif not wanted:
                for line in _neighbours(args, viewer, row, spans, columns(sys.stdout) or 80):
                    console.print(line, style="dim", markup=False)
            else:
                for span in spans:
                    console.print(_heading(span), style="dim" if asked is None else "bold", markup=False)
                    if span.file is not None:
                        console.print(_tokens(args, viewer, row.token_ids[span.start : span.end], coloured=coloured))
    print(shown.get())


def _neighbours(args: argparse.Namespace, viewer: Viewer, row: Row, spans: list[Span], wide: int) -> list[str]:
    """What stands beside the document that was asked for: a few lines of the nearest, the others counted."""
    is_before = spans[0].start == 0
    nearest = spans[-1] if is_before else spans[0]
    if nearest.file is None:
        return [_summary(spans)]
    others = [_summary(rest)] if (rest := [span for span in spans if span is not nearest]) else []
    text = _tokens(args, viewer, row.token_ids[nearest.start : nearest.end], coloured=False).plain
    limit = _MOST_LINES * wide
    if is_before:
        lines = _cut(text[-limit:], wide)[-_MOST_LINES:]
        return [*others, _heading(nearest), *lines]
    return [_heading(nearest), *_cut(text[:limit], wide)[:_MOST_LINES], *others]


def _cut(text: str, wide: int) -> list[str]:
    """The lines that a terminal would show."""
    lines = []
    for line in text.split("\n"):
        rest = line
        while rest and (head := first_columns(rest, wide)):
            lines.append(head)
            rest = rest[len(head) :]
    return lines


def _summary(spans: list[Span]) -> str:
    """What stands in a row beside the document that was asked for."""
    from tokenmill.messages import counted

    documents = sum(span.file is not None for span in spans)
    tokens = counted(spans[-1].end - spans[0].start, "token")
    padding = "padding" if len(spans) > documents else ""
    what = " and ".join(filter(None, [counted(documents, "other document") if documents else "", padding]))
    return f"── {what}, {tokens} ──"


def _heading(span: Span) -> str:
    from tokenmill.messages import counted, printable, shortened

    tokens = counted(span.end - span.start, "token")
    if span.file is None:
        return f"── padding, {tokens} ──"
    notes = [printable(span.file) + ("" if span.record is None else f":{span.record}")]
    if span.id is not None:
        own_id = span.id if isinstance(span.id, str) else json.dumps(span.id)
        notes.append(f"id {shortened(printable(own_id), _MOST_OF_ID)}")
    notes += [tokens, *([] if span.begins else ["begins before this row"])]
    notes += [] if span.ends else ["goes on after this row"]
    return f"── {', '.join(notes)} ──"


def _tokens(args: argparse.Namespace, viewer: Viewer, token_ids: list[int], *, coloured: bool) -> Text:
    from rich.text import Text

    text = Text()
    for number, piece in enumerate(viewer.texts(token_ids)):
        shown = visible(piece.text)
        style = _STYLES[number % 2] if coloured else ""
        if args.ids:
            text.append("+".join(map(str, piece.token_ids)) + ("" if coloured else "="), "dim")
            text.append(shown.replace("\n", ""), style)
            text.append(" ")
        else:
            text.append(shown, style)
    return text


def visible(text: str) -> str:
    r"""Text that cannot play tricks on a terminal: "a\x1b[2J\n" -> "a\\x1b[2J⏎\n"."""
    shown = ("⏎\n" if c == "\n" else "→\t" if c == "\t" else c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(shown)
