"""Job, plan, receipts, manifest and rejects: each follows from the ones before, so each is compared with that."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tokenmill.check.verdict import Fault
from tokenmill.errors import InputError, LedgerError, OutputError
from tokenmill.job.prepare import run_id
from tokenmill.messages import printable
from tokenmill.output.finish import manifest_pieces, public_rejects, receipts, summarize
from tokenmill.output.manifest import Index, has_checksum, read_manifest
from tokenmill.output.plan_file import Plan
from tokenmill.output.store import CHUNK_SUFFIXES, START_ANEW, Store, as_text, chunk_name, found_damaged
from tokenmill.records import Receipt, Unit

Tell = Callable[[Fault], None]

Positive = Annotated[int, msgspec.Meta(ge=1)]

SHOWN = 120
LEFT_OUT = ' "left_out": [\n'


@dataclass(frozen=True, slots=True)
class Output:
    """An output directory whose job and plan could be read."""

    store: Store
    description: dict[str, Any]
    plan: Plan

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = self.description["options"]
        return found

    @property
    def tokenizer(self) -> dict[str, Any]:
        found: dict[str, Any] = self.description["tokenizer"]
        return found


def open_output(root: Path, source: Path | None) -> Output:
    """Raises InputError for a directory that holds no job, OutputError for a damaged one."""
    store = Store(root)
    description = store.read_json(store.job) if root.is_dir() else None
    plan = store.read_plan(source or _last_source(store)) if description else None
    if description is None or plan is None:
        raise InputError(f"{printable(root)} is no output of tokenmill: it has no job.json and plan.jsonl")
    with found_damaged(store.job, START_ANEW):
        msgspec.convert(description, StoredJob)
        if store.job.read_bytes() != as_text(description).encode():
            raise ValueError("not as it was written")
    return Output(store, description, plan)


class StoredOptions(msgspec.Struct, forbid_unknown_fields=True):
    text_field: str
    id_field: str | None
    special_tokens_in_text: Literal["plain", "match", "reject"]
    eos_token: str | None
    bos_token: str | None
    seq_len: Positive
    sequences_per_chunk: Positive
    tail: Literal["pad", "drop"]
    max_document_bytes: Positive


class StoredTokenizer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    sha256: str
    vocab_size: Positive
    eos_id: int | None
    bos_id: int | None
    pad_id: int
    dtype: Literal["uint16", "uint32"]


class StoredJob(msgspec.Struct, forbid_unknown_fields=True):
    """What job.json must hold."""

    format_version: Literal[1]
    options: StoredOptions
    tokenizer: StoredTokenizer


def _last_source(store: Store) -> Path:
    """Where the inputs lay when the job ran last."""
    try:
        return Path(os.fsdecode((store.logs / "inputs").read_bytes()))
    except OSError:
        return Path()


def check_receipts(output: Output, tell: Tell) -> bool:
    """Whether every unit has a receipt that can be read and adds up."""
    whole = True
    finished = output.store.manifest.exists()
    undone = 0
    for unit in output.plan.units():
        try:
            receipt = output.store.receipt(unit)
            if receipt is None and not finished:
                undone += 1
                continue
            if receipt is None:
                raise LedgerError(f"unit {unit.name} has no receipt")
            _check_ledger(unit, receipt, output.options)
            _check_files(output.store, unit, receipt)
        except (OutputError, LedgerError, OSError) as error:
            tell(Fault(printable(error), unit.index))
            whole = False
    if undone:
        todo = f"{undone:,} of {len(output.plan.sizes):,} units are still to be done"
        tell(Fault(f"the job is not complete: {todo}. Run the same command again to continue it"))
    return whole and not undone


def _check_ledger(unit: Unit, receipt: Receipt, options: dict[str, Any]) -> None:
    where, ledger, chunks = f"receipt of unit {unit.name}", receipt.ledger, receipt.chunks
    ledger.check(options["seq_len"], where)
    rows, tokens, documents = (sum(getattr(c, n) for c in chunks) for n in ("rows", "tokens", "documents"))
    sums = {
        "unit": (receipt.unit, unit.index),
        "parts": (len(receipt.lines), len(unit.parts)),
        "rows": (ledger.rows, rows),
        "tokens": (ledger.tokens + ledger.separators - ledger.dropped_tokens, tokens),
        "documents": (ledger.documents - ledger.dropped_documents, documents),
        "rejects": (ledger.rejected, sum(ledger.rejects_by_reason.values())),
        "chunks": (len(chunks), sum(c.name == chunk_name(unit, n) for n, c in enumerate(chunks))),
    }
    for name, (one, other) in sums.items():
        if one != other:
            raise LedgerError(f"{where}: {name} do not add up ({one:,} and {other:,})")


def _check_files(store: Store, unit: Unit, receipt: Receipt) -> None:
    """Receipt and rejects must be, byte for byte, what would be written."""
    if store.receipt_path(unit).read_bytes() != as_text(receipt.to_json()).encode():
        raise LedgerError(f"receipt of unit {unit.name} is not as it was written")
    path = store.rejects_path(unit)
    size = path.stat().st_size if path.exists() else 0
    if size != receipt.rejects_bytes:
        raise LedgerError(f"{path.name} has {size:,} bytes, its receipt says {receipt.rejects_bytes:,}")
    if store.rejects_checksum(unit) != receipt.rejects_xxh3:
        raise LedgerError(f"{path.name} is not as it was written: its checksum is wrong")


def check_manifest(output: Output, tell: Tell) -> None:
    """The manifest must be, line by line, what job, plan and receipts make of it."""
    store, plan = output.store, output.plan
    if not store.manifest.exists():
        tell(Fault("manifest.json is missing: the job is not complete. Run the same command again to continue it"))
        return
    try:
        read_manifest(store.manifest, Index)
    except (OSError, ValueError) as error:
        tell(Fault(f"manifest.json cannot be read: {error}. Remove it and run the same command again"))
        return
    summary = summarize(store, plan, run_id(output.description, plan))
    expected = _lines(manifest_pieces(store, plan, output.description, summary))
    with store.manifest.open(encoding="ascii", errors="replace") as file:
        for number, (found, wanted) in enumerate(zip_longest(file, expected), 1):
            if found == wanted == LEFT_OUT:
                break  # from here on it is a list that nothing else knows, and the checksum
            if found != wanted:
                tell(Fault(_difference("manifest.json", number, found, wanted), None))
                break
    if not has_checksum(store.manifest):
        tell(Fault("manifest.json was edited: its checksum is wrong. Remove it and run the same command again"))
    for name, why in summary.missing.items():
        tell(Fault(f"the input {printable(name)} is missing from the output: {why}. Mend it and run the job again"))


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of text as lines, each with its end."""
    held = ""
    for piece in pieces:
        *whole, held = (held + piece).split("\n")
        yield from (line + "\n" for line in whole)
    if held:
        yield held


