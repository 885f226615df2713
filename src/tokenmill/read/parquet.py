"""Parquet: the text column, a few rows at a time, never a row group or the file as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config import ReadOptions
from tokenmill.read.block import Block
from tokenmill.read.footer import bytes_of_another_file
from tokenmill.read.rows import (
    BATCH_BYTES,
    DAMAGE,
    MAX_BATCH_ROWS,
    RowsBlock,
    arrow_file,
    broken_rows,
    columns_to_read,
    halves,
    raise_if_unreadable,
)
from tokenmill.records import Loss, Part, Reason
from tokenmill.storage.base import Reading, Source

MAX_BATCH_BYTES = 16 << 20  # no mutant: only speed and memory depend on it
PROBE_ROWS = 16  # no mutant: only speed and memory depend on it
# Without a buffer of its own, Arrow reads the column of a row group as a whole.
BUFFER_BYTES = 1 << 20  # no mutant: only speed and memory depend on it


class ParquetReader:
    """Reads the row groups of one part."""

    def __init__(self, source: Source, part: Part, options: ReadOptions) -> None:
        self._source = source
        self._part = part
        self._options = options
        self._row_bytes = 0
        """Of the row group before: looking into each one first means to decompress its first page twice."""

    def blocks(self, offset: int | None) -> Iterator[Block]:
        size = self._source.stat.size
        with arrow_file(self._source) as opened:
            try:
                file = pq.ParquetFile(
                    opened,
                    pre_buffer=False,
                    memory_map=False,
                    buffer_size=BUFFER_BYTES,
                    page_checksum_verification=True,  # of pages that have one; most writers of today give it
                )
            except DAMAGE as error:
                raise_if_unreadable(error)
                detail, loss = f"the Parquet footer cannot be read: {error}", Loss(unread_bytes=size)
                yield broken_rows(self._options, 0, 0, detail, size, loss=loss)
                return
            with file:
                row = 0
                end = file.num_row_groups if self._part.end is None else self._part.end
                for group in range(self._part.start, end):
                    rows = _rows(file, group)
                    if offset is None or row + rows > offset:
                        yield from self._group(file, group, row, offset or 0)
                    row += rows
                if end == file.num_row_groups and row >= (offset or 0):
                    yield from self._another_file(row)

    def _another_file(self, row: int) -> Iterator[Block]:
        """A reject behind the last row, if the footer belongs to a file that begins only somewhere in this one."""
        if foreign := bytes_of_another_file(self._source):
            detail = (
                f"the footer belongs to a Parquet file that begins at byte {foreign}. Two files were put one behind "
                "the other: split them there"
            )
            yield broken_rows(self._options, row, 1, detail, 0, loss=Loss(unread_bytes=foreign))

    def _group(self, file: pq.ParquetFile, group: int, first: int, offset: int) -> Iterator[Block]:
        """The rows of one row group from row `offset` of the part on; where it breaks, the rest is rejected."""
        rows = _rows(file, group)
        consumed = self._source.stat.size // max(1, file.num_row_groups)
        columns, absent = columns_to_read(file.schema_arrow, self._options)
        if absent:
            if rows:
                yield broken_rows(self._options, first, rows, absent, consumed, Reason.NO_TEXT_FIELD)
            return
        row = first
        problem: Exception | None = None
        # How far rows can be had depends on how many are asked for at once, which depends on where reading began. So
        # behind the last good batch they are asked for one by one: a job that is continued must lose the same rows.
        for count in (self._batch_rows, _one_by_one):
            at = first
            try:
                for piece in self._pieces(file, group, columns, count):
                    if (skip := max(0, min(max(row, offset) - at, piece.num_rows))) < piece.num_rows:
                        share = consumed * (piece.num_rows - skip) // max(1, rows)
                        yield RowsBlock(at + skip, share, piece.slice(skip), self._options)
                    at += piece.num_rows
                    row = max(row, at)
                return
            except DAMAGE as error:
                raise_if_unreadable(error)
                problem = error
        lost, detail = first + rows - row, f"row group {group} cannot be read: {problem}"
        yield broken_rows(self._options, row, lost, detail, 0, loss=Loss(lost or None))

    def _pieces(
        self, file: pq.ParquetFile, group: int, columns: list[str], count: Callable[..., int]
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a row group, a block at a time; raises unless there are as many as the footer declares."""
        rows, held, done = _rows(file, group), 0, 0
        for batch in file.iter_batches(count(file, group, columns), [group], columns, use_threads=False):
            held += batch.nbytes
            done += batch.num_rows
            if done > rows:
                raise ValueError(f"it holds more than the {rows:,} rows the footer declares")
            yield from halves(batch, BATCH_BYTES)
        if done < rows:
            raise ValueError(f"it holds {done:,} of the {rows:,} rows the footer declares")
        self._row_bytes = held // max(1, rows)

    def _batch_rows(self, file: pq.ParquetFile, group: int, columns: list[str]) -> int:
        """How many rows make about a block, by the texts of the row group before or of the first few rows.

        Those may be short ones, so the size of the whole row group bounds it. The size of the text column alone would
        be closer, but asking pyarrow for a column's metadata ends the process if they are damaged ("terminate called
        after throwing an instance of 'parquet::ParquetException'").
        """
        average = max(1, file.metadata.row_group(group).total_byte_size // max(1, _rows(file, group)))
        if not self._row_bytes:
            probe = next(file.iter_batches(PROBE_ROWS, [group], columns, use_threads=False), None)
            self._row_bytes = probe.nbytes // max(1, probe.num_rows) if probe is not None else 0
        return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(1, self._row_bytes), MAX_BATCH_BYTES // average))


def _one_by_one(*_: object) -> int:
    return 1


def _rows(file: pq.ParquetFile, group: int) -> int:
    return max(0, int(file.metadata.row_group(group).num_rows))


def count_row_groups(inputs: Reading, name: str) -> int:
    """How many row groups a file has; 1 if it cannot be told, reading it will say why."""
    try:
        with inputs.open(name) as source, arrow_file(source) as file:
            return int(pq.read_metadata(file).num_row_groups)
    except DAMAGE:
        return 1


def schema_of(inputs: Reading, name: str) -> pa.Schema | None:
    """The columns of a file; None where they cannot be told, reading it will say why."""
    try:
        with inputs.open(name) as source, arrow_file(source) as file:
            return pq.read_schema(file)
    except DAMAGE:
        return None
