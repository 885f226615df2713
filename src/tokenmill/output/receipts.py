"""What an output knows of a unit: its receipt, its checkpoint, and whether what these stand for is there.

A unit is committed by its receipt, the last thing that is published of it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from tokenmill.errors import OutputError
from tokenmill.messages import printable
from tokenmill.output import layout
from tokenmill.output.schema import Checkpoint, Receipt, checkpoint_text, decode_exactly, read_checkpoint, to_text
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Partial, Unit
from tokenmill.storage.base import Stat, Storage
from tokenmill.write.npy import NpyWriter, npy_size

REMOVE = "Remove it to have that part done again, or start over with --overwrite"
START_OVER = "Start over with --overwrite"

log = logging.getLogger("tokenmill")

_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading JSON that somebody else wrote may raise."""
NOT_A_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors that will not pass: something else is in the place of a file."""


@contextmanager
def found_damaged(where: str, way_out: str = REMOVE) -> Iterator[None]:
    """Somebody else wrote into our files: say which, and what to do."""
    try:
        yield
    except OutputError:
        raise
    except _DAMAGE as error:
        raise OutputError(f"{where} is damaged ({printable(repr(error))}). {way_out}") from error
    except OSError as error:
        raise OutputError(f"{where} cannot be read: {error.strerror or error}. {advice(error, way_out)}") from error


def advice(error: Exception, way_out: str) -> str:
    """What to do about a file that cannot be read: nothing is to be removed for a disk that may be back soon."""
    will_pass = isinstance(error, OSError) and error.errno not in NOT_A_FILE
    return "Fix this and run the command again" if will_pass else way_out


@dataclass(frozen=True, slots=True)
class Receipts:
    """The units of one output. What a worker process is given of an output is this."""

    storage: Storage
    seq_len: int
    dtype: np.dtype[Any]

    def receipt(self, unit: Unit) -> Receipt | None:
        name = layout.receipt_file(unit)
        with found_damaged(self.storage.describe(name)):
            try:
                receipt = decode_exactly(self.storage.read(name), Receipt)
            except FileNotFoundError:
                return None
            if receipt.unit != unit.index or len(receipt.lines) != len(unit.parts):
                raise ValueError("it is of another unit")
            if any(damage.part >= len(unit.parts) for damage in receipt.damaged):
                raise ValueError("it knows of damage in a part that the unit does not have")
            if any(chunk.name != layout.chunk_name(unit, n) for n, chunk in enumerate(receipt.chunks)):
                raise ValueError("it names chunks that are not the unit's")
            return receipt

    def finished(self, unit: Unit) -> Receipt | None:
        """The receipt of a unit that need not be run again: it is whole, and so is what it stands for."""
        receipt = self.receipt(unit)
        if receipt is None or receipt.missing or not self._has_chunks(receipt.chunks):
            return None
        return receipt if self._has_rejects(unit, receipt.rejects_bytes) else None

    def commit(self, unit: Unit, receipt: Receipt) -> None:
        self.storage.publish(layout.receipt_file(unit), [to_text(receipt).encode()])
        self.remove_checkpoint(unit)

    def checkpoint(self, unit: Unit) -> Checkpoint | None:
        """Where an interrupted unit goes on, if what it had written is there.

        A unit that went on without a file begins again: the file may be readable by now.
        """
        checkpoint = self._whole_checkpoint(unit)
        if checkpoint is None or checkpoint.missing or not self._has_chunks(checkpoint.chunks):
            return None
        drafts = self._drafts_of(unit, checkpoint)
        self._unpublish(drafts)
        return checkpoint if self._has_drafts(drafts) else None

    def _whole_checkpoint(self, unit: Unit) -> Checkpoint | None:
        """What is stored, if it is as it was written; else it goes: the unit can always start over."""
        name = layout.checkpoint_file(unit)
        where = self.storage.describe(name)
        with found_damaged(where):
            try:
                data = self.storage.read(name)
            except FileNotFoundError:
                return None
        try:
            checkpoint = read_checkpoint(data)
            if checkpoint.unit != unit.index or len(checkpoint.lines) != len(unit.parts):
                raise ValueError("it is of another unit")
            return checkpoint
        except _DAMAGE as error:
            log.warning("%s is damaged (%s): unit %s starts over", where, printable(error), unit.name)
            self.remove_checkpoint(unit)
            return None

    def drop_damaged_checkpoints(self, units: Iterable[Unit]) -> None:
        """Before any worker looks at them, so that the warning is given once, by whom the user listens to."""
        for unit in units:
            self._whole_checkpoint(unit)

    def save_checkpoint(self, unit: Unit, checkpoint: Checkpoint) -> None:
        self.storage.publish(layout.checkpoint_file(unit), [checkpoint_text(checkpoint).encode()])

    def remove_checkpoint(self, unit: Unit) -> None:
        self.storage.remove([layout.checkpoint_file(unit)])

    def reset(self, units: Sequence[Unit]) -> None:
        """Undo units: receipts and checkpoints first, durably, so that none outlives its files."""
        if not units:
            return
        for unit in units:
            self.storage.remove([layout.receipt_file(unit), layout.checkpoint_file(unit)])
        self.storage.sync(layout.UNITS)
        for unit in units:
            self.storage.remove([layout.rejects_file(unit)])
            self._remove_chunks(unit, 0)
        names = {unit.name for unit in units}
        self.storage.remove_drafts([n for n, _ in self.storage.drafts() if layout.unit_of_draft(n) in names])

    def remove_after(self, unit: Unit, checkpoint: Checkpoint) -> None:
        """Remove what an interrupted run wrote of a unit after this checkpoint; drafts are cut off where they go on."""
        self._remove_chunks(unit, len(checkpoint.chunks))
        rejects = layout.rejects_file(unit)
        self.storage.remove([rejects])
        if not checkpoint.rejects_bytes:
            self.storage.remove_drafts([layout.base_name(rejects)])

    def _remove_chunks(self, unit: Unit, first: int) -> None:
        """Remove the unit's chunks from number `first` on: they were not committed."""
        for number in count(first):
            chunk = layout.chunk_name(unit, number)
            names = [layout.chunk_file(chunk, suffix) for suffix in layout.suffixes(with_ids=True)]
            found = [name for name in names if self._stat(name) is not None]
            if not found:
                return
            self.storage.remove(found)

    def _file_size(self, name: str) -> int | None:
        """None also if there is something other than a file."""
        found = self._stat(name)
        return found.size if found is not None and found.is_file else None

    def _stat(self, name: str) -> Stat | None:
        try:
            return self.storage.stat(name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None  # a name with a NUL, say, of a receipt that somebody else wrote

    def _has_chunks(self, chunks: Iterable[ChunkEntry]) -> bool:
        """Whether their files are there and have the right size: a cheap look, not a verification."""
        return all(map(self._has_chunk, chunks))

    def _has_chunk(self, chunk: ChunkEntry) -> bool:
        rows = npy_size(self.dtype, (chunk.rows, self.seq_len))
        documents = npy_size(SIDECAR_DTYPE, (chunk.documents,))
        sizes = [self._file_size(name) for name in layout.chunk_files(chunk)]
        # Of the ids the size is not known.
        return None not in sizes and sizes[:2] == [rows, documents]

    def _has_rejects(self, unit: Unit, size: int) -> bool:
        return size == (self._file_size(layout.rejects_file(unit)) or 0)

    def _drafts_of(self, unit: Unit, checkpoint: Checkpoint) -> dict[str, int]:
        """What a checkpoint counts on: the incomplete chunk and the rejects, each with the size that was counted."""
        chunk = layout.chunk_name(unit, len(checkpoint.chunks))
        sizes = {layout.chunk_file(chunk, s): size for s, size in self._partial_sizes(checkpoint.partial).items()}
        sizes[layout.rejects_file(unit)] = checkpoint.rejects_bytes
        return {name: size for name, size in sizes.items() if size}

    def _unpublish(self, names: Iterable[str]) -> None:
        """A run that died after it had published one of these, but before the next checkpoint, left it as a file."""
        drafts = {name for name, _ in self.storage.drafts()}
        for name in names:
            if layout.base_name(name) not in drafts:
                self.storage.unpublish(name)

    def _has_drafts(self, wanted: dict[str, int]) -> bool:
        drafts = dict(self.storage.drafts())
        return all(drafts.get(layout.base_name(name), -1) >= size for name, size in wanted.items())

    def _partial_sizes(self, partial: Partial) -> dict[str, int]:
        """How many bytes the drafts of an incomplete chunk must have."""
        return {
            layout.ROWS: NpyWriter.size_of(self.dtype, self.seq_len, partial.tokens),
            layout.DOCUMENTS: NpyWriter.size_of(SIDECAR_DTYPE, None, partial.documents),
            layout.IDS: partial.ids_bytes,
        }
