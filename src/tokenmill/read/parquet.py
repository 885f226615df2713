"""Parquet: the text column, a few rows at a time, never a row group or the file as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Arrow's own allocators give pages back to the system and ask for them again with every block: a tenth of a run.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.config import ReadOptions
from tokenmill.read.block import Block
from tokenmill.read.jsonl import to_json
from tokenmill.records import PREVIEW_BYTES, Documents, Part, Reason, Reject
from tokenmill.storage.base import Reading, Source

BATCH_BYTES = 1 << 20  # no mutant: only speed and memory depend on it
MAX_BATCH_ROWS = 1024  # no mutant: only speed and memory depend on it
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
        with _arrow_file(self._source) as opened:
            try:
                file = pq.ParquetFile(opened, pre_buffer=False, memory_map=False, buffer_size=BUFFER_BYTES)
            except (pa.ArrowException, OSError, ValueError) as error:
                _raise_if_unreadable(error)
                yield self._broken(0, 0, f"the Parquet footer cannot be read: {error}", size)
                return
            with file:
                row = 0
                end = file.num_row_groups if self._part.end is None else self._part.end
                for group in range(self._part.start, end):
                    rows = _rows(file, group)
                    if offset is None or row + rows > offset:
                        yield from self._group(file, group, row, offset or 0)
                    row += rows

    def _group(self, file: pq.ParquetFile, group: int, first: int, offset: int) -> Iterator[Block]:
        """The rows of one row group from row `offset` of the part on; where it breaks, the rest is rejected."""
        rows = _rows(file, group)
        consumed = self._source.stat.size // max(1, file.num_row_groups)
        columns, problem = self._columns(file)
        if problem:
            yield self._broken(first, rows, problem, consumed, Reason.NO_TEXT_FIELD)
            return
        row = first
        try:
            held = 0
            count = self._batch_rows(file, group, columns)
            for batch in file.iter_batches(count, [group], columns, use_threads=False):
                held += batch.nbytes
                if row + batch.num_rows > first + rows:
                    raise ValueError(f"it holds more than the {rows:,} rows the footer declares")
                for piece in _halves(batch, BATCH_BYTES):
                    if (skip := max(0, min(offset - row, piece.num_rows))) < piece.num_rows:
                        share = consumed * (piece.num_rows - skip) // max(1, rows)
                        yield RowsBlock(row + skip, share, piece.slice(skip), self._options)
                    row += piece.num_rows
            self._row_bytes = held // max(1, rows)
            if row < first + rows:
                raise ValueError(f"it holds {row - first:,} of the {rows:,} rows the footer declares")
        except (pa.ArrowException, OSError, ValueError) as error:
            _raise_if_unreadable(error)
            yield self._broken(row, first + rows - row, f"row group {group} cannot be read: {error}", 0)

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

    def _columns(self, file: pq.ParquetFile) -> tuple[list[str], str | None]:
        schema = file.schema_arrow
        text_field, id_field = self._options.text_field, self._options.id_field
        if not has_field(schema, text_field):
            known = ", ".join(schema.names[:12])
            return [], f"there is no column {text_field!r}; the columns are: {known}"
        return [text_field, *([id_field] if id_field is not None and has_field(schema, id_field) else [])], None

    def _broken(
        self, row: int, rows: int, detail: str, consumed: int, reason: Reason = Reason.CORRUPT_FILE
    ) -> BrokenRowsBlock:
        """A reject in place of so many rows; of none, it still counts as one record that was lost."""
        reject = Reject(record=0, offset=row, reason=reason, detail=detail, records=max(1, rows))
        return BrokenRowsBlock(row, consumed, rows, reject, with_ids=self._options.id_field is not None)


@dataclass(frozen=True, slots=True)
class BrokenRowsBlock(Block):
    """Rows that could not be read."""

    rows: int
    reject: Reject
    with_ids: bool

    def parse(self) -> Documents:
        ids: list[bytes] | None = [] if self.with_ids else None
        records = self.reject.records
        return Documents(
            texts=[], numbers=[], document_ids=ids, records=records, lines=self.rows, rejects=[self.reject]
        )


@dataclass(frozen=True, slots=True)
class RowsBlock(Block):
    """A few rows."""

    batch: pa.RecordBatch
    options: ReadOptions

    def parse(self) -> Documents:
        count = self.batch.num_rows
        result = Documents(texts=[], numbers=[], document_ids=None, records=count, lines=count)
        column = leaf_of(self.batch, self.options.text_field)
        numbers: list[int] = []
        for number, value in enumerate(raw_values(column)):
            parsed = self._text(value)
            if isinstance(parsed, str):
                if parsed:
                    result.texts.append(parsed)
                    numbers.append(number)
                else:
                    result.empty += 1
            else:
                reason, detail, head = parsed
                result.rejects.append(
                    Reject(record=number, offset=self.offset + number, reason=reason, detail=detail, head=head)
                )
        result.numbers = numbers
        result.document_ids = self._ids(numbers)
        return result

    def _ids(self, numbers: list[int]) -> list[bytes] | None:
        id_field = self.options.id_field
        if id_field is None:
            return None
        if not has_field(self.batch.schema, id_field):
            return [b"null"] * len(numbers)
        values = _salvaged(leaf_of(self.batch, id_field), lambda column: _times_as_text(column).to_pylist())
        return [b"null" if isinstance(values[n], Exception) else to_json(values[n]) for n in numbers]

    def _text(self, value: object) -> str | tuple[Reason, str, bytes]:
        if isinstance(value, bytes):
            if len(value) > (limit := self.options.max_document_bytes):
                detail = f"the text has {len(value):,} bytes, more than --max-document-bytes {limit:,}"
                return Reason.TOO_LARGE, detail, value[:PREVIEW_BYTES]
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                detail = f"{error.reason} at byte {error.start} of the text"
                return Reason.INVALID_UTF8, detail, value[:PREVIEW_BYTES]
        if isinstance(value, Exception):
            return Reason.CORRUPT_FILE, f"the value cannot be read: {value}", b""
        kind = "null" if value is None else f"a {type(value).__name__}"
        head = b"" if value is None else str(value)[:PREVIEW_BYTES].encode()
        return Reason.TEXT_NOT_A_STRING, f"the text is {kind}, not a string", head


def _raise_if_unreadable(error: Exception) -> None:
    """Arrow reports corrupt data as OSError too; only a failed system call has an error number."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def raw_values(column: Any) -> list[Any]:
    """The column as bytes where it holds text: decoding happens row by row, so that one bad row costs one row."""
    return _salvaged(column, lambda column: _as_binary(column).to_pylist())


