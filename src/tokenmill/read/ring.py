"""Buffers for blocks that are used again and again, instead of a fresh megabyte for each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

BUFFER_BYTES = 2 << 20  # no mutant: only speed and memory depend on it


class Ring:
    """Gives out buffers and takes them back; how many there are is how many are under way at a time."""

    def __init__(self) -> None:
        self._free: deque[bytearray] = deque()  # its append and pop are safe between threads

    def join(self, pieces: Sequence[bytes]) -> tuple[memoryview, Callable[[], None]]:
        """The pieces, one behind the other, in a buffer of the ring; and how to give it back."""
        size = sum(map(len, pieces))
        view, release = self.lend(size)
        position = 0
        for piece in pieces:
            view[position : position + len(piece)] = piece
            position += len(piece)
        return view[:size], release

    def lend(self, size: int = 0) -> tuple[memoryview, Callable[[], None]]:
        """A buffer, larger than usual if need be, and how to give it back."""
        buffer = self._take(size)
        return memoryview(buffer), lambda: self._give_back(buffer)

    def _take(self, size: int) -> bytearray:
        if size > BUFFER_BYTES:
            return bytearray(size)  # a long line: made for it, and not kept
        try:
            return self._free.pop()
        except IndexError:
            return bytearray(BUFFER_BYTES)

    def _give_back(self, buffer: bytearray) -> None:
        if len(buffer) == BUFFER_BYTES:
            self._free.append(buffer)
