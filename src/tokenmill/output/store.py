"""The output directory: what lies where, and how a unit is committed.

OUT/job.json, OUT/plan.jsonl  the job: options and tokenizer; inputs and units, a unit per line; written once, first
OUT/tokenizer.json            the tokenizer, as it was found
OUT/chunks/00007-0000.npy     rows;  .docs.npy: where documents end;  .ids.jsonl: their ids, with --id-field
OUT/units/00007.json          receipt: the commit point. A unit with a receipt is done, one without never happened
OUT/units/00007.checkpoint.json   how far an interrupted unit came; gone once there is a receipt
OUT/units/00007.rejects.jsonl     its rejects; receipt and checkpoint say how many bytes of it count
OUT/rejects.jsonl, OUT/manifest.json   made from the receipts at the end
OUT/tmp/                      everything that is not whole yet; emptied when a run starts, gone when it ends
OUT/logs/                     the only place with clocks, host names and process ids
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tokenmill.errors import OutputBusyError, OutputError
from tokenmill.messages import printable
from tokenmill.output.plan_file import Plan
from tokenmill.output.spool import Spool
from tokenmill.plan.find import is_job
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Ledger, Receipt, Unit
from tokenmill.storage.local import sync_directory, write_atomically
from tokenmill.write.chunks import EMPTY, Partial
from tokenmill.write.npy import npy_header

CHUNK_SUFFIXES = (".npy", ".docs.npy", ".ids.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """An interrupted unit: its whole chunks, and where to read on.

    Reading goes on at the block in which the last chunk was completed; `skip` is how many tokens of what comes from
    there are in chunks already. Encoding them again is cheaper, and simpler to trust, than keeping them.
    """

    part: int
    offset: int | None
    skip: int
    ledger: Ledger
    chunks: tuple[ChunkEntry, ...]
    lines: tuple[int, ...]
    rejects_bytes: int
    missing: dict[int, str]
    partial: Partial = EMPTY
    """What of the next chunk is on disk already, in tmp/."""


REMOVE = "Remove it to have that part done again, or start anew with --overwrite"
START_ANEW = "Start anew with --overwrite"


@contextmanager
def found_damaged(path: Path, way_out: str = REMOVE) -> Iterator[None]:
    """Somebody else wrote into our files: say which, and what to do."""
    try:
        yield
    except OutputError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise OutputError(f"{printable(path)} is damaged ({printable(repr(error))}). {way_out}") from error
    except OSError as error:
        raise OutputError(f"{printable(path)} cannot be read: {error.strerror or error}. {way_out}") from error


def as_text(data: dict[str, Any]) -> str:
    """JSON as it is written, ASCII with escapes: any file name can be written, none can play tricks on a terminal."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def chunk_name(unit: Unit, number: int) -> str:
    return f"{unit.name}-{number:04d}"


