"""What a terminal shows: the live line while a job runs, and the table at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tokenmill.job.execute import RunResult
from tokenmill.job.progress import Meter
from tokenmill.messages import counted, duration, printable, short, size, size_of
from tokenmill.output import layout
from tokenmill.records import Ledger

MOST_WORKERS_SHOWN = 16
_GAP = 2
_LEAST_BAR, _MOST_BAR = 8, 40


@dataclass(frozen=True, slots=True)
class Cell:
    """Something to show in a line, if there is room for `width` columns: it may still grow to that."""

    text: str
    width: int
    rank: int
    """Where the room is short, the cell of the highest rank goes first."""


def fitting(cells: Sequence[Cell], room: int) -> list[Cell]:
    """The cells of a line that fit, in their order."""
    kept = list(cells)
    while kept and _taken(kept) > room:
        kept.remove(max(kept, key=lambda cell: cell.rank))
    return kept


def _taken(cells: Sequence[Cell]) -> int:
    return sum(max(cell.width, len(cell.text)) for cell in cells) + _GAP * (len(cells) - 1)


def live(meter: Meter, console: Console) -> Live:
    """A live display that is refreshed from a thread of its own, four times a second."""
    shown = partial(live_table, meter, console)
    return Live(get_renderable=shown, console=console, refresh_per_second=4, transient=True)


def live_table(meter: Meter, console: Console) -> Table:
    """Where a run stands, in the columns that the terminal has now."""
    room, table = console.width, Table.grid()
    how_far, counts, pace = _cells(meter)
    table.add_row(_bar_line(meter, how_far, room))
    for cells in (counts, pace):
        table.add_row(_line(cell.text for cell in fitting(cells, room)))
    for index, (unit, memory) in sorted(meter.workers.items())[:MOST_WORKERS_SHOWN]:
        table.add_row(Text(f"worker {index}: unit {unit}, {size(memory)}", no_wrap=True, overflow="ellipsis"))
    return table


def _cells(meter: Meter) -> tuple[list[Cell], list[Cell], list[Cell]]:
    """How far the run is, what it counted, and at what pace."""
    s = meter.snapshot()
    left = "?" if s["seconds_left"] is None else duration(s["seconds_left"])
    files = short(meter.total_files)
    how_far = [
        Cell(f"{100 * meter.done_bytes / max(1, meter.total_bytes):.1f} %", 7, 0),
        Cell(size_of(meter.done_bytes, meter.total_bytes), 16, 2),
        Cell(f"{left} left", 12, 1),
    ]
    counts = [
        Cell(f"{short(meter.done_files)}/{files} files", 2 * len(files) + 7, 3),
        Cell(f"{short(s['documents'])} documents", 15, 2),
        Cell(f"{short(s['tokens'])} tokens", 12, 0),
        Cell(f"{short(s['rejected'])} rejected", 14, 1),
    ]
    pace = [
        Cell(f"{s['text_mb_per_second']:,.1f} MB/s", 10, 0),
        Cell(f"{short(s['tokens_per_second'])} tokens/s", 14, 2),
        Cell(f"{duration(s['seconds'])} elapsed", 15, 1),
        Cell(f"{size(s['memory_bytes'])} memory", 15, 3),
    ]
    return how_far, counts, pace


def _bar_line(meter: Meter, cells: Sequence[Cell], room: int) -> RenderableType:
    """The bar takes what the cells leave."""
    kept = fitting(cells, room)
    width = min(_MOST_BAR, room - _taken(kept) - _GAP)
    texts: list[RenderableType] = [cell.text for cell in kept]
    if width >= _LEAST_BAR:
        total = max(1, meter.total_bytes)
        texts.insert(0, ProgressBar(total=total, completed=min(meter.done_bytes, total), width=width))
    return _line(texts)


def _line(cells: Iterable[RenderableType]) -> RenderableType:
    line = Table.grid(padding=(0, _GAP))
    line.add_row(*cells)
    return line


def result_rows(result: RunResult) -> list[tuple[str, str]]:
    """The table at the end, as text."""
    ledger, meter = result.ledger, result.meter
    filled = ledger.tokens + ledger.separators + ledger.padding
    separators = counted(ledger.separators, "separator")
    special = (
        [("special tokens in text", f"{ledger.special_tokens_in_text:,}")] if ledger.special_tokens_in_text else []
    )
    rows = [
        ("files", _files(result)),
        ("documents", f"{ledger.documents:,}"),
        ("empty", f"{ledger.empty:,}"),
        ("rejected", f"{ledger.rejected:,}" + (f", listed in {layout.REJECTS}" if ledger.rejected else "")),
        *((f"  {reason}", f"{count:,}") for reason, count in sorted(ledger.rejects_by_reason.items())),
        *special,
        ("tokens", f"{ledger.tokens:,} (+ {separators})"),
        ("rows", f"{ledger.rows:,}"),
        ("padding", f"{ledger.padding:,} ({100 * ledger.padding / max(1, filled):.3f} %)"),
        *([("dropped", dropped)] if (dropped := describe_dropped(ledger)) else []),
        *([("bytes per token", f"{ledger.text_bytes / ledger.tokens:.2f}")] if ledger.tokens else []),
        ("output", f"{size(result.output_bytes)} in {printable(result.output)}"),
    ]
    if not result.already_complete:
        of_this_run = " (this run)" if meter.is_continuation else ""
        rows.append(("time", f"{meter.seconds:.1f} s{of_this_run}"))
        if not meter.is_idle:
            rows.append(("rate", f"{_rate(meter)}{of_this_run}"))
        rows.append(("peak memory", size(meter.peak_memory)))
    return rows


def describe_dropped(ledger: Ledger) -> str:
    """What `--tail drop` cost: "45,139 tokens (49.6 %); 300 documents are not, or not wholly, in the rows"."""
    if not ledger.dropped_tokens:
        return ""
    share = 100 * ledger.dropped_tokens / (ledger.tokens + ledger.separators)
    documents = counted(ledger.dropped_documents, "document is", "documents are")
    return f"{counted(ledger.dropped_tokens, 'token')} ({share:.3g} %); {documents} not, or not wholly, in the rows"


def _files(result: RunResult) -> str:
    """How many, and how many of them are not what they should be: "8 (1 missing, 1 damaged)"."""
    told = (  # the files beside data are not warned of, so they are counted apart
        (len(result.missing), "missing"),
        (len(result.damaged), "damaged"),
        (result.left_out - result.side_files, f"skipped, named in {layout.MANIFEST}"),
        (result.side_files, "known side file" if result.side_files == 1 else "known side files"),
    )
    notes = [f"{count:,} {what}" for count, what in told if count]
    return f"{result.files:,}" + (f" ({', '.join(notes)})" if notes else "")


def _rate(meter: Meter) -> str:
    rates = meter.rates()
    return (
        f"{rates['documents']:,.0f} documents/s, {rates['tokens']:,.0f} tokens/s, "
        f"{rates['text_bytes'] / 1e6:,.1f} MB/s of text"
    )
