"""Finish: every unit has its receipt; add up the ledger, make record numbers absolute, write the manifest.

No token is moved. The manifest is the complete record of an output, and is there only when the output is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

import xxhash

from tokenmill.errors import LedgerError
from tokenmill.output import layout
from tokenmill.output.damage import damaged_file
from tokenmill.output.plan_file import Plan
from tokenmill.output.receipts import Receipts, found_damaged
from tokenmill.output.schema import (
    DamagedFile,
    LineReject,
    PartEntry,
    Receipt,
    RowReject,
    SkippedEntry,
    StoredJob,
    StoredReject,
    Summary,
    UnitEntry,
    decode,
    manifest_pieces,
    to_line,
)
from tokenmill.output.spool import lines_of
from tokenmill.records import Ledger, Unit
from tokenmill.storage.base import Storage

PublicReject: TypeAlias = "LineReject | RowReject"


@dataclass(frozen=True, slots=True)
class Committed:
    """A unit with its receipt, and the number of the first record of each part in its file: from 1, as people count.

    None where an earlier part of the same file could not be read, so that nobody knows.
    """

    unit: Unit
    receipt: Receipt
    first_records: list[int | None]


def finish(receipts: Receipts, plan: Plan, job: StoredJob, summary: Summary, skipped: Iterable[SkippedEntry]) -> None:
    """Write the manifest: from here on the output is complete."""
    receipts.storage.sync(layout.UNITS)  # or a checkpoint that was removed might be back, beside a manifest
    pieces = describe_output(receipts, plan, job, summary, skipped)
    receipts.storage.publish(layout.MANIFEST, (piece.encode("ascii") for piece in pieces))


def describe_output(
    receipts: Receipts, plan: Plan, job: StoredJob, summary: Summary, skipped: Iterable[SkippedEntry] = ()
) -> Iterator[str]:
    """The manifest of a complete output, in pieces."""
    return manifest_pieces(
        summary,
        job,
        inputs=(file for _, file in plan.inputs()),
        units=map(_unit_entry, committed(receipts, plan)),
        chunks=((c.unit.index, chunk) for c in committed(receipts, plan) for chunk in c.receipt.chunks),
        skipped=skipped,
    )


def summarize(receipts: Receipts, plan: Plan, run_id: str) -> Summary:
    """What the receipts add up to."""
    ledger = Ledger()
    missing: dict[str, str] = {}
    damaged: dict[str, DamagedFile] = {}
    for done in committed(receipts, plan):
        ledger.add(done.receipt.ledger)
        missing |= {done.unit.names[file]: why for file, why in done.receipt.missing.items()}
        for damage in done.receipt.damaged:
            file, first = done.unit.files[damage.part], done.first_records[damage.part]
            damaged[file.name] = damaged_file(damage, file, first, damaged.get(file.name))
    return Summary(run_id=run_id, ledger=ledger, missing=missing, damaged=damaged)


def damaged_files(receipts: Receipts, plan: Plan) -> list[str]:
    """The names of damaged files, as far as units are committed."""
    done = ((unit, receipt) for unit, receipt, _ in with_record_numbers(receipts, plan) if receipt is not None)
    return [*dict.fromkeys(unit.files[d.part].name for unit, receipt in done for d in receipt.damaged)]


def committed(receipts: Receipts, plan: Plan) -> Iterator[Committed]:
    """Every unit, in order; each must be committed."""
    for unit, receipt, firsts in with_record_numbers(receipts, plan):
        if receipt is None:
            raise LedgerError(f"unit {unit.name} has no receipt, please report this")
        yield Committed(unit, receipt, firsts)


def with_record_numbers(receipts: Receipts, plan: Plan) -> Iterator[tuple[Unit, Receipt | None, list[int | None]]]:
    """Every unit, in order, committed or not. The parts of a file follow one another."""
    file: int | None = None
    line: int | None = None
    for unit in plan.units():
        receipt = receipts.receipt(unit)
        counts = [None] * len(unit.parts) if receipt is None else receipt.lines
        missing = {} if receipt is None else receipt.missing
        firsts: list[int | None] = []
        for part, count in zip(unit.parts, counts, strict=True):
            before = line if part.file == file else 1
            firsts.append(before)
            file = part.file
            line = None if before is None or count is None or file in missing else before + count
        yield unit, receipt, firsts


def _unit_entry(done: Committed) -> UnitEntry:
    parts = (
        PartEntry(file=part.file, start=part.start, end=part.end, first_record=first, lines=count)
        for part, first, count in zip(done.unit.parts, done.first_records, done.receipt.lines, strict=True)
    )
    return UnitEntry(unit=done.unit.index, parts=tuple(parts))


def write_rejects(receipts: Receipts, plan: Plan) -> int:
    """Put the rejects of all units so far into one file, with file names and absolute numbers; how many records."""
    listed = 0

    def lines() -> Iterator[bytes]:
        nonlocal listed
        for reject in public_rejects(receipts, plan):
            listed += reject.records
            yield to_line(reject).encode("ascii")

    receipts.storage.publish(layout.REJECTS, lines())
    return listed


def public_rejects(receipts: Receipts, plan: Plan) -> Iterator[PublicReject]:
    """The rejects of all units so far, as rejects.jsonl has them."""
    for unit, receipt, firsts in with_record_numbers(receipts, plan):
        where = receipts.storage.describe(layout.rejects_file(unit))
        lines = _rejects(receipts.storage, unit, receipt)
        while True:
            with found_damaged(where, f"Do the unit again with --redo {unit.index}"):
                if (line := next(lines, None)) is None:
                    break
                reject = _public(unit, firsts, decode(line, StoredReject))
            yield reject


def _rejects(storage: Storage, unit: Unit, receipt: Receipt | None) -> Iterator[bytes]:
    """The lines of a unit's list: those that its receipt knows, or whole lines as far as a unit under way has come.

    Raises ValueError at the end of a list that is not the one that its receipt knows.
    """
    name = layout.rejects_file(unit)
    if receipt is None:
        for opener in (storage.open_draft, storage.open):
            with suppress(FileNotFoundError):  # none; or its worker has just published it
                yield from takewhile(lambda line: line.endswith(b"\n"), lines_of(opener(name)))
                return
    elif receipt.rejects_bytes:
        state = xxhash.xxh3_128()
        for line in lines_of(storage.open(name)):
            state.update(line)
            yield line
        if state.hexdigest() != receipt.rejects_xxh3:
            raise ValueError("its checksum is wrong")


def _public(unit: Unit, firsts: list[int | None], reject: StoredReject) -> PublicReject:
    file, first = unit.files[reject.part], firsts[reject.part]
    number = None if first is None else first + reject.record
    reason, detail, records, head = reject.reason, reject.detail, reject.records, reject.head
    if file.format.has_rows:
        return RowReject(file=file.name, row=number, reason=reason, detail=detail, records=records, head=head)
    offset = reject.offset
    return LineReject(
        file=file.name, line=number, offset=offset, reason=reason, detail=detail, records=records, head=head
    )
