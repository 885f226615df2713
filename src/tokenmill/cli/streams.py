"""The standard streams, whatever they are: closed, full, or with nobody at the other end.

A message that cannot be written is lost, and the work goes on. A result that cannot be written is an error; but whoever
stops reading, as `head` does, has seen enough.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from tokenmill.errors import OutputError, TokenmillError

log = logging.getLogger("tokenmill")


def open_streams() -> None:
    """Make all three usable. To be called before a file is opened: it would get the number of a closed stream.

    Then whatever prints, here or in a worker process, would write into that file.
    """
    # In this order each gets the lowest free number, its own. What is written to 1 still fails, as it would if it were
    # closed; what is written to 2 is lost.
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)
            os.set_inheritable(descriptor, True)
    # Python has none where the descriptor was closed.
    stdout = sys.stdout or _text(1)
    stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout = stdout
    sys.stderr = cast(TextIO, _Messages(sys.stderr or _text(2)))


def _text(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


class _Messages:
    """A stream that never fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def result_on_stdout() -> Iterator[None]:
    """For a command whose result is what it prints."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if isinstance(error, TokenmillError):  # which is about something else
            raise
        _give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"cannot write to standard output: {error.strerror or error}") from error


@contextmanager
def summary_on_stdout() -> Iterator[None]:
    """For a command whose result is elsewhere: in files, or its exit code."""
    try:
        with result_on_stdout():
            yield
    except OutputError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError):  # which is about something else
            raise
        if cause.errno != errno.EBADF:  # closed: then nobody wants to know
            log.warning("%s. The exit code tells how the command ended", error)


def _give_up_stdout() -> None:
    """What is still in the buffer goes nowhere: else Python would try once more when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    sys.stdout.flush()
