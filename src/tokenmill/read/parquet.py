"""Parquet: the text column, a few rows at a time, never a row group or the file as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.config import Config
from tokenmill.records import PREVIEW_BYTES, Block, Documents, Part, Reason, Reject

BATCH_BYTES = 1 << 20
MAX_BATCH_ROWS = 8192


class ParquetReader:
    """Reads the row groups of one part."""

    def __init__(self, path: Path, part: Part, config: Config) -> None:
        self._path = path
        self._part = part
        self._text_field = config.text_field
        self._id_field = config.id_field
        self._limit = config.max_document_bytes

    def blocks(self, offset: int | None) -> Iterator[Block]:
        try:
            file = pq.ParquetFile(self._path, pre_buffer=False, memory_map=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            _raise_if_unreadable(error)
            yield _broken(0, 0, f"the Parquet footer cannot be read: {error}", self._size())
            return
        with file:
            row = 0
            end = file.num_row_groups if self._part.end is None else self._part.end
            for group in range(self._part.start, end):
                rows = file.metadata.row_group(group).num_rows
                if offset is None or row + rows > offset:
                    yield from self._group(file, group, row, offset or 0)
                row += rows

    def _group(self, file: pq.ParquetFile, group: int, first: int, offset: int) -> Iterator[Block]:
        """The rows of one row group from row `offset` of the part on; where it breaks, the rest is rejected."""
        rows = file.metadata.row_group(group).num_rows
        consumed = self._size() // max(1, file.num_row_groups)
        columns, problem = self._columns(file)
        if problem:
            yield _broken(first, rows, problem, consumed, Reason.NO_TEXT_FIELD)
            return
        row = first
        try:
            for batch in file.iter_batches(_batch_rows(file, group, columns[0]), [group], columns, use_threads=False):
                for piece in _halves(batch, BATCH_BYTES):
                    if (skip := max(0, min(offset - row, piece.num_rows))) < piece.num_rows:
                        share = consumed * (piece.num_rows - skip) // max(1, rows)
                        yield Block(offset=row + skip, data=piece.slice(skip), consumed=share)
                    row += piece.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            _raise_if_unreadable(error)
            yield _broken(row, first + rows - row, f"row group {group} cannot be read: {error}", 0)

    def _size(self) -> int:
        return self._path.stat().st_size

    def _columns(self, file: pq.ParquetFile) -> tuple[list[str], str | None]:
        leaves = {file.schema.column(i).path for i in range(len(file.schema))}
        if self._text_field not in leaves:
            known = ", ".join(sorted(leaves)[:12])
            return [], f"there is no column {self._text_field!r}; the columns are: {known}"
        columns = [self._text_field]
        if self._id_field in leaves:
            columns.append(self._id_field)
        return columns, None

    def parse(self, block: Block) -> Documents:
        if block.broken is not None:
            rejects = [block.broken]
            rows = block.broken.records
            return Documents(texts=[], numbers=[], ids=self._ids([], 0), records=rows, lines=rows, rejects=rejects)
        batch: pa.RecordBatch = block.data
        result = Documents(texts=[], numbers=[], ids=None, records=batch.num_rows, lines=batch.num_rows)
        column = _leaf(batch, self._text_field)
        numbers: list[int] = []
        for number, value in enumerate(_values(column)):
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
                    Reject(record=number, offset=block.offset + number, reason=reason, detail=detail, head=head)
                )
        result.numbers = numbers
        if self._id_field is not None:
            known = self._id_field.split(".")[0] in batch.schema.names
            ids = _leaf(batch, self._id_field).to_pylist() if known else []
            result.ids = self._ids([ids[n] for n in numbers] if ids else [None] * len(numbers), len(numbers))
        return result

    def _ids(self, values: list[Any], count: int) -> list[bytes] | None:
        if self._id_field is None:
            return None
        assert len(values) == count
        return [json.dumps(v, default=str).encode() for v in values]

    def _text(self, value: object) -> str | tuple[Reason, str, bytes]:
        if isinstance(value, bytes):
            if len(value) > self._limit:
                detail = f"the text has {len(value):,} bytes, more than --max-document-bytes {self._limit:,}"
                return Reason.TOO_LARGE, detail, value[:PREVIEW_BYTES]
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                detail = f"{error.reason} at byte {error.start} of the text"
                return Reason.INVALID_UTF8, detail, value[:PREVIEW_BYTES]
        kind = "null" if value is None else f"a {type(value).__name__}"
        head = b"" if value is None else str(value)[:PREVIEW_BYTES].encode()
        return Reason.TEXT_NOT_A_STRING, f"the text is {kind}, not a string", head


def _raise_if_unreadable(error: Exception) -> None:
    """Arrow reports corrupt data as OSError too; only a failed system call has an error number."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _values(column: Any) -> list[Any]:
    """The column as bytes where it holds text: decoding happens row by row, so that one bad row costs one row."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        column = column.view(pa.large_binary())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = column.view(pa.binary())
    elif pa.types.is_string_view(kind):
        column = column.cast(pa.binary_view())
    values: list[Any] = column.to_pylist()
    return values


def _leaf(batch: pa.RecordBatch, path: str) -> Any:
    first, *rest = path.split(".")
    column: Any = batch.column(first)
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


def _batch_rows(file: pq.ParquetFile, group: int, column: str) -> int:
    """How many rows make about a block, by the average size of a text in this row group."""
    meta = file.metadata.row_group(group)
    size = sum(
        meta.column(i).total_uncompressed_size
        for i in range(meta.num_columns)
        if meta.column(i).path_in_schema == column
    )
    return max(1, min(MAX_BATCH_ROWS, meta.num_rows * BATCH_BYTES // max(1, size)))


def _broken(row: int, rows: int, detail: str, consumed: int, reason: Reason = Reason.CORRUPT_FILE) -> Block:
    reject = Reject(record=0, offset=row, reason=reason, detail=detail, records=max(1, rows))
    return Block(offset=row, data=None, consumed=consumed, broken=reject)
