"""Arrow: the file format and the streaming format, record batch by record batch.

    file     footer ─> record batches, by number; without a footer, the stream that is inside of it
    stream   record batches one after another, until the end marker; behind it, perhaps another stream

Arrow trusts what it reads: an offset that leads out of its buffer ends the process. So every batch is checked before a
value of it is touched.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config import ReadOptions
from tokenmill.read.block import Block
from tokenmill.read.ipc import MAGIC, MARKER, STREAM_START, Footer, Frame, footer_of, frame_at
from tokenmill.read.rows import (
    BATCH_BYTES,
    DAMAGE,
    MAX_BATCH_ROWS,
    RowsBlock,
    arrow_file,
    broken_rows,
    check_column,
    columns_to_read,
    leaf_of,
    raise_if_unreadable,
)
from tokenmill.records import NO_LOSS, Loss, Part, Reason
from tokenmill.storage.base import Reading, Source

MAX_GAP_BYTES = 64  # the end marker of the stream, and padding


@dataclass(frozen=True, slots=True)
class _Batch:
    """A record batch, unchecked, and how much of the file it stands for."""

    batch: pa.RecordBatch
    consumed: int

    @property
    def rows(self) -> int:
        return self.batch.num_rows


@dataclass(frozen=True, slots=True)
class _Damage:
    """A place where a record batch cannot be read. It counts as one row if the number of its rows is unknown."""

    detail: str
    reason: Reason = Reason.CORRUPT_FILE
    rows: int = 1
    consumed: int = 0
    loss: Loss = NO_LOSS


_Found = _Batch | _Damage


class ArrowReader:
    """Reads the record batches of one part. Parts count record batches, of which only the file format has an index."""

    def __init__(self, source: Source, part: Part, options: ReadOptions) -> None:
        self._source = source
        self._part = part
        self._options = options

    def blocks(self, offset: int | None) -> Iterator[Block]:
        row, wanted = 0, offset or 0
        with arrow_file(self._source) as opened:
            for found in self._batches(opened):
                if row + found.rows > wanted:
                    yield from self._batch_blocks(found, row, wanted)
                row += found.rows

    # rows

    def _batch_blocks(self, found: _Found, first: int, offset: int) -> Iterator[Block]:
        """The rows of a record batch from row `offset` of the part on, in blocks."""
        if isinstance(found, _Damage):
            yield broken_rows(self._options, first, found.rows, found.detail, found.consumed, found.reason, found.loss)
            return
        columns, problem = columns_to_read(found.batch.schema, self._options)
        if problem:
            yield broken_rows(self._options, first, found.rows, problem, found.consumed, Reason.NO_TEXT_FIELD)
            return
        try:
            found.batch.validate()
            leaves = [leaf_of(found.batch, name) for name in columns]
            for leaf in leaves:
                check_column(leaf)
        except DAMAGE as error:
            detail = f"the record batch is damaged: {error}"
            yield broken_rows(self._options, first, found.rows, detail, found.consumed, loss=Loss(found.rows))
            return
        batch = pa.RecordBatch.from_arrays(leaves, columns)
        for start, end in _cut(leaves[0], max(0, offset - first)):
            share = found.consumed * (end - start) // found.rows
            yield RowsBlock(first + start, share, batch.slice(start, end - start), self._options)

    # record batches

    def _batches(self, opened: pa.NativeFile) -> Iterator[_Found]:
        if opened.read(len(MAGIC)) != MAGIC:
            yield from self._streams(opened)
            return
        try:
            reader = pa.ipc.open_file(opened)
            reader = pa.ipc.open_file(opened, options=self._only(reader.schema))
        except DAMAGE as error:
            raise_if_unreadable(error)
            # The file is a stream with a footer behind it, so nothing is lost with the footer.
            if (yield from self._stream(opened, STREAM_START)) is not None:
                detail = f"the footer cannot be read: {error}. The record batches before it were read"
                reason = Reason.CORRUPT_FILE if self._ends_whole(opened) else Reason.TRUNCATED_FILE
                yield _Damage(detail, reason, loss=Loss(rows=0))
            return
        yield from self._indexed(reader)

    def _indexed(self, reader: Any) -> Iterator[_Found]:
        """The record batches of a file that has its footer: one that is damaged leaves the others alone."""
        count = reader.num_record_batches
        consumed = self._source.stat.size // max(1, count)
        footer = footer_of(self._source) or Footer((), 0)
        end = count if self._part.end is None else self._part.end
        for number in range(self._part.start, end):
            frame = frame_at(self._source, footer.batches[number]) if number < len(footer.batches) else None
            found: _Found
            try:
                self._check_end(frame)
                found = _Batch(reader.get_batch(number), consumed)
            except DAMAGE as error:
                raise_if_unreadable(error)
                detail = f"record batch {number} cannot be read: {error}"
                found = _Damage(detail, rows=_rows(frame), consumed=consumed, loss=_loss(frame, consumed))
            yield found
        if end == count and footer.gap > MAX_GAP_BYTES:  # two files, one behind the other, have a footer of one
            detail = f"{footer.gap} bytes before the footer belong to none of its record batches"
            yield _Damage(detail, loss=Loss(unread_bytes=footer.gap))

    def _streams(self, opened: pa.NativeFile) -> Iterator[_Found]:
        """One stream, and those that somebody put behind it."""
        end: int | None = 0
        while end is not None:
            end = yield from self._stream(opened, end)
            if end == self._source.stat.size:
                return

    def _stream(self, opened: pa.NativeFile, start: int) -> Generator[_Found, None, int | None]:
        """The record batches of a stream; where it ends, or None where it breaks off and nothing more can be read."""
        frame = frame_at(self._source, start)
        try:
            self._check_end(frame)
            opened.seek(start)
            schema = pa.ipc.open_stream(opened).schema
            opened.seek(start)
            reader = pa.ipc.open_stream(opened, options=self._only(schema))
        except DAMAGE as error:
            raise_if_unreadable(error)
            reason = self._reason(opened, frame)  # before the source is read, which may be what is opened
            if not self._begins(start):
                reason = Reason.CORRUPT_FILE
            loss = Loss(unread_bytes=self._source.stat.size - start)
            yield _Damage(f"no Arrow stream begins at byte {start}: {error}", reason, loss=loss)
            return None
        place = opened.tell()
        while True:
            frame = self._batch_frame(place)
            try:
                self._check_end(frame)
                found: _Found = _Batch(reader.read_next_batch(), opened.tell() - place)
            except StopIteration:
                if opened.tell() > place:
                    return opened.tell()
                detail = "the stream has no end marker: the file was cut off"
                yield _Damage(detail, Reason.TRUNCATED_FILE, loss=Loss(rows=0))
                return None
            except DAMAGE as error:
                raise_if_unreadable(error)
                detail, end = f"the record batch at byte {place} cannot be read: {error}", opened.tell()
                if frame is None or frame.end != end:
                    loss = Loss(frame.rows if frame else None, self._source.stat.size - place)
                    yield _Damage(detail, self._reason(opened, frame), _rows(frame), loss=loss)
                    return None
                found = _Damage(detail, rows=_rows(frame), consumed=end - place, loss=_loss(frame, end - place))
            yield found
            place = opened.tell()

    def _batch_frame(self, place: int) -> Frame | None:
        """The frame of the next record batch, behind the dictionaries it may need; or of one that is too long."""
        frame = frame_at(self._source, place)
        while frame is not None and frame.rows is None and frame.end <= self._source.stat.size:
            frame = frame_at(self._source, frame.end)
        return frame

    def _check_end(self, frame: Frame | None) -> None:
        size = self._source.stat.size
        if frame is not None and frame.end > size:
            raise ValueError(f"it would end at byte {frame.end} of a file of {size} bytes")

    def _begins(self, start: int) -> bool:
        """Whether it looks as if a stream, or a file, was to begin here."""
        self._source.seek(start)
        begin = self._source.read(len(MARKER))
        return MARKER.startswith(begin) or MAGIC.startswith(begin)

    def _ends_whole(self, opened: pa.NativeFile) -> bool:
        opened.seek(max(0, self._source.stat.size - len(MAGIC)))
        return bytes(opened.read()) == MAGIC

    def _reason(self, opened: pa.NativeFile, frame: Frame | None) -> Reason:
        """Whether the file should go on where it ends."""
        is_cut = opened.tell() >= self._source.stat.size or (frame and frame.end > self._source.stat.size)
        return Reason.TRUNCATED_FILE if is_cut else Reason.CORRUPT_FILE

    def _only(self, schema: pa.Schema) -> pa.ipc.IpcReadOptions:
        """Read, and decompress, no other columns than those of the text and the id."""
        columns, _ = columns_to_read(schema, self._options)
        names = schema.names
        fields = {names.index(c if c in names else c.split(".")[0]) for c in columns}
        return pa.ipc.IpcReadOptions(use_threads=False, included_fields=sorted(fields))


def _rows(frame: Frame | None) -> int:
    """How many rows are lost with a record batch; where nobody knows, one."""
    return 1 if frame is None or frame.rows is None else frame.rows


def _loss(frame: Frame | None, size: int) -> Loss:
    """What is lost with a record batch of so many bytes: its rows, if anybody knows them."""
    return Loss(unread_bytes=size) if frame is None or frame.rows is None else Loss(frame.rows)


def _cut(column: Any, start: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows from `start` on that make blocks of about BATCH_BYTES of text."""
    sizes = _text_bytes(column)
    while start < len(column):
        ends = np.cumsum(sizes[start : start + MAX_BATCH_ROWS])
        count = max(1, int(np.searchsorted(ends, BATCH_BYTES, side="right")))
        yield start, start + count
        start += count


