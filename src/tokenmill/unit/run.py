"""run_unit: stages 2 to 5 on one unit, the only thing that engines run.

    blocks() ─────────> process() ────────────> accept() ─────────────> receipt
    read, decompress    parse, encode           pack, write, checkpoint
    one after another   any thread, any order   in the order of the blocks

An engine chooses how `process` is mapped over the blocks (`map`, or a pool that keeps the order); that is all it
can choose, so it cannot change a byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from time import thread_time
from typing import BinaryIO, Protocol

import numpy as np

from tokenmill.concat import Packer
from tokenmill.config import Tail, resume_hint
from tokenmill.encode import Encoder
from tokenmill.errors import InputChangedError, OutputError, UnreadableInputError
from tokenmill.job.prepare import Job
from tokenmill.messages import printable
from tokenmill.output.store import Checkpoint, chunk_name
from tokenmill.read.reader import open_reader
from tokenmill.read.ring import Ring
from tokenmill.read.sniff import fingerprint_of
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Ledger, PackedRows, Part, Receipt, Reject, StageSeconds, Unit
from tokenmill.storage.local import sync_directory
from tokenmill.unit.process import Encoded, Processor, Source
from tokenmill.write.chunks import EMPTY, ChunkWriter, Partial
from tokenmill.write.npy import closed_on_failure

Update = Callable[[Ledger, int, StageSeconds], None]
"""Told of every block: what it added, how many input bytes and what CPU time it took. May raise to stop the unit."""


class OrderedMap(Protocol):
    """Like the built-in `map` over one iterable: results in the order of the items, however they were computed."""

    def __call__(self, function: Callable[[Source], Encoded], items: Iterable[Source], /) -> Iterator[Encoded]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitHooks:
    """How an engine has its units run. Nothing of it can change a byte of the output.

    `ordered_map` applies parsing and encoding to blocks; `ring` lends the buffers that blocks lie in;
    `checkpoint_batches` makes a checkpoint after every batch of documents, not only after every chunk; `checkpointed`
    is called after each, and may raise to leave the unit there.
    """

    ordered_map: OrderedMap = map
    ring: Ring | None = None
    checkpoint_batches: bool = False
    checkpointed: Callable[[], None] = lambda: None


class _FileFailure(Exception):  # noqa: N818 - a signal to run_unit, not an error of its own
    def __init__(self, file: int, cause: UnreadableInputError | InputChangedError) -> None:
        self.file = file
        self.cause = cause


NO_HOOKS = UnitHooks()


def run_unit(job: Job, unit: Unit, encoder: Encoder, update: Update, hooks: UnitHooks = NO_HOOKS) -> Receipt:
    """Read, encode, pack, write and commit one unit, from its last checkpoint on if there is one.

    A file that cannot be read leaves nothing behind: the unit is done again without it, and the receipt names it.
    """
    process = Processor(job.config, job.tokenizer, encoder)
    missing: dict[int, str] = {}
    while True:
        counted = _Counted(update)
        run = None
        try:
            if missing:
                job.store.reset([unit])
            run = UnitRun(job, unit, counted.add, missing, hooks)
            with closing(run.blocks()) as blocks, _closed_after(hooks.ordered_map(process, blocks)) as results:
                for encoded in results:
                    run.accept(encoded)
            receipt = run.commit()
            counted.complete(unit.size)
            return receipt
        except _FileFailure as failure:
            missing[failure.file] = str(failure.cause)
            counted.take_back()
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise OutputError(
                f"cannot write unit {unit.name} to {printable(job.store.root)}: {error.strerror or error}. Everything "
                f"committed is safe: mend this and {resume_hint(job.config)}"
            ) from error
        finally:
            if run is not None:
                run.close()


@contextmanager
def _closed_after(results: Iterator[Encoded]) -> Iterator[Iterator[Encoded]]:
    """Whatever computes the results must have let go of the blocks before these are closed."""
    try:
        yield results
    finally:
        if isinstance(results, Generator):
            results.close()


class _Counted:
    """What a unit has reported so far, so that it can be completed or taken back."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._ledger = Ledger()
        self._bytes = 0

    def add(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self._ledger.add(ledger)
        self._bytes += consumed
        self._update(ledger, consumed, stage_seconds)

    def complete(self, total: int) -> None:
        self._update(Ledger(), total - self._bytes, StageSeconds())

    def take_back(self) -> None:
        self._update(-self._ledger, -self._bytes, StageSeconds())


class UnitRun:
    """The stages on one unit, and the state between them."""

    def __init__(self, job: Job, unit: Unit, update: Update, missing: dict[int, str], hooks: UnitHooks) -> None:
        self._job = job
        self._unit = unit
        self._update = update
        self._missing = missing
        self._hooks = hooks
        self._with_ids = job.config.id_field is not None
        tokenizer = job.tokenizer
        start = job.checkpoint(unit) or Checkpoint(
            part=0,
            offset=None,
            skip=0,
            ledger=Ledger(),
            chunks=(),
            lines=(0,) * len(unit.parts),
            rejects_bytes=0,
            missing=missing,
        )
        self._start = self._mark = start
        self._ledger = Ledger()
        self._ledger.add(start.ledger)
        self._lines = list(start.lines)
        self._chunks: list[ChunkEntry] = list(start.chunks)
        self._packer = Packer(
            seq_len=job.config.seq_len,
            rows_per_chunk=job.config.sequences_per_chunk,
            dtype=tokenizer.dtype,
            eos=tokenizer.eos_id,
            bos=tokenizer.bos_id,
            skip=start.skip,
            used=start.partial.tokens,
        )
        job.store.remove_chunks(unit, len(self._chunks))
        self._rejects = _open_rejects(job, unit, start.rejects_bytes)
        with closed_on_failure(self._rejects.close):
            self._writer: ChunkWriter | None = self._new_writer(start.partial) if start.partial.tokens else None
        self._into_block = 0
        self._writing = 0.0
        if start.ledger.records:
            with closed_on_failure(self.close):
                update(start.ledger, 0, StageSeconds())

    # read

    def blocks(self) -> Generator[Source, None, None]:
        for index, part in enumerate(self._unit.parts):
            if index < self._start.part or part.file in self._missing:
                continue
            try:
                yield from self._part_blocks(index, part, self._start.offset if index == self._start.part else None)
            except OSError as error:
                if isinstance(error, UnreadableInputError):
                    raise _FileFailure(part.file, error) from error
                name = printable(self._unit.files[index].name)
                problem = f"{name} cannot be read: {error.strerror or error}"
                raise _FileFailure(part.file, UnreadableInputError(problem)) from error
            except InputChangedError as error:
                raise _FileFailure(part.file, error) from error

    def _part_blocks(self, index: int, part: Part, offset: int | None) -> Iterator[Source]:
        file = self._unit.files[index]
        path = self._job.plan.root / file.name
        if file.problem:
            raise UnreadableInputError(f"{printable(file.name)} cannot be read: {file.problem}")
        with path.open("rb") as opened:
            before = os.fstat(opened.fileno())
            if before.st_size != file.size or fingerprint_of(opened, before.st_size) != file.fingerprint:
                raise InputChangedError(
                    f"{printable(file.name)} changed since the job was planned: restore it, or use --overwrite"
                )
            reader = open_reader(path, file, part, self._job.config, self._hooks.ring)
            blocks = reader.blocks(offset)
            while True:
                begun = thread_time()
                if (block := next(blocks, None)) is None:
                    break
                yield Source(index, reader, block, thread_time() - begun)
            after = path.stat()
            if (before.st_ino, before.st_size, before.st_mtime_ns) != (after.st_ino, after.st_size, after.st_mtime_ns):
                raise InputChangedError(
                    f"{printable(file.name)} changed while it was read: restore it, or use --overwrite"
                )

    # pack, write, checkpoint

    def accept(self, encoded: Encoded) -> None:
        """Take the next block in order."""
        begun = thread_time()
        line = self._lines[encoded.part]
        self._mark = replace(
            self._start,
            part=encoded.part,
            offset=encoded.offset,
            ledger=replace(self._ledger, rejects_by_reason=dict(self._ledger.rejects_by_reason)),
            lines=tuple(self._lines),
            rejects_bytes=self._rejects.tell(),
        )
        self._into_block = self._packer.skipping - self._packer.carried
        for reject in encoded.rejects:
            self._write_reject(encoded.part, line, reject)
        self._rejects.flush()
        file = self._unit.parts[encoded.part].file
        for batch in encoded.batches:
            docs = np.empty(len(batch.numbers), SIDECAR_DTYPE)
            docs["record"] = batch.numbers + line
            docs["file"] = file
            for piece in self._packer.add(batch.tokens, docs, batch.ids):
                self._write(piece)
                self._into_block += len(piece.tokens)
                if piece.full:
                    self._checkpoint()
            # Not while the incomplete row began before this block: a restart could not make it again from here.
            if self._hooks.checkpoint_batches and self._writer is not None and self._into_block >= 0:
                self._checkpoint(self._writer.sync())
        self._lines[encoded.part] += encoded.lines
        self._ledger.add(encoded.ledger)
        encoded.stage_seconds.write, self._writing = self._writing, 0.0
        encoded.stage_seconds.pack = thread_time() - begun - encoded.stage_seconds.write
        self._update(encoded.ledger, encoded.consumed, encoded.stage_seconds)

    def _write(self, piece: PackedRows) -> None:
        begun = thread_time()
        if self._writer is None:
            self._writer = self._new_writer(EMPTY)
        self._writer.append(piece)
        if piece.full:
            self._close_chunk()
        self._writing += thread_time() - begun

    def _new_writer(self, begun: Partial) -> ChunkWriter:
        store, dtype, seq_len = self._job.store, self._job.tokenizer.dtype, self._job.config.seq_len
        name = chunk_name(self._unit, len(self._chunks))
        return ChunkWriter(name, store.chunks, store.temporary, dtype, seq_len, self._with_ids, begun)

    def _checkpoint(self, partial: Partial = EMPTY) -> None:
        """A restart reads on at the start of this block and passes over what is written of it."""
        self._sync_rejects()
        checkpoint = replace(self._mark, skip=self._into_block, chunks=tuple(self._chunks), partial=partial)
        self._job.store.save_checkpoint(self._unit, checkpoint)
        self._hooks.checkpointed()

    def _close_chunk(self) -> None:
        if self._writer is not None:
            self._chunks.append(self._writer.close())
            self._writer = None

    def _write_reject(self, part: int, line: int, reject: Reject) -> None:
        entry = {
            "part": part,
            "record": line + reject.record,
            "offset": reject.offset,
            "reason": reject.reason,
            "detail": reject.detail,
            "records": reject.records,
            "head": reject.head.decode("utf-8", "backslashreplace"),
        }
        self._rejects.write(json.dumps(entry).encode() + b"\n")

    def _sync_rejects(self) -> None:
        self._rejects.flush()
        os.fsync(self._rejects.fileno())

    def commit(self) -> Receipt:
        """End the unit: the last row, the last chunk, the receipt."""
        if self._job.config.tail is Tail.PAD:
            for piece in self._packer.pad(self._job.tokenizer.pad_id):
                self._ledger.padding += piece.padding
                self._write(piece)
        else:
            self._ledger.dropped_tokens, self._ledger.dropped_documents = self._packer.drop()
        self._close_chunk()
        self._sync_rejects()
        self._ledger.rows = sum(c.rows for c in self._chunks)
        self._ledger.check(self._job.config.seq_len, f"unit {self._unit.name}")
        receipt = Receipt(
            unit=self._unit.index,
            ledger=self._ledger,
            chunks=tuple(self._chunks),
            lines=tuple(self._lines),
            rejects_bytes=self._rejects.tell(),
            rejects_xxh3=self._job.store.rejects_checksum(self._unit),
            missing=self._missing,
        )
        if receipt.rejects_xxh3 is None:
            self._job.store.rejects_path(self._unit).unlink()
        else:
            sync_directory(self._job.store.units)  # the name of the list, before a receipt tells of it
        self._job.store.commit(self._unit, receipt)
        return receipt

    def close(self) -> None:
        """Let go of open files; what is not committed is forgotten."""
        with suppress(OSError):  # there may be no room for its last lines, which do not count any more
            self._rejects.close()
        if self._writer is not None:
            self._writer.abort()


def _open_rejects(job: Job, unit: Unit, size: int) -> BinaryIO:
    """The unit's rejects, cut back to what the checkpoint knows of."""
    path = job.store.rejects_path(unit)
    path.touch()
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file
