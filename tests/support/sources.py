"""Inputs, opened to be read (bytes in memory, or a file of a test), and what is read of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.read.jsonl import JsonlParser
from tokenmill.read.lines import Break, Lines
from tokenmill.records import Documents
from tokenmill.storage.local import LocalSource, LocalStorage
from tokenmill.storage.memory import MemorySource, MemoryStorage


def opened(data: bytes) -> MemorySource:
    return MemoryStorage({"file": data}).open("file")


def opened_file(path: Path) -> LocalSource:
    return LocalStorage(path.parent).open(path.name)


def parquet_file(texts: Sequence[str | None], **options: Any) -> bytes:
    """A Parquet file with these texts."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), buffer, **options)
    return buffer.getvalue()


def arrow_bytes(batches: Sequence[Any], kind: str = "stream", compression: Any = None) -> bytes:
    """Record batches, or their columns by name, in one of the two formats of Arrow: "file" or "stream"."""
    held = [batch if isinstance(batch, pa.RecordBatch) else pa.RecordBatch.from_pydict(batch) for batch in batches]
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with make(buffer, held[0].schema, options=options) as writer:
        for batch in held:
            writer.write_batch(batch)
    return buffer.getvalue()


def parse_found(parser: JsonlParser, found: Lines | Break) -> Documents:
    """The documents of lines, or of a place where there are none."""
    return parser.parse(found.data, found.offset) if isinstance(found, Lines) else parser.parse_break(found)
