"""How much of what is to be looked at has been: bytes, up to exactly all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Tally:
    """Counts bytes in steps of a known size. What a check leaves out of a step, for whatever reason, counts at its end.

    `tell` is told what is done, and of how much.
    """

    def __init__(self, total: int, tell: Callable[[int, int], None]) -> None:
        self._total = total
        self._tell = tell
        self._done = self._limit = 0

    @contextmanager
    def step(self, size: int) -> Iterator[None]:
        self._limit = self._done + size
        yield
        self.add(self._limit - self._done)

    def add(self, count: int) -> None:
        self._done = min(self._done + count, self._limit)
        self._tell(self._done, self._total)

    def expect(self, more: int) -> None:
        """There is this much more to look at, whatever was expected until now."""
        self._total = self._done + more
        self._tell(self._done, self._total)
