"""Lists that may be long are kept in files, a line for each value, and read as often as needed."""

from __future__ import annotations

import io
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from tokenmill.errors import OutputError
from tokenmill.messages import printable
from tokenmill.storage.base import Source
from tokenmill.storage.local import within_limit


@contextmanager
def _no_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write temporary data to {_folder()}: {error.strerror}. Make room, or name another folder in TMPDIR"
        ) from error


def _folder() -> str:
    try:
        return printable(tempfile.gettempdir())
    except OSError:  # it tries them all
        return "any of the usual folders"


def _temporary() -> IO[bytes]:
    with _no_room(), within_limit():
        return tempfile.TemporaryFile()  # which lives as long as its Spool


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # what could not be written was reported when it was needed
        file.close()


def lines_of(source: Source) -> Iterator[bytes]:
    """The lines of an opened file, each with its end; the file is closed after the last."""
    with _buffered(source) as file:
        yield from file


class Spool:
    """Lines in a file: a new one that is gone with the process, or an opened one."""

    def __init__(self, source: Source | None = None) -> None:
        self._file: IO[bytes] = _temporary() if source is None else _buffered(source)
        weakref.finalize(self, _close, self._file)
        self._lock = threading.Lock()
        self._count = 0

    def append(self, line: str) -> None:
        with _no_room():
            self._file.write(line.encode("ascii"))
        self._count += 1

    def __len__(self) -> int:
        """How many lines were appended."""
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """All lines, to one reader at a time."""
        with _no_room():
            self._file.seek(0)  # which writes out what is buffered
        for line in self._file:  # noqa: UP028 - `yield from` would close the file with the generator
            yield line

    def read(self, start: int, end: int) -> bytes:
        """These bytes; any thread may ask."""
        try:
            return os.pread(self._file.fileno(), end - start, start)
        except io.UnsupportedOperation:  # not a file of this machine
            with self._lock:
                self._file.seek(start)
                return self._file.read(end - start)


def _buffered(source: Source) -> IO[bytes]:
    # no mutant: only speed depends on it
    return io.BufferedReader(source) if isinstance(source, io.RawIOBase) else source  # type: ignore[return-value]