def _difference(name: str, number: int, found: str | None, wanted: str | None) -> str:
    is_, should = (("nothing" if t is None else printable(t.strip()[:SHOWN])) for t in (found, wanted))
    return (
        f"{name}, line {number}: there is {is_}, the receipts say {should}. Remove manifest.json and run the same "
        "command again: both are made anew"
    )


def check_rejects(output: Output, tell: Tell) -> None:
    """rejects.jsonl must list what the units rejected, no more and no less."""
    store = output.store
    counted: dict[str, int] = {}
    expected = (json.dumps(reject) + "\n" for reject in _counting(output, counted))
    try:
        file = store.rejects.open(encoding="ascii", errors="replace")
    except OSError as error:
        tell(Fault(f"rejects.jsonl cannot be read: {error.strerror}. Remove manifest.json and run the job again"))
        return
    with file:
        for number, (found, wanted) in enumerate(zip_longest(file, expected), 1):
            if found != wanted:
                tell(Fault(_difference("rejects.jsonl", number, found, wanted)))
                return
    total = summarize(store, output.plan, "").ledger.rejects_by_reason
    if counted != total:
        tell(Fault(f"the ledger counts the rejects {total}, their list has {counted}"))


def _counting(output: Output, counted: dict[str, int]) -> Iterator[dict[str, Any]]:
    for reject in public_rejects(output.store, output.plan):
        if reject["records"]:
            counted[reject["reason"]] = counted.get(reject["reason"], 0) + reject["records"]
        yield reject


def check_tokenizer(output: Output, tell: Tell) -> None:
    try:
        data = output.store.tokenizer.read_bytes()
    except OSError as error:
        tell(Fault(f"tokenizer.json cannot be read: {error.strerror}. Remove manifest.json and run the job again"))
        return
    if hashlib.sha256(data).hexdigest() != output.tokenizer["sha256"]:
        tell(Fault("tokenizer.json is not the tokenizer of the job. Remove manifest.json and run the job again"))


def _entries(folder: Path, tell: Tell) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        tell(Fault(f"{folder.name}/ cannot be listed: {error.strerror}. Remove manifest.json and run the job again"))
        return []


def check_strangers(output: Output, tell: Tell) -> None:
    """Nothing in the directory that the receipts do not know."""
    store = output.store
    known = {p.name for p in (store.job, store.plan, store.tokenizer, store.manifest, store.rejects)}
    folders = {p.name for p in (store.chunks, store.units, store.logs)}
    if not store.manifest.exists():
        folders.add(store.temporary.name)  # of a run that was stopped, or is under way
    for entry in os.scandir(store.root):
        if entry.name not in (folders if entry.is_dir(follow_symlinks=False) else known):
            tell(Fault(f"{printable(entry.name)} is not of this job: remove it"))
    counts, rejecting = {}, set()
    for unit, receipt, _ in receipts(store, output.plan):
        counts[unit.name] = len(receipt.chunks)
        if receipt.rejects_bytes:
            rejecting.add(unit.name)
    with_ids = output.options["id_field"] is not None
    for entry in _entries(store.units, tell):
        unit_name, _, kind = entry.name.partition(".")
        if unit_name not in counts or kind not in ({"json", "rejects.jsonl"} if unit_name in rejecting else {"json"}):
            tell(Fault(f"units/{printable(entry.name)} is not of this job: remove it"))
    suffixes = CHUNK_SUFFIXES if with_ids else CHUNK_SUFFIXES[:2]
    for entry in _entries(store.chunks, tell):
        name, dot, suffix = entry.name.partition(".")
        unit_name, _, number = name.partition("-")
        is_known = number.isdecimal() and int(number) < counts.get(unit_name, 0) and dot + suffix in suffixes
        if not is_known or f"{int(number):04d}" != number:
            tell(Fault(f"chunks/{printable(entry.name)} is not of this job: remove it"))
