"""Inputs on a disk that goes bad: what lies in some stretch of a file cannot be read, or is cut off.

They pickle, so a worker of ultra has them, too, if `tests.support.mishaps.in_new_processes` has put this on its path.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tokenmill.storage.local import LocalSource, LocalStorage


class Mishap(Protocol):
    """Happens when somebody reads any of a stretch; whoever looks at the edges of a file only, sees nothing of it."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    def happen(self, path: Path) -> None: ...


@dataclass(frozen=True)
class BadStretch:
    """Reading fails with this error."""

    start: int
    end: int
    error: int = errno.EIO

    def happen(self, _: Path) -> None:
        raise OSError(self.error, os.strerror(self.error))


@dataclass(frozen=True)
class CutOff:
    """Another program cuts the file off."""

    start: int
    end: int

    def happen(self, path: Path) -> None:
        os.truncate(path, self.start)


@dataclass(frozen=True)
class FailingInputs(LocalStorage):
    mishaps: Mapping[str, Mishap] = field(default_factory=dict)

    def open(self, name: str) -> LocalSource:
        mishap = self.mishaps.get(name)
        return super().open(name) if mishap is None else FailingSource(self.root / name, mishap)


class FailingSource(LocalSource):
    """Has no descriptor, so that nobody can read around it: Arrow asks for its bytes, too."""

    _is_hidden = False

    def __init__(self, path: Path, mishap: Mishap) -> None:
        super().__init__(path)
        self._path = path
        self._mishap = mishap
        self._is_hidden = bool(self.stat)  # which takes the descriptor

    def _check(self, size: int) -> None:
        position = self.tell()
        if position < self._mishap.end and self._mishap.start < position + size:
            self._mishap.happen(self._path)

    def read(self, size: int | None = -1, /) -> bytes:
        size = self.stat.size if size is None or size < 0 else size
        self._check(size)
        return super().read(size) or b""

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # type: ignore[override]
        self._check(len(buffer))
        return super().readinto(buffer) or 0

    def fileno(self) -> int:
        if self._is_hidden:
            raise io.UnsupportedOperation("fileno")
        return super().fileno()
