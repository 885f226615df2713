"""Arrays streamed into `.npy` files, and mapped from them.

Items go through one preallocated buffer to the file in large blocks, so an array is never held in memory, and its
checksum is computed on the way. How many there are is known only at the end; the header of a `.npy` file has room for
it, and is written again then.
"""

from __future__ import annotations

import io
import math
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.storage.base import Draft

BUFFER_BYTES = 4 << 20  # no mutant: only speed and memory depend on it


class DraftChangedError(Exception):
    """A draft does not hold what was written to it: somebody else was at it, or the disk."""


class NpyWriter:
    """Streams a 1-D or 2-D array into a draft: append, then complete.

    `count`: go on with a draft that already holds so many items.
    """

    def __init__(self, draft: Draft, dtype: np.dtype[Any], columns: int | None = None, count: int = 0) -> None:
        self.draft = draft
        self.count = count
        self._dtype = dtype
        self._columns = columns
        items = max(1, BUFFER_BYTES // dtype.itemsize)  # no mutant: only speed and memory depend on it
        self._buffer = np.empty(items, dtype)
        self._filled = 0
        self._hash = xxhash.xxh3_128()
        self._header = npy_header(dtype, self._shape(0))
        if count:
            hash_rest(draft, len(self._header), self._hash)
        else:
            draft.write(self._header)

    @staticmethod
    def size_of(dtype: np.dtype[Any], columns: int | None, count: int) -> int:
        """How many bytes of a draft stand for so many items; 0 for none, which is a draft that is not there yet."""
        shape = (0,) if columns is None else (0, columns)
        return len(npy_header(dtype, shape)) + count * dtype.itemsize if count else 0

    def append(self, items: npt.NDArray[Any]) -> None:
        self.count += len(items)
        while len(items):
            take = min(len(items), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + take] = items[:take]
            self._filled += take
            items = items[take:]
            if self._filled == len(self._buffer):
                self.flush()

    def flush(self) -> None:
        """Write out what is buffered."""
        block: Any = self._buffer[: self._filled].view(np.uint8)
        self.draft.write(block)
        self._hash.update(block)
        self._filled = 0

    @property
    def checksum(self) -> str:
        """Of all that was written so far."""
        return self._hash.hexdigest()

    def complete(self) -> str:
        """Put the number of items into the header; the checksum of the data."""
        self.flush()
        header = npy_header(self._dtype, self._shape(self.count))
        if len(header) != len(self._header):
            raise AssertionError("the .npy header changed its length")
        self.draft.seek(0)
        self.draft.write(header)
        return self._hash.hexdigest()

    def _shape(self, count: int) -> tuple[int, ...]:
        return (count,) if self._columns is None else (count // self._columns, self._columns)


def hash_rest(draft: Draft, start: int, state: xxhash.xxh3_128) -> None:
    """Bring a checksum up to the end of a draft, and go on writing there."""
    draft.seek(start)
    while block := draft.read(BUFFER_BYTES):
        state.update(block)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of a `.npy` file; its length does not depend on the number of rows."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def npy_size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """How many bytes the `.npy` file of an array has."""
    return len(npy_header(dtype, shape)) + math.prod(shape) * dtype.itemsize


def map_array(data: memoryview) -> npt.NDArray[Any]:
    """The array in a `.npy` file, without a copy. Raises ValueError for what is not one."""
    head = io.BytesIO(data[:HEADER_BYTES])
    try:
        version = np.lib.format.read_magic(head)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0}[version]
        shape, fortran_order, dtype = read_header(head)
    except (ValueError, KeyError, SyntaxError, TokenError) as error:  # a header is Python, and a damaged one is not
        raise ValueError(f"not an array as tokenmill writes it: {error}") from error
    if fortran_order or dtype.hasobject or len(data) != head.tell() + math.prod(shape) * dtype.itemsize:
        raise ValueError("its size or layout is not what its header says")
    return np.frombuffer(data, dtype, offset=head.tell()).reshape(shape)


HEADER_BYTES = 4096
"""More than any header that tokenmill writes."""
