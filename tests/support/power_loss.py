"""A disk that loses what was not forced to it: what may be found after a power loss, at any step of a run.

The promises of POSIX and no more: `fsync` of a file saves its content, not its name; `fsync` of a directory saves the
names in it, not the content behind them. So what is found is

    of a file       its content at its last fsync, empty if there was none
    of a directory  its names (made, renamed, removed) at its last fsync, none if there was none

That is the least. A system may save more of its own accord: each directory may also be found as it was at the moment
of the loss, whatever the others are, and the contents of all files too. All of these are looked at, at every step; not
that a directory has saved some of its changes and not others.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

IGNORED = {"logs"}  # nothing in there decides anything

Names = dict[str, int]
"""The names in a directory, each with the number of what it names."""


@dataclass(frozen=True)
class Remains:
    """What is found after a power loss: names of files with their content, and names of directories, with a slash."""

    step: str
    files: dict[str, bytes]
    least: bool
    """Nothing but what was forced to disk."""

    def below(self, folder: str) -> dict[str, bytes]:
        """The files in a folder, by their names in there."""
        found = {n.removeprefix(f"{folder}/"): data for n, data in self.files.items() if n.startswith(f"{folder}/")}
        return {name: data for name, data in found.items() if name and not name.endswith("/")}

    def write(self, top: Path) -> None:
        """Make them real."""
        for name, data in self.files.items():
            path = top / name
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


@dataclass
class _Inode:
    """A file or directory. It is kept open, so that its number is not given to another while it may be found."""

    handle: int
    is_directory: bool
    names: Names = field(default_factory=dict)
    saved_names: Names = field(default_factory=dict)
    content: bytes = b""
    saved_content: bytes = b""


class Disk:
    """Watches all below a folder. What is there at the beginning is on disk."""

    def __init__(self, top: Path) -> None:
        self._inodes: dict[int, _Inode] = {}
        self._lock = threading.Lock()
        self._seen: set[tuple[bool, frozenset[tuple[str, bytes]]]] = set()
        self.remains: list[Remains] = []
        """Everything that may be found after a loss, each once."""
        self._top = self._add(os.open(top, os.O_RDONLY))
        self._look()
        for inode in self._inodes.values():
            inode.saved_names, inode.saved_content = inode.names, inode.content

    def close(self) -> None:
        for inode in self._inodes.values():
            os.close(inode.handle)
        self._inodes.clear()

    def saved(self) -> Remains:
        """What is found if power is lost now, and nothing was saved that was not forced to disk."""
        return Remains("now", self._found(frozenset(), contents=False), least=True)

    def note(self, step: str) -> None:
        """Power may be lost before this step."""
        self._look()
        changed = [n for n, i in self._inodes.items() if i.names != i.saved_names]
        written = any(i.content != i.saved_content for i in self._inodes.values())
        for early in chain.from_iterable(combinations(changed, count) for count in range(len(changed) + 1)):
            for contents in (False, True) if written else (False,):
                least = not early and not contents
                files = self._found(frozenset(early), contents)
                key = (least, frozenset(files.items()))
                if key not in self._seen:
                    self._seen.add(key)
                    self.remains.append(Remains(step, files, least))

    def save(self, handle: int) -> None:
        """What fsync does, with what was noted last."""
        inode = self._inodes.get(os.fstat(handle).st_ino)
        if inode is not None:
            inode.saved_names, inode.saved_content = inode.names, inode.content

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note every step of this process that changes names, or forces anything to disk."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("rename", "replace", "link", "unlink", "remove", "rmdir", "mkdir", "truncate"):
                patch.setattr(os, name, self._noted(getattr(os, name)))
            for name in ("fsync", "fdatasync"):
                patch.setattr(os, name, self._saving(name))
            yield
            self.note("the end")

    def _noted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            with self._lock:
                self.note(f"{original.__name__} {' '.join(map(str, args))}")
                return original(*args, **options)

        return step

    def _saving(self, name: str) -> Callable[[int], None]:
        def step(handle: int) -> None:
            with self._lock:
                self.note(f"{name} {os.readlink(f'/proc/self/fd/{handle}')}")
                self.save(handle)  # and no more: the real disk has no part in this

        return step

    def _add(self, handle: int) -> int:
        status = os.fstat(handle)
        if status.st_ino in self._inodes:
            os.close(handle)
        else:
            self._inodes[status.st_ino] = _Inode(handle, stat.S_ISDIR(status.st_mode))
        return status.st_ino

    def _look(self) -> None:
        """Bring names and contents up to date, and forget what nobody can find any more."""
        known: set[int] = set()
        waiting = [self._top]
        while waiting:
            number = waiting.pop()
            if number in known:
                continue
            known.add(number)
            inode = self._inodes[number]
            if inode.is_directory:
                inode.names = dict(self._list(inode.handle))
                waiting += [*inode.names.values(), *inode.saved_names.values()]
            else:
                content = os.pread(inode.handle, os.fstat(inode.handle).st_size, 0)
                # The same object as long as it is equal: it is hashed often.
                inode.content = next((c for c in (inode.content, inode.saved_content) if c == content), content)
        for number in self._inodes.keys() - known:
            os.close(self._inodes.pop(number).handle)

    def _list(self, directory: int) -> Iterable[tuple[str, int]]:
        """Of a directory that was removed, too: it is empty."""
        for name in sorted(set(os.listdir(directory)) - IGNORED):
            number = os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
            if number not in self._inodes:
                self._add(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=directory))
            yield name, number

    def _found(self, early: frozenset[int], contents: bool) -> dict[str, bytes]:
        """All that can be found when these directories, and the contents or not, are as they are now."""
        found: dict[str, bytes] = {}
        waiting = [("", self._top)]
        while waiting:
            path, number = waiting.pop()
            inode = self._inodes[number]
            if inode.is_directory:
                found[f"{path}/"] = b""
                names = inode.names if number in early else inode.saved_names
                waiting += [(f"{path}/{name}" if path else name, child) for name, child in names.items()]
            else:
                found[path] = inode.content if contents else inode.saved_content
        del found["/"]
        return found
