"""Job, plan, receipts, manifest and rejects: each follows from the ones before, so each is compared with that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

import xxhash

from tokenmill.check.verdict import Fault
from tokenmill.errors import LedgerError, OutputError, TokenizerError
from tokenmill.messages import printable, why, without_name
from tokenmill.output import layout
from tokenmill.output.damage import describe_damage
from tokenmill.output.finish import PublicReject, committed, describe_output, public_rejects, summarize
from tokenmill.output.open import Output
from tokenmill.output.receipts import START_OVER, found_damaged
from tokenmill.output.schema import (
    Receipt,
    StoredJob,
    has_checksum,
    is_end_of_derived_lines,
    run_id_of,
    to_line,
    to_text,
)
from tokenmill.output.spool import lines_of
from tokenmill.records import Unit
from tokenmill.storage.base import Reading

Tell = Callable[[Fault], None]

SHOWN = 120
SKIPPED_ADVICE = (
    "Convert it to JSON Lines and start over with --overwrite, or leave it out of the inputs and run the job again"
)

_CONTINUE = (
    "Run the same command again to continue it; if it stopped because of --max-rejects, with a higher --max-rejects"
)


def check_job(output: Output) -> None:
    """Raises OutputError unless job.json is, byte for byte, what would be written."""
    job: StoredJob = output.job
    with found_damaged(output.storage.describe(layout.JOB), START_OVER):
        if output.storage.read(layout.JOB) != to_text(job).encode():
            raise ValueError("not as it was written")


def check_receipts(output: Output, tell: Tell) -> bool:
    """Whether every unit has a receipt that can be read and adds up."""
    whole = True
    finished = output.is_complete
    undone = 0
    for unit in output.plan.units():
        try:
            receipt = output.receipts.receipt(unit)
            if receipt is None and not finished:
                undone += 1
                continue
            if receipt is None:
                raise LedgerError(f"unit {unit.name} has no receipt")
            _check_ledger(unit, receipt, output.job.options.seq_len)
            _check_files(output.storage, unit, receipt)
        except (OutputError, LedgerError) as error:
            tell(Fault(printable(error), unit.index))
            whole = False
        except OSError as error:
            tell(Fault(f"files of unit {unit.name} cannot be read: {why(error)}", unit.index))
            whole = False
    if undone:
        todo = f"{undone:,} of {len(output.plan.sizes):,} units are not done yet"
        tell(Fault(f"the job is not complete: {todo}. {_CONTINUE}"))
    return whole and not undone


def _check_ledger(unit: Unit, receipt: Receipt, seq_len: int) -> None:
    where, ledger, chunks = f"receipt of unit {unit.name}", receipt.ledger, receipt.chunks
    if not ledger.adds_up(seq_len):
        raise LedgerError(f"{where}: its ledger does not add up")
    rows, tokens, documents = (sum(getattr(c, n) for c in chunks) for n in ("rows", "tokens", "documents"))
    sums = {
        "rows": (ledger.rows, rows),
        "tokens": (ledger.tokens + ledger.separators - ledger.dropped_tokens, tokens),
        "documents": (ledger.documents - ledger.dropped_documents, documents),
        "rejects": (ledger.rejected, sum(ledger.rejects_by_reason.values())),
        "chunks": (len(chunks), sum(c.name == layout.chunk_name(unit, n) for n, c in enumerate(chunks))),
    }
    for name, (one, other) in sums.items():
        if one != other:
            raise LedgerError(f"{where}: {name} do not add up ({one:,} and {other:,})")


def _check_files(storage: Reading, unit: Unit, receipt: Receipt) -> None:
    """Receipt and rejects must be, byte for byte, what would be written."""
    if storage.read(layout.receipt_file(unit)) != to_text(receipt).encode():
        raise LedgerError(f"receipt of unit {unit.name} is not as it was written")
    name = layout.rejects_file(unit)
    try:
        with storage.open(name) as source:
            size = source.stat.size
            checksum = hashlib.file_digest(source, xxhash.xxh3_128).hexdigest() if size else None  # type: ignore[arg-type]
    except FileNotFoundError:
        size, checksum = 0, None
    if size != receipt.rejects_bytes:
        raise LedgerError(f"{layout.base_name(name)} has {size:,} bytes, its receipt says {receipt.rejects_bytes:,}")
    if checksum != receipt.rejects_xxh3:
        raise LedgerError(f"{layout.base_name(name)} is not as it was written: its checksum is wrong")


def check_manifest(output: Output, tell: Tell) -> None:
    """The manifest must be, line by line, what job, plan and receipts make of it."""
    if not output.is_complete:
        tell(Fault(f"{layout.MANIFEST} is missing: the job is not complete. {_CONTINUE}"))
        return
    try:
        _ = output.row_index
    except OutputError as error:
        tell(Fault(str(error)))
        return
    summary = summarize(output.receipts, output.plan, run_id_of(output.job, output.plan.digest))
    expected = _lines(describe_output(output.receipts, output.plan, output.job, summary))
    for number, (found, wanted) in enumerate(zip_longest(_stored_lines(output, layout.MANIFEST), expected), 1):
        if found == wanted and found is not None and is_end_of_derived_lines(found):
            break  # from here on it is a list that nothing else knows, and the checksum
        if found != wanted:
            tell(Fault(_difference(layout.MANIFEST, number, found, wanted), None))
            break
    if not has_checksum(output.storage.map(layout.MANIFEST)):
        tell(Fault(f"{layout.MANIFEST} was edited: its checksum is wrong. Remove it and run the same command again"))
    for name, reason in summary.missing.items():
        what = f"the input {printable(name)} is missing from the output: {without_name(name, reason)}"
        tell(Fault(f"{what}. Fix it and run the job again"))
    for name, found in summary.damaged.items():
        way_out = "Replace it with a whole copy and start over with --overwrite"
        what = f"the input {printable(name)} is damaged, and the output lacks what could not be read of it"
        tell(Fault(f"{what}: {describe_damage(found)}. {way_out}"))
    for entry in output.skipped_data:
        tell(Fault(f"{printable(entry.name)} looks like data and was skipped: {entry.why}. {SKIPPED_ADVICE}"))


def _stored_lines(output: Output, name: str) -> Iterator[str]:
    """The lines of a file, each with its end."""
    return (line.decode("ascii", "replace") for line in lines_of(output.storage.open(name)))


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of text as lines, each with its end."""
    held = ""
    for piece in pieces:
        *whole, held = (held + piece).split("\n")
        yield from (line + "\n" for line in whole)
    if held:
        yield held


