"""Files on a disk of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, pieces: Iterable[bytes], temporary: Path) -> None:
    """Replace a file as a whole: readers see the old content or the new, also after a crash."""
    temp = temporary / path.name
    with temp.open("wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    temp.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Force names to disk: a rename is durable only with the directory that holds it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
