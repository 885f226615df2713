"""Stage 2, read: a part of a file becomes blocks, a block becomes documents.

A reader has two halves, so that an engine can put them on different threads: `blocks` is sequential and does the
I/O and the decompression, `parse` is a pure function of one block and may run anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tokenmill.config import Config
from tokenmill.read.ring import Ring
from tokenmill.records import Block, Documents, Format, InputFile, Part


class Reader(Protocol):
    """Reads one part of one file."""

    def blocks(self, offset: int | None) -> Iterator[Block]:
        """Blocks from the start of the part, or from a block's `offset` when a checkpoint is resumed."""
        ...

    def parse(self, block: Block) -> Documents: ...


def open_reader(path: Path, file: InputFile, part: Part, config: Config, ring: Ring | None = None) -> Reader:
    """The reader for a part, by the format of its file."""
    # Imported here: pyarrow takes 60 MB and 0.2 s, which a JSONL corpus need not pay.
    if file.format is Format.PARQUET:
        from tokenmill.read.parquet import ParquetReader

        return ParquetReader(path, part, config)
    if file.format is Format.TEXT:
        from tokenmill.read.text import TextReader

        return TextReader(path, file.codec, config)
    from tokenmill.read.jsonl import JsonlReader

    return JsonlReader(path, file.codec, part, config, ring)
