"""Arrays streamed into `.npy` files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

BUFFER_BYTES = 4 << 20  # no mutant: only speed and memory depend on it


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
                _resume(self._file, self._hash, len(self._header), count * dtype.itemsize)
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


def _resume(file: BinaryIO, state: xxhash.xxh3_128, start: int, size: int) -> None:
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
