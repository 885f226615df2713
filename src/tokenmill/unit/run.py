"""run_unit: stages 2 to 5 on one unit, the only thing that engines run.

    blocks() ─────────> process() ────────────> accept() ─────────────> receipt
    read, decompress    parse, encode           concat, write, checkpoint
    one after another   any thread, any order   in the order of the blocks

An engine chooses how `process` is mapped over the blocks (`map`, or a pool that keeps the order); that is all it
can choose, so it cannot change a byte.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from time import thread_time
from typing import Protocol

from tokenmill.concat import Packer
from tokenmill.config import Tail
from tokenmill.encode import Encoder
from tokenmill.errors import InputChangedError, OutputError, UnreadableInputError
from tokenmill.messages import why
from tokenmill.output import layout
from tokenmill.output.schema import Checkpoint, Receipt
from tokenmill.read.block import READ_PLAINLY, ReadingWay
from tokenmill.read.formats import open_reader
from tokenmill.read.source import open_input
from tokenmill.records import EMPTY, PackedRows, Part, Partial, StageSeconds, Unit
from tokenmill.unit.checkpoint import Position, beginning
from tokenmill.unit.process import EncodedBlock, PartBlock, Processor
from tokenmill.unit.reported import Reported, Update
from tokenmill.unit.room import Room, Unlimited
from tokenmill.unit.setup import UnitSetup
from tokenmill.write.chunks import ChunkWriter
from tokenmill.write.npy import DraftChangedError
from tokenmill.write.rejects import RejectsWriter

log = logging.getLogger("tokenmill")


class OrderedMap(Protocol):
    """Like the built-in `map` over one iterable: results in the order of the items, however they were computed."""

    def __call__(
        self, function: Callable[[PartBlock], EncodedBlock], items: Iterable[PartBlock], /
    ) -> Iterator[EncodedBlock]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitHooks:
    """How an engine has its units run. Nothing of it can change a byte of the output.

    `ordered_map` applies parsing and encoding to blocks; `way` says how blocks are read; `room` is asked before a
    large one is encoded;
    `checkpoint_batches` makes a checkpoint after every batch of documents, not only after every chunk; `checkpointed`
    is called after each, and may raise to leave the unit there.
    """

    ordered_map: OrderedMap = map
    way: ReadingWay = READ_PLAINLY
    room: Room = field(default_factory=Unlimited)
    checkpoint_batches: bool = False
    checkpointed: Callable[[], None] = lambda: None


class _FileFailure(Exception):  # noqa: N818 - a signal to run_unit, not an error of its own
    def __init__(self, file: int, cause: Exception) -> None:
        self.file = file
        self.cause = cause


NO_HOOKS = UnitHooks()


def run_unit(setup: UnitSetup, unit: Unit, encoder: Encoder, update: Update, hooks: UnitHooks = NO_HOOKS) -> Receipt:
    """Read, encode, pack, write and commit one unit, from its last checkpoint on if there is one.

    A file that cannot be read leaves nothing behind: the unit is done again without it, and the receipt names it.
    """
    process = Processor(setup.options.special_tokens_in_text, setup.batch_size, setup.tokenizer, encoder, hooks.room)
    missing: dict[int, str] = {}
    while True:
        reported = Reported(update)
        try:
            if missing:
                setup.receipts.reset([unit])
            with _begin(setup, unit, reported.add, missing, hooks) as run:
                with closing(run.blocks()) as blocks, _closed_after(hooks.ordered_map(process, blocks)) as results:
                    for encoded in results:
                        run.accept(encoded)
                receipt = run.commit()
            reported.complete(unit.size)
            return receipt
        except DraftChangedError as error:
            log.warning("%s: unit %s starts over", error, unit.name)
            setup.receipts.reset([unit])
        except _FileFailure as failure:
            missing[failure.file] = str(failure.cause)
            reported.take_back()
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            where = setup.receipts.storage.describe()
            raise OutputError(
                f"cannot write unit {unit.name} to {where}: {why(error)}. Everything committed is safe: fix this and "
                f"{setup.resume_hint}"
            ) from error


@contextmanager
def _begin(
    setup: UnitSetup, unit: Unit, update: Update, missing: dict[int, str], hooks: UnitHooks
) -> Iterator[UnitRun]:
    """Clear away what was written after the last checkpoint, open what is continued, and report what was done."""
    receipts = setup.receipts
    start = receipts.checkpoint(unit) or beginning(unit, missing)
    receipts.remove_after(unit, start)
    with closing(RejectsWriter(receipts.storage, unit, start.rejects_bytes, start.rejects_xxh3)) as rejects:
        run = UnitRun(setup, unit, update, start, rejects, hooks)
        try:
            run.resume(start.partial)
            if start.ledger.records:
                update(start.ledger, 0, StageSeconds())
            yield run
        finally:
            run.abort()


@contextmanager
def _closed_after(results: Iterator[EncodedBlock]) -> Iterator[Iterator[EncodedBlock]]:
    """Whatever computes the results must have let go of the blocks before these are closed."""
    try:
        yield results
    finally:
        if isinstance(results, Generator):
            results.close()


class UnitRun:
    """The stages on one unit, and the state between them."""

    def __init__(
        self,
        setup: UnitSetup,
        unit: Unit,
        update: Update,
        start: Checkpoint,
        rejects: RejectsWriter,
        hooks: UnitHooks,
    ) -> None:
        self._setup = setup
        self._unit = unit
        self._update = update
        self._start = start
        self._rejects = rejects
        self._hooks = hooks
        self._position = Position(start)
        self._writer: ChunkWriter | None = None
        self._write_seconds = 0.0
        self._packer = Packer(
            seq_len=setup.options.seq_len,
            rows_per_chunk=setup.options.sequences_per_chunk,
            dtype=setup.tokenizer.dtype,
            eos=setup.tokenizer.eos_id,
            bos=setup.tokenizer.bos_id,
            skip=start.skip,
            used=start.partial.tokens,
        )

    def resume(self, partial: Partial) -> None:
        """Take up the chunk that was incomplete at the checkpoint."""
        if partial.tokens:
            self._writer = self._new_writer(partial)

    # read

    def blocks(self) -> Generator[PartBlock, None, None]:
        for index, part in enumerate(self._unit.parts):
            if index < self._start.part or part.file in self._start.missing:
                continue
            try:
                yield from self._part_blocks(index, part, self._start.offset if index == self._start.part else None)
            except (UnreadableInputError, InputChangedError) as error:
                raise _FileFailure(part.file, error) from error

    def _part_blocks(self, index: int, part: Part, offset: int | None) -> Iterator[PartBlock]:
        file = self._unit.files[index]
        way = replace(self._hooks.way, mapped=self._setup.mapped)
        with open_input(self._setup.inputs, file) as source:
            blocks = open_reader(source, file, part, self._setup.options, way).blocks(offset)
            while True:
                begun = thread_time()
                if (block := next(blocks, None)) is None:
                    break
                yield PartBlock(index, block, thread_time() - begun)
                del block  # or one of any size would be held while the next one is read

    # concat, write, checkpoint

    def accept(self, encoded: EncodedBlock) -> None:
        """Take the next block in order."""
        begun = thread_time()
        position, packer = self._position, self._packer
        position.begin_block(encoded.part, encoded.offset, packer.skipping - packer.carried, self._rejects)
        line = position.lines[encoded.part]
        self._rejects.append(encoded.rejects, encoded.part, line)
        file = self._unit.parts[encoded.part].file
        for batch in encoded.batches:
            for rows in packer.add(batch.tokens, file, batch.records + line, batch.document_ids):
                self._write(rows)
                position.into_block += len(rows.token_ids)
                if rows.full:
                    self._checkpoint()
            # Not while the incomplete row began before this block: a restart could not make it again from here.
            if self._hooks.checkpoint_batches and self._writer is not None and position.into_block >= 0:
                self._checkpoint(self._writer.sync())
        position.end_block(encoded.part, encoded.lines, encoded.ledger, encoded.rejects)
        write_seconds, self._write_seconds = self._write_seconds, 0.0
        pack_seconds = thread_time() - begun - write_seconds
        seconds = replace(encoded.stage_seconds, pack=pack_seconds, write=write_seconds)
        self._update(encoded.ledger, encoded.consumed, seconds)

    def _write(self, rows: PackedRows) -> None:
        begun = thread_time()
        if self._writer is None:
            self._writer = self._new_writer(EMPTY)
        self._writer.append(rows)
        if rows.full:
            self._close_chunk()
        self._write_seconds += thread_time() - begun

    def _new_writer(self, begun: Partial) -> ChunkWriter:
        return ChunkWriter(
            self._setup.receipts.storage,
            layout.chunk_name(self._unit, len(self._position.chunks)),
            dtype=self._setup.tokenizer.dtype,
            seq_len=self._setup.options.seq_len,
            with_ids=self._setup.options.id_field is not None,
            begun=begun,
        )

    def _checkpoint(self, partial: Partial = EMPTY) -> None:
        self._rejects.sync()
        self._setup.receipts.save_checkpoint(self._unit, self._position.checkpoint(partial))
        self._hooks.checkpointed()

    def _close_chunk(self) -> None:
        if self._writer is not None:
            self._position.chunks.append(self._writer.close())
            self._writer = None

    def commit(self) -> Receipt:
        """End the unit: the last row, the last chunk, the rejects, the receipt."""
        ledger, options = self._position.ledger, self._setup.options
        if options.tail is Tail.PAD:
            for rows in self._packer.pad(self._setup.tokenizer.pad_id):
                ledger.padding += rows.padding
                self._write(rows)
        else:
            ledger.dropped_tokens, ledger.dropped_documents = self._packer.drop()
        self._close_chunk()
        chunks = self._position.chunks
        ledger.rows = sum(c.rows for c in chunks)
        ledger.check(options.seq_len, f"unit {self._unit.name}")
        rejects_xxh3 = self._rejects.publish()
        receipt = Receipt(
            unit=self._unit.index,
            ledger=ledger,
            chunks=tuple(chunks),
            lines=tuple(self._position.lines),
            rejects_bytes=self._rejects.size,
            rejects_xxh3=rejects_xxh3,
            missing=self._start.missing,
            damaged=self._position.damaged,
        )
        self._setup.receipts.commit(self._unit, receipt)
        return receipt

    def abort(self) -> None:
        """Let go of an open chunk; what is not committed is forgotten."""
        if self._writer is not None:
            self._writer.abort()