def _text_bytes(column: Any) -> Any:
    """How many bytes each value has by itself: `nbytes` counts a dictionary in full for every slice of it."""
    kind, count = column.type, len(column)
    if isinstance(column, pa.ExtensionArray):
        return _text_bytes(column.storage)
    if pa.types.is_dictionary(kind):
        sizes = _text_bytes(column.dictionary)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return np.take(sizes, indices, mode="clip") if len(sizes) else np.zeros(count, np.int64)
    if pa.types.is_run_end_encoded(kind):
        return np.broadcast_to(_text_bytes(column.values).max(initial=0), count)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(column.buffers()[1], np.int32, 4 * count, 16 * column.offset)
        return views[::4].astype(np.int64)  # each begins with its length
    if kind in _BINARY:
        return pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.broadcast_to(column.nbytes // max(1, count), count)


_BINARY = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


# for planning


def count_record_batches(inputs: Reading, name: str) -> int:
    """How many record batches a file has an index of; 1 for a stream, and where it cannot be told."""
    try:
        with inputs.open(name) as source, arrow_file(source) as opened:
            return int(pa.ipc.open_file(opened).num_record_batches)
    except DAMAGE:
        return 1


def schema_of(inputs: Reading, name: str) -> pa.Schema | None:
    """The columns of a file; None where they cannot be told, reading it will say why."""
    try:
        with inputs.open(name) as source, arrow_file(source) as opened:
            is_file = opened.read(len(MAGIC)) == MAGIC
            opened.seek(0)
            return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(opened).schema
    except DAMAGE:
        return None
