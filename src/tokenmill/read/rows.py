"""Rows of a table, Parquet or Arrow: a few of them are a block, and a column of them holds the texts.

A column may be of any type that holds text: strings and bytes of every layout, dictionaries of them, and extension
types that store them (the JSON of Parquet).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config import ReadOptions
from tokenmill.read.block import Block
from tokenmill.read.fields import named_fields
from tokenmill.read.jsonl import to_json
from tokenmill.records import NO_LOSS, PREVIEW_BYTES, AbsentField, Documents, Loss, Reason, Reject
from tokenmill.storage.base import Source

BATCH_BYTES = 1 << 20  # no mutant: only speed and memory depend on it
MAX_BATCH_ROWS = 1024  # no mutant: only speed and memory depend on it
NAMED_COLUMNS = 12
TYPE_CHARACTERS = 80

_ERROR_NUMBER = re.compile(r"\[errno (\d{1,4})\]", re.IGNORECASE)

DAMAGE = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for damaged data, and for a file that cannot be read: see `raise_if_unreadable`."""
_BROKEN = (pa.ArrowException, UnicodeError)
"""What it raises for a damaged value; any other error is of a value that Python cannot represent."""


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

    @property
    def size(self) -> int:
        return int(self.batch.nbytes)

    def parse(self) -> Documents:
        count = self.batch.num_rows
        result = Documents(texts=[], numbers=[], document_ids=None, records=count, lines=count)
        column = leaf_of(self.batch, self.options.text_field)
        numbers: list[int] = []
        for number, value in enumerate(raw_values(column)):
            parsed = self._text(value, column.type)
            if isinstance(parsed, str):
                if parsed:
                    result.texts.append(parsed)
                    numbers.append(number)
                else:
                    result.empty += 1
            else:
                reason, detail, head = parsed
                place, loss = self.offset + number, Loss(rows=1) if reason.is_damage else NO_LOSS
                result.rejects.append(
                    Reject(record=number, offset=place, reason=reason, detail=detail, head=head, loss=loss)
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

    def _text(self, value: object, kind: pa.DataType) -> str | tuple[Reason, str, bytes]:
        if isinstance(value, bytes):
            if len(value) > (limit := self.options.max_document_bytes):
                detail = f"the text has {len(value):,} bytes, more than --max-document-bytes {limit:,}"
                return Reason.TOO_LARGE, detail, value[:PREVIEW_BYTES]
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                detail = f"{error.reason} at byte {error.start} of the text"
                return Reason.INVALID_UTF8, detail, value[:PREVIEW_BYTES]
        if isinstance(value, _BROKEN) and not pa.types.is_temporal(kind):
            return Reason.CORRUPT_FILE, f"the value cannot be read: {value}", b""
        if value is None:
            return Reason.TEXT_NOT_A_STRING, "the text is null, not a string", b""
        head = b"" if isinstance(value, Exception) else str(value)[:PREVIEW_BYTES].encode()
        return Reason.TEXT_NOT_A_STRING, f"the text is of type {str(kind)[:TYPE_CHARACTERS]}, not a string", head


def broken_rows(
    options: ReadOptions,
    row: int,
    rows: int,
    detail: str,
    consumed: int,
    reason: Reason = Reason.CORRUPT_FILE,
    loss: Loss = NO_LOSS,
) -> BrokenRowsBlock:
    """A reject in place of so many rows; of none, it still counts as one record that was lost."""
    reject = Reject(record=0, offset=row, reason=reason, detail=detail, records=max(1, rows), loss=loss)
    return BrokenRowsBlock(row, consumed, rows, reject, with_ids=options.id_field is not None)


def raise_if_unreadable(error: Exception) -> None:
    """Arrow reports corrupt data as OSError too; only a failed system call has an error number.

    Where Arrow wraps one error in another, the number is in the text alone: "[errno 5] Input/output error".
    """
    if isinstance(error, OSError) and error.errno is not None:
        raise error
    if found := _ERROR_NUMBER.search(str(error)):
        number = int(found[1])
        raise OSError(number, os.strerror(number)) from error


# values


def raw_values(column: Any) -> list[Any]:
    """The column as bytes where it holds text: decoding happens row by row, so that one bad row costs one row."""
    return _salvaged(column, lambda column: _times_as_text(_as_binary(column)).to_pylist())


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
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = _with_leaves(column.type, _without_time)
    return column if kind == column.type else column.cast(kind)


def _without_time(kind: Any) -> Any:
    if pa.types.is_duration(kind):
        return pa.int64()
    return pa.string() if pa.types.is_temporal(kind) and not pa.types.is_interval(kind) else kind


def _with_leaves(kind: Any, change: Callable[[Any], Any]) -> Any:
    """The type with its innermost types changed."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_leaves(field.type, change)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_with_leaves(kind.key_type, change), _with_leaves(kind.item_type, change))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(_with_leaves(kind.value_type, change))
        if types.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.list_(inner) if types.is_list(kind) else pa.large_list(inner)
    return change(kind)


def _as_binary(column: Any) -> Any:
    """A column of text as one of bytes; any other as it is."""
    column = plain(column)
    kind = _bytes_for_text(column.type)
    return column if kind == column.type else column.view(kind)


def _bytes_for_text(kind: Any) -> Any:
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    return pa.binary_view() if pa.types.is_string_view(kind) else kind


def check_column(column: Any) -> None:
    """Raise for a column whose parts do not fit together. Whether text is UTF-8 is a matter of each row."""
    if pa.types.is_dictionary(column.type):  # whose indices are looked at when they are used
        check_column(column.dictionary)
    elif isinstance(column, pa.ExtensionArray):
        check_column(column.storage)
    else:
        kind = _with_leaves(column.type, _bytes_for_text)
        (column if kind == column.type else column.view(kind)).validate(full=True)


def plain(column: Any) -> Any:
    """The values themselves: out of a dictionary, out of runs, out of an extension type."""
    while True:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.call_function("run_end_decode", [column])
        elif storage_type(column.type) != column.type:
            column = column.storage
        else:
            return column


def storage_type(kind: Any) -> Any:
    """What an extension type is made of. The bytes of a UUID are not text, whatever they spell."""
    while isinstance(kind, pa.BaseExtensionType) and not pa.types.is_fixed_size_binary(kind.storage_type):
        kind = kind.storage_type
    return kind


# columns


def has_field(schema: pa.Schema, path: str) -> bool:
    """Whether a column, or a field inside a struct column, is there."""
    if path in schema.names:
        return True
    first, *rest = path.split(".")
    if not rest or first not in schema.names:
        return False
    kind = schema.field(schema.names.index(first)).type
    for name in rest:
        kind = storage_type(kind)
        if not pa.types.is_struct(kind) or (index := _index(kind, name)) is None:
            return False
        kind = kind.field(index).type
    return True


def _index(kind: Any, name: str) -> int | None:
    """Which column or field has this name: the first, for a name may stand twice."""
    return next(iter(kind.get_all_field_indices(name)), None)


def leaf_of(batch: pa.RecordBatch, path: str) -> Any:
    names = batch.schema.names
    if path in names:
        return batch.column(names.index(path))
    first, *rest = path.split(".")
    column: Any = batch.column(names.index(first))
    for name in rest:
        column = plain(column)
        column = pc.struct_field(column, _index(column.type, name))
    return column


def absent_column(schema: pa.Schema, options: ReadOptions) -> AbsentField | None:
    """The first of the columns that the options name and a table does not have."""
    for option, field in named_fields(options):
        if not has_field(schema, field):
            return AbsentField(option, field, tuple(_columns_beside(schema, field)))
    return None


def _columns_beside(schema: pa.Schema, path: str) -> Iterator[str]:
    """The columns, or ("meta.body") the fields of a struct that the path enters and in which it ends."""
    prefix = ""
    level: Any = schema
    for name in path.split("."):
        index = _index(level, name)
        if index is None or not pa.types.is_struct(kind := storage_type(level.field(index).type)):
            break
        level, prefix = kind, f"{prefix}{name}."
    return (prefix + field.name for field in level)


def columns_to_read(schema: pa.Schema, options: ReadOptions) -> tuple[list[str], str | None]:
    """The columns of the text and, if it is kept and there, the id; and what is wrong if there is no text."""
    text_field, id_field = options.text_field, options.id_field
    if not has_field(schema, text_field):
        known = ", ".join(schema.names[:NAMED_COLUMNS])
        return [], f"there is no column {text_field!r}; the columns are: {known}"
    return [text_field, *([id_field] if id_field is not None and has_field(schema, id_field) else [])], None


def halves(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch of at most `size` bytes each, where a row is not larger than that by itself."""
    if batch.num_rows > 1 and batch.nbytes > 2 * size:
        middle = batch.num_rows // 2
        yield from halves(batch.slice(0, middle), size)
        yield from halves(batch.slice(middle), size)
    else:
        yield batch


@contextmanager
def arrow_file(source: Source) -> Iterator[pa.NativeFile]:
    """An opened source for Arrow. Of a file of this machine it reads by itself, without Python's lock."""
    try:
        # The very file that was opened, whatever its name is by now.
        file = pa.OSFile(f"/dev/fd/{source.fileno()}", "r")  # type: ignore[attr-defined]
    except (AttributeError, OSError):  # not a file of this machine, or a machine without /proc
        yield pa.PythonFile(source, "r")  # type: ignore[arg-type]  # not closed: that would close the source
        return
    with file:
        yield file