class Store:
    """Names, reads and writes the files of one output directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.chunks = root / "chunks"
        self.units = root / "units"
        self.temporary = root / "tmp"
        self.logs = root / "logs"
        self.job = root / "job.json"
        self.plan = root / "plan.jsonl"
        self.tokenizer = root / "tokenizer.json"
        self.manifest = root / "manifest.json"
        self.rejects = root / "rejects.jsonl"
        self.lock = -1
        """The open lock file; a process that inherits it holds the lock too, for as long as it lives."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory. The lock is the kernel's: it dies with the process, whoever that was."""
        try:
            self._make()
            mode = 0o644  # no mutant: what others may do with an empty file does not matter
            handle = os.open(self.logs / "lock", os.O_RDWR | os.O_CREAT, mode)
        except OSError as error:
            raise OutputError(f"cannot write to {printable(self.root)}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputBusyError(
                    f"another run is writing to {printable(self.root)}: wait for it, or choose another directory"
                ) from None
            self.lock = handle
            yield
        finally:
            os.close(handle)

    def _make(self) -> None:
        """Make the directory. What is forced to disk in it later is of no use if its own name is lost."""
        new = list(takewhile(lambda p: not p.exists(), (self.root, *self.root.parents)))
        self.logs.mkdir(parents=True, exist_ok=True)
        for path in new:
            with suppress(PermissionError):  # one may be allowed to write to a folder, and not to read it
                sync_directory(path.parent)

    def is_foreign(self) -> bool:
        """Whether there is something here that no run of tokenmill put here."""
        if is_job(self.job) or (self.plan.exists() and self.units.is_dir()):
            return False
        # A run that died before job.json was in place leaves no more than this.
        ours = {self.logs, self.temporary, self.temporary / self.job.name}
        found = {*self.root.iterdir(), *(self.temporary.iterdir() if self.temporary.is_dir() else ())}
        return not found <= ours

    def clear(self) -> None:
        """Remove a job, logs aside. job.json goes last: until then the directory is known to be ours.

        Before that the manifest, then receipts and checkpoints: each for good, and before what it stands for.
        """
        self.manifest.unlink(missing_ok=True)
        self.rejects.unlink(missing_ok=True)
        sync_directory(self.root)
        if self.units.is_dir():
            for path in self.units.glob("*.json"):
                path.unlink()
            sync_directory(self.units)
        for directory in (self.units, self.chunks, self.temporary):
            shutil.rmtree(directory, ignore_errors=True)
        self.tokenizer.unlink(missing_ok=True)
        self.plan.unlink(missing_ok=True)
        self.job.unlink(missing_ok=True)

    def prepare(self, description: dict[str, Any], plan: Plan, tokenizer: bytes) -> None:
        """Make the directories, the job and its plan first; whatever a dead run left half-written goes."""
        self.temporary.mkdir(exist_ok=True)
        begun = tuple(f"{c.name.split('.')[0]}-" for c in self.units.glob("*.checkpoint.json"))
        for path in self.temporary.iterdir():
            if not path.name.startswith(begun):  # a chunk that a checkpoint may go on with
                path.unlink()
        self.manifest.unlink(missing_ok=True)
        if self.read_json(self.job) != description:
            self.write_json(self.job, description)
        if (stored := self.read_plan(plan.root)) is None or stored.digest != plan.digest:
            self.write_pieces(self.plan, plan.lines())
        if not self.tokenizer.exists() or self.tokenizer.read_bytes() != tokenizer:
            write_atomically(self.tokenizer, [tokenizer], self.temporary)
        (self.logs / "inputs").write_bytes(os.fsencode(plan.root))  # for `verify`; a path, so it is with the logs
        self.chunks.mkdir(exist_ok=True)
        self.units.mkdir(exist_ok=True)
        for checkpoint in self.units.glob("*.checkpoint.json"):
            if (self.units / f"{checkpoint.name.split('.')[0]}.json").exists():
                checkpoint.unlink()  # the run died between the receipt and the removal of the checkpoint
        sync_directory(self.root)  # the manifest is gone, chunks/ and units/ are there, before any unit is touched

    def conclude(self) -> None:
        """Nothing is half-written any more."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def write_json(self, path: Path, data: dict[str, Any]) -> None:
        self.write_pieces(path, [as_text(data)])

    def write_pieces(self, path: Path, pieces: Iterable[str]) -> None:
        write_atomically(path, (piece.encode("ascii") for piece in pieces), self.temporary)

    def read_json(self, path: Path) -> dict[str, Any] | None:
        with found_damaged(path, START_ANEW if path == self.job else REMOVE):
            try:
                data = json.loads(path.read_bytes())
            except FileNotFoundError:
                return None
            if not isinstance(data, dict):
                raise ValueError("not an object")
        return data

    def read_plan(self, root: Path) -> Plan | None:
        with found_damaged(self.plan, START_ANEW):
            try:
                plan = Plan(root, Spool(path=self.plan))
            except FileNotFoundError:
                return None
            if not plan.sizes:
                raise ValueError("no units")
            return plan

    def refuse_without_plan(self) -> None:
        """The plan is in place before any unit: without it, units are nobody's."""
        if self.units.is_dir() and any(self.units.iterdir()):
            missing = self.plan if self.job.exists() else self.job
            raise OutputError(f"{printable(missing)} is missing, but there are units: start anew with --overwrite")

    def receipt_path(self, unit: Unit) -> Path:
        return self.units / f"{unit.name}.json"

    def rejects_path(self, unit: Unit) -> Path:
        return self.units / f"{unit.name}.rejects.jsonl"

    def _checkpoint_path(self, unit: Unit) -> Path:
        return self.units / f"{unit.name}.checkpoint.json"

    def receipt(self, unit: Unit) -> Receipt | None:
        path = self.receipt_path(unit)
        data = self.read_json(path)
        with found_damaged(path):
            return None if data is None else Receipt.from_json(data)

    def commit(self, unit: Unit, receipt: Receipt) -> None:
        self.write_json(self.receipt_path(unit), receipt.to_json())
        self.remove_checkpoint(unit)

    def checkpoint(self, unit: Unit) -> Checkpoint | None:
        path = self._checkpoint_path(unit)
        data = self.read_json(path)
        if data is None:
            return None
        with found_damaged(path):
            data["ledger"] = Ledger(**data["ledger"])
            data["chunks"] = tuple(ChunkEntry(**c) for c in data["chunks"])
            data["lines"] = tuple(data["lines"])
            data["partial"] = Partial(**data["partial"])
            return Checkpoint(**data)

    def remove_checkpoint(self, unit: Unit) -> None:
        self._checkpoint_path(unit).unlink(missing_ok=True)

    def save_checkpoint(self, unit: Unit, checkpoint: Checkpoint) -> None:
        self.write_json(self._checkpoint_path(unit), asdict(checkpoint))

    def reset(self, units: Sequence[Unit]) -> None:
        """Undo units; what stands for something first, and for good, so that nothing stands for something gone."""
        for unit in units:
            self.receipt_path(unit).unlink(missing_ok=True)
            self.remove_checkpoint(unit)
        if units:
            sync_directory(self.units)
        for unit in units:
            self.rejects_path(unit).unlink(missing_ok=True)
            self.remove_chunks(unit, 0)
            for path in self.temporary.glob(f"{unit.name}-*"):
                path.unlink()

    def remove_chunks(self, unit: Unit, first: int) -> None:
        """Remove the unit's chunks from number `first` on: they were not committed."""
        while True:
            paths = [self.chunks / f"{chunk_name(unit, first)}{s}" for s in CHUNK_SUFFIXES]
            found = [p for p in paths if p.exists()]
            for path in found:
                path.unlink()
            if not found:
                return
            first += 1

    def chunk_paths(self, chunk: ChunkEntry) -> list[Path]:
        suffixes = CHUNK_SUFFIXES if chunk.ids_xxh3 else CHUNK_SUFFIXES[:2]
        return [self.chunks / f"{chunk.name}{s}" for s in suffixes]

    def has_chunk(self, chunk: ChunkEntry, seq_len: int, dtype: np.dtype[Any]) -> bool:
        """Whether a chunk's files are there and have the right size: a cheap look, not a verification."""
        sizes = [
            len(npy_header(dtype, (chunk.rows, seq_len))) + chunk.rows * seq_len * dtype.itemsize,
            len(npy_header(SIDECAR_DTYPE, (chunk.documents,))) + chunk.documents * SIDECAR_DTYPE.itemsize,
        ]
        paths = self.chunk_paths(chunk)
        there = all(p.exists() for p in paths)
        # Of the ids the size is not known.
        return there and all(p.stat().st_size == s for p, s in zip(paths, sizes, strict=False))

    def has_partial(self, unit: Unit, number: int, partial: Partial, dtype: np.dtype[Any]) -> bool:
        """Whether an incomplete chunk is there, as far as it was counted.

        A run that died after it had completed and moved the chunk, but before the next checkpoint, left it in chunks/.
        """
        counts = ((partial.tokens, dtype), (partial.documents, SIDECAR_DTYPE))
        sizes = [len(npy_header(kind, (0,))) + n * kind.itemsize if n else 0 for n, kind in counts]
        sizes.append(partial.ids_bytes)
        for suffix, size in zip(CHUNK_SUFFIXES, sizes, strict=True):
            path = self.temporary / f"{chunk_name(unit, number)}{suffix}"
            moved = self.chunks / path.name
            if size and not path.exists() and moved.exists():
                moved.rename(path)
            if size and not (path.exists() and path.stat().st_size >= size):
                return False
        return True

    def has_rejects(self, unit: Unit, size: int) -> bool:
        """Whether the unit's rejects are there, as many bytes as were counted."""
        path = self.rejects_path(unit)
        return size == 0 or (path.exists() and path.stat().st_size >= size)

    def rejects_checksum(self, unit: Unit) -> str | None:
        """XXH3-128 of the unit's rejects, None if there are none."""
        path = self.rejects_path(unit)
        if not path.exists() or path.stat().st_size == 0:
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()
