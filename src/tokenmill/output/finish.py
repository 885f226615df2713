"""Finish: every unit has its receipt; add up the ledger, make record numbers absolute, write the manifest.

No token is moved. The manifest is the whole truth about the output, and is there only when the output is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import xxhash

from tokenmill.config import resume_hint
from tokenmill.errors import LedgerError, RejectLimitError
from tokenmill.job.prepare import Job
from tokenmill.messages import printable
from tokenmill.output.manifest import CHECKSUM, Summary, read_manifest
from tokenmill.output.plan_file import Plan
from tokenmill.output.store import Store, found_damaged
from tokenmill.records import Format, Ledger, Reason, Receipt, Unit
from tokenmill.storage.local import sync_directory


def read_summary(store: Store) -> Summary | None:
    """The head of the manifest, if there is one."""
    with found_damaged(store.manifest):
        try:
            return read_manifest(store.manifest, Summary)
        except FileNotFoundError:
            return None


def finish(job: Job) -> Summary:
    """Write rejects.jsonl and manifest.json, unless there are more rejects than the job allows."""
    summary = summarize(job.store, job.plan, job.run_id)
    ledger = summary.ledger
    ledger.check(job.config.seq_len, "the whole job")
    listed = write_rejects(job)
    if listed != ledger.rejected:
        raise LedgerError(f"{ledger.rejected} records were rejected, but {listed} are listed, please report this")
    check_rejects(job, ledger)
    sync_directory(job.store.units)  # or a checkpoint that was removed might be back, beside a manifest
    job.store.write_pieces(job.store.manifest, manifest_pieces(job.store, job.plan, job.description, summary))
    return summary


def summarize(store: Store, plan: Plan, run_id: str) -> Summary:
    """What the receipts add up to."""
    ledger = Ledger()
    missing: dict[str, str] = {}
    for unit, receipt, _ in receipts(store, plan):
        ledger.add(receipt.ledger)
        missing |= {unit.names[file]: why for file, why in receipt.missing.items()}
    return Summary(run_id=run_id, ledger=ledger, missing=missing)


def manifest_pieces(store: Store, plan: Plan, description: dict[str, Any], summary: Summary) -> Iterator[str]:
    """The manifest in pieces, a line for each file, unit and chunk: there may be a million of them.

    What was left out comes last: all before it follows from job, plan and receipts alone.
    """
    head = {"run_id": summary.run_id, "ledger": summary.ledger.to_json(), "missing": summary.missing, **description}
    lists: dict[str, Iterator[dict[str, Any]]] = {
        "inputs": (asdict(file) for _, file in plan.inputs()),
        "units": (_unit_entry(*entry) for entry in receipts(store, plan)),
        "chunks": ({"unit": u.index, **asdict(c)} for u, receipt, _ in receipts(store, plan) for c in receipt.chunks),
        "left_out": ({"name": name, "why": why} for name, why in plan.left_out or ()),
    }
    state = xxhash.xxh3_128()
    for piece in _pieces(head, lists):
        state.update(piece.encode())
        yield piece
    yield CHECKSUM.decode() + state.hexdigest() + '"\n}\n'


def _pieces(head: dict[str, Any], lists: dict[str, Iterator[dict[str, Any]]]) -> Iterator[str]:
    yield json.dumps(head, indent=1, sort_keys=True).removesuffix("\n}")
    for name, entries in lists.items():
        yield f',\n "{name}": ['
        separator = "\n  "
        for entry in entries:
            yield separator + json.dumps(entry)
            separator = ",\n  "
        yield "\n ]"


def check_rejects(job: Job, ledger: Ledger) -> None:
    """Raise RejectLimitError if more was rejected than --max-rejects allows."""
    limit = job.config.max_rejects
    if limit.exceeded(ledger.rejected, ledger.records, final=True):
        raise too_many_rejects(job, ledger)


def too_many_rejects(job: Job, ledger: Ledger) -> RejectLimitError:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(ledger.rejects_by_reason.items()))
    share = 100 * ledger.rejected / max(1, ledger.records)
    hint = ""
    if 2 * ledger.rejects_by_reason.get(Reason.NO_TEXT_FIELD, 0) > ledger.records:
        hint = f"Is --text-field {job.config.text_field} right? "
    return RejectLimitError(
        f"{ledger.rejected:,} of {ledger.records:,} records were rejected ({share:.3g} %: {reasons}), more than "
        f"--max-rejects {job.config.max_rejects}. They are listed in {printable(job.store.rejects)}. {hint}"
        f"Mend the input and start anew with --overwrite, or {resume_hint(job.config)} with a higher --max-rejects: it "
        "continues from here"
    )


def write_rejects(job: Job) -> int:
    """Put the rejects of all units so far into one file, with file names and absolute numbers; how many records."""
    listed = 0

    def lines() -> Iterator[str]:
        nonlocal listed
        for reject in public_rejects(job.store, job.plan):
            listed += reject["records"]
            yield json.dumps(reject) + "\n"

    job.store.write_pieces(job.store.rejects, lines())
    return listed


def public_rejects(store: Store, plan: Plan) -> Iterator[dict[str, Any]]:
    """The rejects of all units so far, as rejects.jsonl has them."""
    for unit, receipt, firsts in receipts(store, plan, partial=True):
        rejects = _rejects(store, unit, receipt)
        while True:
            with found_damaged(store.rejects_path(unit), f"Do the unit again with --redo {unit.index}"):
                if (reject := next(rejects, None)) is None:
                    break
                public = _public_reject(unit, firsts, reject)
            yield public


def receipts(store: Store, plan: Plan, partial: bool = False) -> Iterator[tuple[Unit, Receipt, list[int | None]]]:
    """Receipts in order, with the absolute number of the first record of each part: 1, as people count, or more.

    None where an earlier part of the same file could not be read, so that nobody knows.
    """
    file: int | None = None
    line: int | None = None
    for unit in plan.units():
        receipt = store.receipt(unit)
        if receipt is None:
            if partial:
                receipt = Receipt(
                    unit=unit.index,
                    ledger=Ledger(),
                    chunks=(),
                    lines=(0,) * len(unit.parts),
                    rejects_bytes=1 << 62,
                    rejects_xxh3=None,
                    missing={p.file: "not complete yet" for p in unit.parts},
                )
            else:
                raise LedgerError(f"unit {unit.name} has no receipt, please report this")
        firsts: list[int | None] = []
        for part, count in zip(unit.parts, receipt.lines, strict=True):
            # The parts of a file follow one another.
            before = line if part.file == file else 1
            firsts.append(before)
            file = part.file
            line = None if before is None or file in receipt.missing else before + count
        yield unit, receipt, firsts


def _unit_entry(unit: Unit, receipt: Receipt, firsts: list[int | None]) -> dict[str, Any]:
    parts = [
        {"file": p.file, "start": p.start, "end": p.end, "first_record": first, "lines": count}
        for p, first, count in zip(unit.parts, firsts, receipt.lines, strict=True)
    ]
    return {"unit": unit.index, "parts": parts}


def _rejects(store: Store, unit: Unit, receipt: Receipt) -> Iterator[dict[str, Any]]:
    left = receipt.rejects_bytes
    try:
        file = store.rejects_path(unit).open("rb")
    except FileNotFoundError:
        return  # none; or a worker has just found out that there are none
    with file:
        for line in file:
            left -= len(line)
            if left < 0 or not line.endswith(b"\n"):
                return  # written after the last checkpoint of a unit that is not complete
            yield json.loads(line)


def _public_reject(unit: Unit, firsts: list[int | None], reject: dict[str, Any]) -> dict[str, Any]:
    file = unit.files[reject["part"]]
    first = firsts[reject["part"]]
    is_parquet = file.format is Format.PARQUET
    return {
        "file": file.name,
        "row" if is_parquet else "line": None if first is None else first + reject["record"],
        "offset": None if is_parquet else reject["offset"],
        "reason": reject["reason"],
        "detail": reject["detail"],
        "records": reject["records"],
        "head": reject["head"],
    }
