"""Lists that may be long are kept in files, a JSON value per line, and read as often as needed."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tokenmill.errors import OutputError
from tokenmill.messages import printable


@contextmanager
def _no_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        folder = printable(tempfile.gettempdir())
        raise OutputError(
            f"cannot write temporary data to {folder}: {error.strerror}. Make room, or name another folder in TMPDIR"
        ) from error


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # what could not be written was reported when it was needed
        file.close()


class Spool:
    """Values in a file: a new one that is gone with the process, or one that is there."""

    def __init__(self, values: Iterable[Any] = (), *, path: Path | None = None) -> None:
        # ruff's way, a `with`, does not fit: the file lives as long as this object.
        self._file = tempfile.TemporaryFile() if path is None else path.open("rb")  # noqa: SIM115
        weakref.finalize(self, _close, self._file)
        self._count = 0
        for value in values:
            self.append(value)

    def append(self, value: Any) -> None:
        # ASCII with escapes: any file name can be written.
        line = json.dumps(value, sort_keys=True).encode("ascii") + b"\n"
        with _no_room():
            self._file.write(line)
        self._count += 1

    def __len__(self) -> int:
        """How many values were appended."""
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return map(json.loads, self.lines())

    def lines(self) -> Iterator[bytes]:
        """All lines, to one reader at a time."""
        with _no_room():
            self._file.seek(0)  # which writes out what is buffered
        for line in self._file:  # noqa: UP028 - `yield from` would close the file with the generator
            yield line

    def read(self, start: int, end: int) -> Any:
        """The value at these bytes; not at the file's own position, so any thread may ask."""
        return json.loads(os.pread(self._file.fileno(), end - start, start))
