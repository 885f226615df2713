"""The input formats there are: how a file of each is recognized, read, and cut into parts.

A new format is a module beside this one, a member of `Format` (records.py), a suffix below, and a branch in
`open_reader`, `text_bytes` and `cuts`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import assert_never

from tokenmill.config import ReadOptions
from tokenmill.read.block import READ_PLAINLY, Reader, ReadingWay
from tokenmill.read.fields import absent_from_records, have_fields, records_of
from tokenmill.records import AbsentField, Codec, Format, InputFile, Part
from tokenmill.storage.base import Reading, Source

# Arrow's own allocators give pages back to the system and ask for them again with every block: a tenth of a run. It is
# said here, for it must be said before any reader imports pyarrow.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

CODEC_SUFFIXES = {
    ".gz": Codec.GZIP,
    ".zst": Codec.ZSTD,
    ".zstd": Codec.ZSTD,
    ".bz2": Codec.BZIP2,
    ".xz": Codec.XZ,
}
FORMAT_SUFFIXES = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".jsonlines": Format.JSONL,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
}

MOST_LOOKED_AT = 8 << 20

# Rough size of the text in a byte of the file; it only steers how files are grouped.
_EXPANSION = {Codec.PLAIN: 1, Codec.GZIP: 3, Codec.ZSTD: 3, Codec.BZIP2: 4, Codec.XZ: 4}
_PARQUET_EXPANSION = 2


def preload(format_: Format) -> None:
    """Load what reading this format takes, at a time when that is free."""
    if format_.has_rows:  # no mutant: only speed depends on it
        import_module(f"tokenmill.read.{format_}")  # no mutant: only speed depends on it


def open_reader(
    source: Source, file: InputFile, part: Part, options: ReadOptions, way: ReadingWay = READ_PLAINLY
) -> Reader:
    """The reader for a part, by the format of its file."""
    # Imported here: pyarrow takes 60 MB and 0.2 s, which a JSONL corpus need not pay.
    if file.format is Format.PARQUET:
        from tokenmill.read.parquet import ParquetReader

        return ParquetReader(source, part, options)
    if file.format is Format.ARROW:
        from tokenmill.read.arrow import ArrowReader

        return ArrowReader(source, part, options)
    if file.format is Format.TEXT:
        from tokenmill.read.text import TextReader

        return TextReader(source, file.codec, options, way)
    if file.format is Format.JSONL:
        from tokenmill.read.jsonl import JsonlReader

        return JsonlReader(source, file.codec, part, options, way)
    assert_never(file.format)


def absent_field(inputs: Reading, file: InputFile, head: bytes, options: ReadOptions) -> AbsentField | None:
    """A field that the options name and the file does not have; None also where it cannot be told, or has no record."""
    try:
        if file.format is Format.JSONL:
            return _absent_from_lines(inputs, file, head, options)
        if file.format.has_rows and (absent := _absent_column(inputs, file, options)):
            with inputs.open(file.name) as source:
                blocks = open_reader(source, file, Part(0), options).blocks(None)
                return absent if any(block.parse().lines for block in blocks) else None
    except OSError:
        return None  # it will be named when it is to be read
    return None


def _absent_from_lines(inputs: Reading, file: InputFile, head: bytes, options: ReadOptions) -> AbsentField | None:
    from tokenmill.read.decompress import pieces
    from tokenmill.read.lines import BOM, Lines, cut_lines

    if not file.size or have_fields(records_of(head.removeprefix(BOM).split(b"\n")), options):
        return None
    with inputs.open(file.name) as source:
        most = min(options.max_document_bytes, MOST_LOOKED_AT)  # a longer first line is no evidence
        block = next(cut_lines(pieces(source, file.codec), 0, most), None)
        if not isinstance(block, Lines):
            return None
        return absent_from_records(list(records_of(bytes(block.data).split(b"\n"))), options)


def _absent_column(inputs: Reading, file: InputFile, options: ReadOptions) -> AbsentField | None:
    from tokenmill.read.rows import absent_column

    if file.format is Format.PARQUET:
        from tokenmill.read.parquet import schema_of
    else:
        from tokenmill.read.arrow import schema_of
    schema = schema_of(inputs, file.name)
    return None if schema is None else absent_column(schema, options)


def text_bytes(file: InputFile) -> int:
    """About how much text a file holds."""
    factor = _PARQUET_EXPANSION if file.format is Format.PARQUET else _EXPANSION[file.codec]
    return file.size * factor


def cuts(inputs: Reading, file: InputFile, wanted: int) -> list[int]:
    """Where to cut a file into about so many parts: [0, 5, 10] makes two. Without an inner cut it stays whole."""
    if file.format is Format.JSONL and file.codec is Codec.PLAIN:
        return [file.size * i // wanted for i in range(wanted + 1)]
    if file.format is Format.PARQUET:
        from tokenmill.read.parquet import count_row_groups

        return _between(count_row_groups(inputs, file.name), wanted)
    if file.format is Format.ARROW:
        from tokenmill.read.arrow import count_record_batches

        return _between(count_record_batches(inputs, file.name), wanted)
    return []


def _between(count: int, wanted: int) -> list[int]:
    return sorted({count * i // wanted for i in range(wanted + 1)})
