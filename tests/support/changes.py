"""Changes of a file that only one thing tells of: its time, its identity, or its size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.conftest import texts


def rewrite(path: Path) -> None:
    """In place: only the time is another one."""
    path.write_bytes(path.read_bytes().replace(b"first", b"other"))


def swap(path: Path) -> None:
    """By a copy that keeps size and time, as `rsync -t` puts it there: only the file is another one."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def append(path: Path) -> None:
    """With the time set back: only the size is another one."""
    before = path.stat()
    with path.open("ab") as file:
        file.write(texts("more"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
