"""Stage 5, write: pieces become chunk files, under a temporary name until they are whole and on disk.

Tokens go through one preallocated buffer to the file in large blocks, so a chunk is never held in memory, and the
checksum is computed on the way. The number of rows is known only at the end; the header of a `.npy` file has room
for it, and is written again then.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.pack import Piece
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry

BUFFER_BYTES = 4 << 20  # no mutant: only speed and memory depend on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """How much of an incomplete chunk is safely on disk."""

    tokens: int = 0
    documents: int = 0
    ids_bytes: int = 0


EMPTY = Partial()


@contextmanager
def closed_on_failure(*closes: Callable[[], None]) -> Iterator[None]:
    """On a full disk a file fails as it is begun, and whoever begins it has no name for it yet."""
    try:
        yield
    except BaseException:
        for close in closes:
            close()
        raise


class NpyWriter:
    """Streams a 1-D or 2-D array into a `.npy` file: append, then close with the number of rows.

    `count`: go on with a file that already holds so many items; whatever lies behind them is cut off.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], columns: int | None = None, count: int = 0) -> None:
        self._dtype = dtype
        self._columns = columns
        self._file = path.open("r+b" if count else "wb", buffering=0)
        items = max(1, BUFFER_BYTES // dtype.itemsize)  # no mutant: only speed and memory depend on it
        self._buffer = np.empty(items, dtype)
        self._filled = 0
        self._hash = xxhash.xxh3_128()
        self._header = npy_header(dtype, self._shape(0))
        self.count = count
        with closed_on_failure(self._file.close):
            if count:
                _go_on(self._file, self._hash, len(self._header), count * dtype.itemsize)
            else:
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

    def sync(self) -> int:
        """Force what was appended to disk, in a file that is not complete; how many items that is."""
        self._flush()
        os.fsync(self._file.fileno())
        return self.count

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


def _go_on(file: BinaryIO, state: xxhash.xxh3_128, start: int, size: int) -> None:
    """Take a file up again behind `size` bytes from `start` on, and bring its checksum up to there."""
    file.truncate(start + size)
    file.seek(start)
    while block := file.read(BUFFER_BYTES):
        state.update(block)


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
            _go_on(file, self._ids_hash, 0, size)
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
        """Let go of the files. They stay, for a checkpoint may know of them; the next run clears up."""
        self._rows.abort()
        self._docs.abort()
        if self._ids is not None:
            with suppress(OSError):  # there may be no room for what is buffered
                self._ids.close()


def write_atomically(path: Path, pieces: Iterable[bytes], temporary: Path) -> None:
    """Replace a file as a whole: readers see the old content or the new, also after a crash."""
    temp = temporary / path.name
    with temp.open("wb") as file:
        file.writelines(pieces)
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
