"""What a terminal shows: the live line while a job runs, and the table at its end."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from tokenmill.job.execute import RunResult
from tokenmill.job.progress import Meter
from tokenmill.messages import duration, printable, size
from tokenmill.output import layout

MOST_WORKERS_SHOWN = 16


def live(meter: Meter, console: Console) -> Live:
    """A live display that is refreshed from a thread of its own, four times a second."""
    return Live(get_renderable=lambda: _live_table(meter), console=console, refresh_per_second=4, transient=True)


def _live_table(meter: Meter) -> Table:
    s = meter.snapshot()
    total = max(1, meter.total_bytes)
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        ProgressBar(total=total, completed=min(meter.done_bytes, total), width=30),
        f"{100 * meter.done_bytes / total:.1f} %",
        f"{size(meter.done_bytes)} / {size(meter.total_bytes)}",
        "time left " + ("?" if s["seconds_left"] is None else duration(s["seconds_left"])),
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_row(
        f"{s['documents']:,} documents",
        f"{s['tokens']:,} tokens",
        f"{s['text_mb_per_second']:,.1f} MB/s",
        f"{s['tokens_per_second']:,} tokens/s",
        f"{s['rejected']:,} rejected",
        f"memory {size(s['memory_bytes'])}",
    )
    outer = Table.grid()
    outer.add_row(grid)
    outer.add_row(facts)
    for index, (unit, memory) in sorted(meter.workers.items())[:MOST_WORKERS_SHOWN]:
        outer.add_row(f"worker {index}: unit {unit}, {size(memory)}")
    return outer


def result_rows(result: RunResult) -> list[tuple[str, str]]:
    """The table at the end, as text."""
    ledger, meter = result.ledger, result.meter
    filled = ledger.tokens + ledger.separators + ledger.padding
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
        ("tokens", f"{ledger.tokens:,} (+ {ledger.separators:,} separators)"),
        ("rows", f"{ledger.rows:,}"),
        ("padding", f"{ledger.padding:,} ({100 * ledger.padding / max(1, filled):.3f} %)"),
        ("bytes per token", f"{ledger.text_bytes / max(1, ledger.tokens):.2f}"),
        ("output", f"{size(result.output_bytes)} in {printable(result.output)}"),
    ]
    if ledger.dropped_tokens:
        dropped = f"{ledger.dropped_tokens:,} tokens; {ledger.dropped_documents:,} documents are truncated"
        rows.insert(-2, ("dropped", dropped))
    if not result.already_complete:
        rates = meter.rates()
        rows += [
            ("time", f"{meter.seconds:.1f} s"),
            (
                "rate",
                f"{rates['documents']:,.0f} documents/s, {rates['tokens']:,.0f} tokens/s, "
                f"{rates['text_bytes'] / 1e6:,.1f} MB/s of text",
            ),
            ("peak memory", size(meter.peak_memory)),
        ]
    return rows


def _files(result: RunResult) -> str:
    """How many, and how many of them are not what they should be: "8 (1 missing, 1 damaged)"."""
    skipped = f"{result.left_out:,} skipped, named in {layout.MANIFEST}" if result.left_out else ""
    counts = ((len(result.missing), "missing"), (len(result.damaged), "damaged"))
    notes = [*(f"{count:,} {what}" for count, what in counts if count), *([skipped] if skipped else [])]
    return f"{result.files:,}" + (f" ({', '.join(notes)})" if notes else "")
