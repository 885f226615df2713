"""Events that stop a run when something is the case.

A run asks the event that it is given after every block, so an event is also a way to look at, or to do, something
while a job runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class StopWhen(threading.Event):
    """Is set as soon as a condition holds."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self._condition = condition

    def is_set(self) -> bool:
        return self._condition()


class LookAfterEachBlock(threading.Event):
    """Keeps what is seen after each block; is set after so many of them, or never."""

    def __init__(self, look: Callable[[], Any] = lambda: None, stop_after: int | None = None) -> None:
        super().__init__()
        self._look = look
        self._stop_after = stop_after
        self.seen: list[Any] = []

    def is_set(self) -> bool:
        self.seen.append(self._look())
        return len(self.seen) == self._stop_after


def stop_at_checkpoint(output: Path) -> StopWhen:
    """Once some unit of this output has a checkpoint."""
    return StopWhen(lambda: any((output / "units").glob("*.checkpoint.json")))


def stop_at_units(output: Path, count: int) -> StopWhen:
    """Once there are so many checkpoints and receipts."""
    return StopWhen(lambda: len(list((output / "units").glob("*.json"))) >= count)
