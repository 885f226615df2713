"""A limit on how long something may take that would otherwise wait for ever."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in this thread, the main one, if it takes longer."""

    def too_late(*_: object) -> NoReturn:
        raise TimeoutError(f"still waiting after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
