"""Files in the memory of this process: a storage whose every step can be watched, made to fail, or cut short.

For tests of faults. `watch` is told of each operation before it happens, and may raise what a disk would raise;
`after_power_loss` is what would be left if power were lost now: what was synced, and nothing else. As on a disk, the
content of a file and the names in a folder are synced apart from each other.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import BinaryIO, NoReturn, Self, TypeVar

from tokenmill.messages import printable
from tokenmill.storage.base import Draft, Entry, Stat

Watch = Callable[[str, str], None]
"""Told of an operation ("publish", "read", …) and the name it is about."""

T = TypeVar("T")

_versions = count()


class _File:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = bytes(data)
        self.touch()

    def touch(self) -> None:
        self.version = str(next(_versions))

    def sync(self) -> None:
        self.synced = bytes(self.data)

    @property
    def stat(self) -> Stat:
        return Stat(len(self.data), self.version)


@dataclass(eq=False)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)

    def sync(self) -> None:
        self.synced = dict(self.names)

    def after_power_loss(self) -> _Folder:
        found = _Folder()
        for name, node in self.synced.items():
            found.names[name] = node.after_power_loss() if isinstance(node, _Folder) else _File(node.synced)
        found.sync()
        return found

    def files(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        for name, node in list(self.names.items()):
            if isinstance(node, _Folder):
                yield from node.files(f"{prefix}{name}/")
            else:
                yield prefix + name, bytes(node.data)


class MemoryStorage:
    """A storage in dictionaries. It cannot leave its process."""

    def __init__(self, files: Mapping[str, bytes] | None = None, watch: Watch = lambda _operation, _name: None) -> None:
        self.watch = watch
        self._root = _Folder()
        self._drafts = _Folder()
        self._locks: set[str] = set()
        # Units may run on several threads, and names are changed in more than one step.
        self._changing = threading.Lock()
        for name, data in (files or {}).items():
            self._put(name, _File(data)).sync()

    def __reduce__(self) -> NoReturn:
        raise TypeError("files in memory cannot be sent to another process: use a directory")

    def files(self) -> dict[str, bytes]:
        """Everything that is published, by name."""
        return dict(sorted(self._root.files()))

    def after_power_loss(self) -> Self:
        """What is found when power comes back."""
        found = type(self)()
        found._root, found._drafts = self._root.after_power_loss(), self._drafts.after_power_loss()
        return found

    @property
    def location(self) -> str:
        return "memory:"

    def describe(self, name: str = "") -> str:
        return printable(f"memory:{name}")

    # finding

    def _node(self, name: str) -> _File | _Folder:
        node: _File | _Folder = self._root
        for part in name.split("/") if name else ():
            if not isinstance(node, _Folder):
                raise _error(errno.ENOTDIR, name)
            if part not in node.names:
                raise _error(errno.ENOENT, name)
            node = node.names[part]
        return node

    def _file(self, name: str) -> _File:
        if isinstance(node := self._node(name), _Folder):
            raise _error(errno.EISDIR, name)
        return node

    def _folder(self, name: str) -> _Folder:
        if not isinstance(node := self._node(name), _Folder):
            raise _error(errno.ENOTDIR, name)
        return node

    def _put(self, name: str, file: _File, *, only_if_new: bool = False) -> _Folder:
        """Give a file its name; gives the folder it is in. One that nobody has made comes with it, for good."""
        above, _, base = name.rpartition("/")
        folder, path = self._root, ""
        with self._changing:
            for part in above.split("/") if above else ():
                path = f"{path}/{part}" if path else part
                if part not in folder.names:
                    folder.names[part] = folder.synced[part] = _Folder()
                folder = self._folder(path)
            if only_if_new and base in folder.names:
                raise _error(errno.EEXIST, name)
            if isinstance(folder.names.get(base), _Folder):
                raise _error(errno.EISDIR, name)
            folder.names[base] = file
        return folder

    def _take(self, name: str, kind: type[T]) -> T | None:
        """Take a name from its folder, if it is there and names such a thing."""
        above, _, base = name.rpartition("/")
        with suppress(FileNotFoundError), self._changing:
            folder = self._folder(above)
            if isinstance(node := folder.names.get(base), kind):
                del folder.names[base]
                return node
        return None

    # reading

    def list(self, folder: str = "") -> list[Entry]:
        self.watch("list", folder)
        return [Entry(name, isinstance(node, _Folder)) for name, node in list(self._folder(folder).names.items())]

    def identify(self, folder: str) -> str:
        self.watch("identify", folder)
        return str(id(self._folder(folder)))

    def stat(self, name: str) -> Stat:
        self.watch("stat", name)
        node = self._node(name)
        if isinstance(node, _File):
            return node.stat
        return Stat(0, str(id(node)), is_file=False)  # no mutant: the size of a folder means nothing

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        self.watch("read", name)
        return bytes(self._file(name).data[start:end])

    def open(self, name: str) -> MemorySource:
        self.watch("open", name)
        return self._source(name, self._file(name))

    def _source(self, name: str, file: _File) -> MemorySource:
        return MemorySource(bytes(file.data), file.stat, lambda: self.watch("read", name))

    def map(self, name: str) -> memoryview:
        self.watch("map", name)
        return memoryview(bytes(self._file(name).data))

    def prefetch(self, name: str, start: int, end: int) -> None:  # noqa: ARG002 - it is all in memory
        with suppress(OSError):
            self.watch("prefetch", name)

    # whole files

    def publish(self, name: str, pieces: Iterable[bytes]) -> None:
        self.watch("publish", name)
        self._put(name, _File(b"".join(pieces))).sync()

    def create(self, name: str, pieces: Iterable[bytes]) -> None:
        self.watch("create", name)
        self._put(name, _File(b"".join(pieces)), only_if_new=True).sync()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.watch("remove", name)
            self._take(name, _File)

    def make_folder(self, folder: str) -> None:
        self.watch("make_folder", folder)
        node, path = self._root, ""
        for part in folder.split("/") if folder else ():
            path = f"{path}/{part}" if path else part
            if isinstance(node.names.setdefault(part, _Folder()), _File):
                raise _error(errno.EEXIST if path == folder else errno.ENOTDIR, folder)
            if path != folder:
                node.sync()
            node = self._folder(path)

    def remove_folder(self, folder: str) -> None:
        self.watch("remove_folder", folder)
        self._take(folder, _Folder)

    def sync(self, folder: str = "") -> None:
        self.watch("sync", folder)
        self._folder(folder).sync()

    # drafts

    def draft(self, name: str, size: int = 0) -> MemoryDraft:
        self.watch("draft", name)
        base = _base(name)
        file = self._draft_file(name) if size else _File()
        if len(file.data) < size:
            raise _error(errno.ENOENT, name)
        self._drafts.names[base] = file
        del file.data[size:]
        return MemoryDraft(name, file, lambda operation: self.watch(operation, name))

    def _draft_file(self, name: str) -> _File:
        if not isinstance(node := self._drafts.names.get(_base(name)), _File):
            raise _error(errno.ENOENT, name)
        return node

    def drafts(self) -> Iterator[tuple[str, int]]:
        self.watch("drafts", "")
        yield from [(name, len(data)) for name, data in self._drafts.files()]

    def open_draft(self, name: str) -> MemorySource:
        self.watch("open_draft", name)
        return self._source(name, self._draft_file(name))

    def sync_drafts(self, drafts: Sequence[Draft]) -> None:
        for draft in _own(drafts):
            self.watch("sync_draft", draft.name)
            draft.file.sync()
        self._drafts.sync()

    def publish_drafts(self, drafts: Sequence[Draft]) -> None:
        folders = []
        for draft in _own(drafts):
            self.watch("publish_draft", draft.name)
            draft.file.sync()
            draft.close()
            folders.append(self._put(draft.name, draft.file))
            # Where it is moved from is not synced: after a power loss it may be found there, too.
            self._drafts.names.pop(_base(draft.name), None)
        for folder in folders:
            folder.sync()

    def unpublish(self, name: str) -> None:
        self.watch("unpublish", name)
        if (file := self._take(name, _File)) is not None:
            self._drafts.names[_base(name)] = file

    def remove_drafts(self, names: Iterable[str] | None = None) -> None:
        self.watch("remove_drafts", "")
        for name in list(self._drafts.names) if names is None else names:
            self._drafts.names.pop(name, None)

    # logs and locks

    def append(self, name: str) -> BinaryIO:
        self.watch("append", name)
        try:
            file = self._file(name)
        except FileNotFoundError:
            self._put(name, file := _File())
        return MemoryLog(file)  # type: ignore[return-value] # a raw file is one, but does not say so

    @contextmanager
    def locked(self, name: str) -> Iterator[tuple[int, ...]]:
        self.watch("lock", name)
        with self._changing:
            if name in self._locks:
                raise _error(errno.EWOULDBLOCK, name)
            self._locks.add(name)
        try:
            yield ()
        finally:
            self._locks.discard(name)


class MemorySource(io.BytesIO):
    """A file opened to be read: what it was when it was opened."""

    def __init__(self, data: bytes, stat: Stat, before_read: Callable[[], None]) -> None:
        super().__init__(data)
        self.stat = stat
        self._before_read = before_read

    def read(self, size: int | None = -1, /) -> bytes:  # no mutant: anything below 0 is all of it
        self._before_read()
        return super().read(size)

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # type: ignore[override]
        self._before_read()
        return super().readinto(buffer)

    def map(self, start: int, end: int) -> memoryview:
        self._before_read()
        if end > self.stat.size:
            raise _error(errno.EIO, "the file is shorter than it was")
        return memoryview(self.getvalue())[start:end]


class MemoryLog(io.RawIOBase):
    """A file opened to be added to."""

    def __init__(self, file: _File) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self._file.data += data
        self._file.touch()
        return len(data)


class MemoryDraft:
    """A draft in memory."""

    def __init__(self, name: str, file: _File, watch: Callable[[str], None]) -> None:
        self.name = name
        self.file = file
        self._watch = watch
        self._position = len(file.data)
        self._is_open = True

    def write(self, data: bytes | memoryview, /) -> None:
        self._watch("write")
        self._check()
        written = bytes(data)
        self.file.data[self._position : self._position + len(written)] = written
        self.file.touch()
        self._position += len(written)

    def read(self, size: int, /) -> bytes:
        self._watch("read")
        self._check()
        found = bytes(self.file.data[self._position : self._position + size])
        self._position += len(found)
        return found

    def seek(self, offset: int, /) -> int:
        self._check()
        self._position = offset
        return offset

    def _check(self) -> None:
        if not self._is_open:
            raise ValueError("I/O operation on closed file")

    def close(self) -> None:
        self._is_open = False


def _own(drafts: Sequence[Draft]) -> list[MemoryDraft]:
    if foreign := [draft.name for draft in drafts if not isinstance(draft, MemoryDraft)]:
        raise TypeError(f"{foreign[0]} is not a draft of this storage")
    return [draft for draft in drafts if isinstance(draft, MemoryDraft)]


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)


def _base(name: str) -> str:
    return name.rpartition("/")[2]
