"""Stage 5, write: pieces become chunk files, under a temporary name until they are whole and on disk.

Tokens go through one preallocated buffer to the file in large blocks, so a chunk is never held in memory, and the
checksum is computed on the way. The number of rows is known only at the end; the header of a `.npy` file has room
for it, and is written again then.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.pack import Piece
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry

BUFFER_BYTES = 4 << 20


class NpyWriter:
    """Streams a 1-D or 2-D array into a `.npy` file: append, then close with the number of rows."""

    def __init__(self, path: Path, dtype: np.dtype[Any], columns: int | None = None) -> None:
        self._dtype = dtype
        self._columns = columns
        self._file = path.open("wb", buffering=0)
        self._buffer = np.empty(max(1, BUFFER_BYTES // dtype.itemsize), dtype)
        self._filled = 0
        self._hash = xxhash.xxh3_128()
        self._header = npy_header(dtype, self._shape(0))
        self.count = 0
        _write_all(self._file, self._header)

    def append(self, items: npt.NDArray[Any]) -> None:
        self.count += len(items)
        while len(items):
            take = min(len(items), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + take] = items[:take]
            self._filled += take
            items = items[take:]
            if self._filled == len(self._buffer):
                self._flush()

    def close(self) -> str:
        """Complete the file, force it to disk, and give the checksum of its data."""
        self._flush()
        header = npy_header(self._dtype, self._shape(self.count))
        if len(header) != len(self._header):
            raise AssertionError("the .npy header changed its length")
        self._file.seek(0)
        _write_all(self._file, header)
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def abort(self) -> None:
        self._file.close()

    def _flush(self) -> None:
        block: Any = self._buffer[: self._filled].view(np.uint8)
        _write_all(self._file, block)
        self._hash.update(block)
        self._filled = 0

    def _shape(self, count: int) -> tuple[int, ...]:
        return (count,) if self._columns is None else (count // self._columns, self._columns)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file; its length does not depend on the number of rows."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _write_all(file: io.FileIO, data: Any) -> None:
    """An unbuffered write may be short, e.g. above 2 GiB or when a signal arrives."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


class ChunkWriter:
    """One chunk being written: the rows, the sidecar, and the documents' own ids if they are asked for."""

    def __init__(
        self, name: str, directory: Path, temporary: Path, dtype: np.dtype[Any], seq_len: int, with_ids: bool
    ) -> None:
        self.name = name
        self._directory = directory
        self._temporary = temporary
        self._seq_len = seq_len
        self._rows = NpyWriter(self._temp(".npy"), dtype, seq_len)
        self._docs = NpyWriter(self._temp(".docs.npy"), SIDECAR_DTYPE)
        self._ids = self._temp(".ids.jsonl").open("wb") if with_ids else None
        self._ids_hash = xxhash.xxh3_128()
        self._padding = 0

    def _temp(self, suffix: str) -> Path:
        return self._temporary / f"{self.name}{suffix}"

    def append(self, piece: Piece) -> None:
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
        """Forget the chunk."""
        self._rows.abort()
        self._docs.abort()
        if self._ids is not None:
            self._ids.close()
        for suffix in (".npy", ".docs.npy", ".ids.jsonl"):
            self._temp(suffix).unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes, temporary: Path) -> None:
    """Replace a file as a whole: readers see the old content or the new, also after a crash."""
    temp = temporary / path.name
    with temp.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temp.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Force names to disk: a rename is durable only with the directory that holds it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