def _salvaged(column: Any, convert: Callable[[Any], list[Any]]) -> list[Any]:
    """The values of a column; where one cannot be had, the exception in its place."""
    try:
        return convert(column)
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        if len(column) == 1:
            return [error]
        return [value for n in range(len(column)) for value in _salvaged(column.slice(n, 1), convert)]


def _times_as_text(column: Any) -> Any:
    """Python has no nanoseconds and no year 10,000; pyarrow would ask pandas, which may be there or not."""
    if not pa.types.is_temporal(column.type):
        return column
    return column.cast(pa.int64() if pa.types.is_duration(column.type) else pa.string())


def _as_binary(column: Any) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        column = column.view(pa.large_binary())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = column.view(pa.binary())
    elif pa.types.is_string_view(kind):
        column = column.cast(pa.binary_view())
    return column


def has_field(schema: pa.Schema, path: str) -> bool:
    """Whether a column, or a field inside a struct column, is there."""
    if path in schema.names:
        return True
    first, *rest = path.split(".")
    if not rest or first not in schema.names:
        return False
    kind = schema.field(schema.names.index(first)).type
    for name in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return False
        kind = kind.field(name).type
    return True


def leaf_of(batch: pa.RecordBatch, path: str) -> Any:
    names = batch.schema.names
    if path in names:
        return batch.column(names.index(path))  # by number: a name may stand twice
    first, *rest = path.split(".")
    column: Any = batch.column(names.index(first))
    for name in rest:
        column = pc.struct_field(column, name)
    return column


def _halves(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch of at most `size` bytes each, where a row is not larger than that by itself."""
    if batch.num_rows > 1 and batch.nbytes > 2 * size:
        middle = batch.num_rows // 2
        yield from _halves(batch.slice(0, middle), size)
        yield from _halves(batch.slice(middle), size)
    else:
        yield batch


def _rows(file: pq.ParquetFile, group: int) -> int:
    return max(0, int(file.metadata.row_group(group).num_rows))


def count_row_groups(inputs: Reading, name: str) -> int:
    """How many row groups a file has; 1 if it cannot be told, reading it will say why."""
    try:
        with inputs.open(name) as source, _arrow_file(source) as file:
            return int(pq.read_metadata(file).num_row_groups)
    except (pa.ArrowException, OSError, ValueError):
        return 1


@contextmanager
def _arrow_file(source: Source) -> Iterator[pa.NativeFile]:
    """An opened source for Arrow. Of a file of this machine it reads by itself, without Python's lock."""
    try:
        # The very file that was opened, whatever its name is by now.
        file = pa.OSFile(f"/dev/fd/{source.fileno()}", "r")  # type: ignore[attr-defined]
    except (AttributeError, OSError):  # not a file of this machine, or a machine without /proc
        yield pa.PythonFile(source, "r")  # type: ignore[arg-type]  # not closed: that would close the source
        return
    with file:
        yield file