def _difference(name: str, number: int, found: str | None, wanted: str | None) -> str:
    is_, should = ("nothing" if t is None else printable(t.strip().rstrip(",")[:SHOWN]) for t in (found, wanted))
    way_out = f"Remove {layout.MANIFEST} and run the same command again: it is made again"
    return f"{name}, line {number}: it says {is_}; by the receipts it should say {should}. {way_out}"


def check_rejects(output: Output, tell: Tell) -> None:
    """The list of rejects must be what the units rejected, no more and no less."""
    counted: dict[str, int] = {}
    expected = (to_line(reject) for reject in _counting(output, counted))
    try:
        stored = _stored_lines(output, layout.REJECTS)
    except OSError as error:
        tell(Fault(_unreadable(layout.REJECTS, error)))
        return
    for number, (found, wanted) in enumerate(zip_longest(stored, expected), 1):
        if found != wanted:
            tell(Fault(_difference(layout.REJECTS, number, found, wanted)))
            return
    total = summarize(output.receipts, output.plan, "").ledger.rejects_by_reason
    if counted != total:
        tell(Fault(f"the ledger counts the rejects {total}, their list has {counted}"))


def _unreadable(name: str, error: OSError) -> str:
    return f"{name} cannot be read: {error.strerror}. Remove {layout.MANIFEST} and run the job again"


def _counting(output: Output, counted: dict[str, int]) -> Iterator[PublicReject]:
    for reject in public_rejects(output.receipts, output.plan):
        if reject.records:
            counted[reject.reason] = counted.get(reject.reason, 0) + reject.records
        yield reject


def check_tokenizer(output: Output, tell: Tell) -> None:
    try:
        data = output.tokenizer()
    except TokenizerError as error:
        tell(Fault(str(error)))
        return
    if hashlib.sha256(data).hexdigest() != output.job.tokenizer.sha256:
        way_out = f"Remove {layout.MANIFEST} and run the job again"
        tell(Fault(f"{layout.TOKENIZER} is not the tokenizer of the job. {way_out}"))


def check_strangers(output: Output, tell: Tell) -> None:
    """Nothing in the output that the receipts do not know."""
    folders = {layout.CHUNKS, layout.UNITS, layout.LOGS}
    if not output.is_complete:
        folders.add(layout.DRAFTS)  # of a run that was stopped, or is under way
    for entry in output.storage.list():
        if entry.is_link or entry.name not in (folders if entry.is_folder else layout.WHOLE_FILES):
            tell(_stranger(entry.name))
    units: set[str] = set()
    chunks: set[str] = set()
    for done in committed(output.receipts, output.plan):
        units.update(layout.unit_files(done.unit.name, has_rejects=done.receipt.rejects_bytes > 0))
        chunks.update(layout.base_name(name) for chunk in done.receipt.chunks for name in layout.chunk_files(chunk))
    for folder, known in ((layout.UNITS, units), (layout.CHUNKS, chunks)):
        for name in _names(output, folder, tell):
            if name not in known:
                tell(_stranger(f"{folder}/{name}"))


def _stranger(name: str) -> Fault:
    return Fault(f"{printable(name)} does not belong to this job: remove it")


def _names(output: Output, folder: str, tell: Tell) -> list[str]:
    try:
        return [entry.name for entry in output.storage.list(folder)]
    except OSError as error:
        tell(Fault(f"{folder}/ cannot be listed: {error.strerror}. Remove {layout.MANIFEST} and run the job again"))
        return []
