"""Stage 5, write: pieces become chunk files, under a temporary name until they are whole and on disk.

Tokens go through one preallocated buffer to the file in large blocks, so a chunk is never held in memory, and the
checksum is computed on the way. The number of rows is known only at the end; the header of a `.npy` file has room
for it, and is written again then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, PackedRows
from tokenmill.storage.local import sync_directory
from tokenmill.write.npy import NpyWriter, _resume, closed_on_failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """How much of an incomplete chunk is safely on disk."""

    tokens: int = 0
    documents: int = 0
    ids_bytes: int = 0


EMPTY = Partial()


class ChunkWriter:
    """One chunk being written: the rows, the sidecar, and the documents' own ids if they are asked for."""

    def __init__(
        self,
        name: str,
        directory: Path,
        temporary: Path,
        dtype: np.dtype[Any],
        seq_len: int,
        with_ids: bool,
        begun: Partial = EMPTY,
    ) -> None:
        self.name = name
        self._directory = directory
        self._temporary = temporary
        self._seq_len = seq_len
        self._rows = NpyWriter(self._temp(".npy"), dtype, seq_len, begun.tokens)
        with closed_on_failure(self._rows.abort):
            self._docs = NpyWriter(self._temp(".docs.npy"), SIDECAR_DTYPE, None, begun.documents)
        self._ids_hash = xxhash.xxh3_128()
        with closed_on_failure(self._rows.abort, self._docs.abort):
            self._ids = self._open_ids(begun.ids_bytes) if with_ids else None
        self._padding = 0
        self._names_on_disk = False

    def _open_ids(self, size: int) -> BinaryIO:
        file = self._temp(".ids.jsonl").open("r+b" if size else "w+b")
        with closed_on_failure(file.close):
            _resume(file, self._ids_hash, 0, size)
        return file

    def sync(self) -> Partial:
        """Force an incomplete chunk to disk, so that it can be gone on with."""
        if self._ids is not None:
            self._ids.flush()
            os.fsync(self._ids.fileno())
        size = 0 if self._ids is None else self._ids.tell()
        partial = Partial(tokens=self._rows.sync(), documents=self._docs.sync(), ids_bytes=size)
        if not self._names_on_disk:
            sync_directory(self._temporary)
            self._names_on_disk = True
        return partial

    def _temp(self, suffix: str) -> Path:
        return self._temporary / f"{self.name}{suffix}"

    def append(self, piece: PackedRows) -> None:
        self._rows.append(piece.tokens)
        self._padding += piece.padding
        self._docs.append(piece.docs)
        if self._ids is not None and piece.ids:
            lines = b"\n".join(piece.ids) + b"\n"
            self._ids.write(lines)
            self._ids_hash.update(lines)

    def close(self) -> ChunkEntry:
        """Complete the chunk and move it into place."""
        xxh3 = self._rows.close()
        docs_xxh3 = self._docs.close()
        suffixes = [".npy", ".docs.npy"]
        if self._ids is not None:
            self._ids.flush()
            os.fsync(self._ids.fileno())
            self._ids.close()
            suffixes.append(".ids.jsonl")
        for suffix in suffixes:
            self._temp(suffix).rename(self._directory / f"{self.name}{suffix}")
        sync_directory(self._directory)
        return ChunkEntry(
            name=self.name,
            rows=self._rows.count // self._seq_len,
            tokens=self._rows.count - self._padding,
            documents=self._docs.count,
            xxh3=xxh3,
            docs_xxh3=docs_xxh3,
            ids_xxh3=None if self._ids is None else self._ids_hash.hexdigest(),
        )

    def abort(self) -> None:
        """Let go of the files. They stay, for a checkpoint may know of them; the next run clears up."""
        self._rows.abort()
        self._docs.abort()
        if self._ids is not None:
            with suppress(OSError):  # there may be no room for what is buffered
                self._ids.close()
