"""Room for large documents: one that takes more memory than a worker has for itself holds back the others.

Encoding a document takes about ten times its size. For ordinary ones that is part of what every worker is given. What
the budget leaves beyond that is room which all workers share.

    threads     a count of bytes in use: who would go beyond what there is waits
    processes   a lock that dies with its holder: shared for what is within a worker's part of the room, else exclusive
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

ORDINARY_BYTES = 2 << 20
"""A block of this size is part of what a worker is given."""
COST = 10
"""Bytes that it takes to parse and encode a byte of a document. Measured: 8 to 10."""


class Room(Protocol):
    """Asked before a block is parsed and encoded."""

    def hold(self, size: int) -> AbstractContextManager[None]:
        """Wait until there is room for a block of so many bytes, and keep it until the end."""
        ...


class Unlimited:
    """For a worker that is alone: there is nobody to wait for."""

    def hold(self, size: int) -> AbstractContextManager[None]:  # noqa: ARG002 - whatever it is
        return nullcontext()


class ThreadRoom:
    """Room that the threads of this process share."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        need = _extra(size)
        if not need:
            yield
            return
        with self._changed:
            # What is larger than all of the room gets it alone: to wait longer would not help.
            self._changed.wait_for(lambda: not self._used or self._used + need <= self._total)
            self._used += need
        try:
            yield
        finally:
            with self._changed:
                self._used -= need
                self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class ProcessRoom:
    """Room that worker processes share, by a lock on a file that all of them inherit."""

    lock_descriptor: int
    share: int
    """A worker's part of the room."""

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        need = _extra(size)
        if not need:
            yield
            return
        fcntl.lockf(self.lock_descriptor, fcntl.LOCK_SH if need <= self.share else fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.lock_descriptor, fcntl.LOCK_UN)


def _extra(size: int) -> int:
    """What a block takes beyond what its worker is given."""
    return COST * (size - ORDINARY_BYTES) if size > ORDINARY_BYTES else 0
