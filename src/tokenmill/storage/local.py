"""Files on a disk of this machine: the only module that knows fsync, rename, flock and fadvise.

publish   the draft folder -> fsync -> rename -> fsync of the folder
draft     stays in the draft folder under its base name until it is published
lock      the kernel's: it dies with its process, whoever that was
"""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
import resource
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tokenmill.errors import OpenFilesError
from tokenmill.messages import printable
from tokenmill.storage.base import Draft, Entry, Stat, closed_on_failure

PREFETCH_BYTES = 2 << 20  # no mutant: a hint, of which the kernel takes only a few megabytes at a time


@contextmanager
def within_limit() -> Iterator[None]:
    """Raise OpenFilesError where a file cannot be opened because too many are."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise open_files_error() from error


def open_files_error() -> OpenFilesError:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    higher = "" if limit == most else f", of {most} that are allowed"
    return OpenFilesError(
        f"a process may have {limit} open files here (`ulimit -n`{higher}), which is too few. Allow more, e.g. with "
        "`ulimit -n 1024`, or use fewer --num-workers, and run the command again: everything committed is safe"
    )


@dataclass(frozen=True)
class LocalStorage:
    """The files below a folder. Drafts are made in `draft_folder`, on the same disk."""

    root: Path
    draft_folder: Path | None = None

    @property
    def location(self) -> str:
        return str(self.root)

    def describe(self, name: str = "") -> str:
        return printable(self._path(name))

    def _path(self, name: str) -> Path:
        return self.root / name if name else self.root

    # reading

    def list(self, folder: str = "") -> list[Entry]:
        with within_limit(), os.scandir(self._path(folder)) as entries:
            return [_entry(entry) for entry in entries]

    def identify(self, folder: str) -> str:
        status = os.stat(self._path(folder))
        return f"{status.st_dev}:{status.st_ino}"

    def stat(self, name: str) -> Stat:
        return _stat(os.stat(self._path(name)))

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        with self.open(name) as file:
            file.seek(start)
            return file.read() if end is None else file.read(max(0, end - start))

    def open(self, name: str) -> LocalSource:
        return LocalSource(self._path(name))

    def map(self, name: str) -> memoryview:
        with self.open(name) as file:
            return file.map(0, file.stat.size)

    def prefetch(self, name: str, start: int, end: int) -> None:
        with suppress(OSError, AttributeError):  # which not every system has
            handle = os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK)  # or a pipe would have us wait for a writer
            try:
                for offset in range(start, end, PREFETCH_BYTES):
                    os.posix_fadvise(handle, offset, min(PREFETCH_BYTES, end - offset), os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)

    # whole files

    def publish(self, name: str, pieces: Iterable[bytes]) -> None:
        temporary, path = self._draft_path(name), self._path(name)
        _write(temporary, pieces)
        os.rename(temporary, path)
        _sync_folder(path.parent)

    def create(self, name: str, pieces: Iterable[bytes]) -> None:
        # Of several who create one file at once each has a file of its own, until one gets the name.
        temporary = self._draft_path(f"{name}.{uuid4().hex}")
        path = self._path(name)
        _write(temporary, pieces)
        try:
            os.link(temporary, path)  # unlike a rename, it fails if the name is taken
            _sync_folder(path.parent)
        finally:
            os.unlink(temporary)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def make_folder(self, folder: str) -> None:
        path = self._path(folder)
        # What is forced to disk in a folder later is of no use if the folder's own name is lost.
        new = list(takewhile(lambda p: not p.exists(), (path, *path.parents)))
        path.mkdir(parents=True, exist_ok=True)
        for made in new:
            if made == path and folder:
                continue  # which is for whoever syncs the folder above
            with suppress(PermissionError):  # one may be allowed to write to a folder, and not to read it
                _sync_folder(made.parent)

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self._path(folder), ignore_errors=True)

    def sync(self, folder: str = "") -> None:
        _sync_folder(self._path(folder))

    # drafts

    def _draft_path(self, name: str) -> Path:
        return self._drafts_path() / os.path.basename(name)

    def _drafts_path(self) -> Path:
        if self.draft_folder is None:
            raise io.UnsupportedOperation(f"{self.describe()} was opened to be read only")
        return self.draft_folder

    def draft(self, name: str, size: int = 0) -> LocalDraft:
        return LocalDraft(name, self._draft_path(name), size)

    def drafts(self) -> Iterator[tuple[str, int]]:
        # There may be no folder yet; and others may publish or remove what is listed.
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._drafts_path()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def open_draft(self, name: str) -> LocalSource:
        return LocalSource(self._draft_path(name))

    def sync_drafts(self, drafts: Sequence[Draft]) -> None:
        own = _own(drafts)
        for draft in own:
            draft.sync()
        if not all(draft.is_name_synced for draft in own):
            _sync_folder(self._drafts_path())
            for draft in own:
                draft.is_name_synced = True

    def publish_drafts(self, drafts: Sequence[Draft]) -> None:
        own = _own(drafts)
        for draft in own:
            draft.sync()
            draft.close()
        paths = [self._path(draft.name) for draft in own]
        for draft, path in zip(own, paths, strict=True):
            os.rename(draft.path, path)
        for folder in dict.fromkeys(path.parent for path in paths):
            _sync_folder(folder)

    def unpublish(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.rename(self._path(name), self._draft_path(name))

    def remove_drafts(self, names: Iterable[str] | None = None) -> None:
        if names is None:
            for path in [self._draft_path(name) for name, _ in self.drafts()]:
                with suppress(OSError):  # which is no reason to fail: none of them is needed
                    path.unlink()
            return
        for name in names:
            self._draft_path(name).unlink(missing_ok=True)

    # logs and locks

    def append(self, name: str) -> BinaryIO:
        path = self._path(name)
        _refuse_special(path, missing_ok=True)
        with within_limit():
            return path.open("ab", buffering=0)

    @contextmanager
    def locked(self, name: str) -> Iterator[tuple[int, ...]]:
        mode = 0o644  # no mutant: what others may do with an empty file does not matter
        handle = os.open(self._path(name), os.O_RDWR | os.O_CREAT, mode)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield (handle,)
        finally:
            os.close(handle)


class LocalSource(io.FileIO):
    """A file opened to be read, without a buffer: readers ask for large pieces."""

    def __init__(self, path: Path) -> None:
        with within_limit():
            _refuse_special(path)
            super().__init__(os.fspath(path), "rb")

    def read(self, size: int | None = -1, /) -> bytes:
        """As much as is asked for: one call of the system may give less, on a network disk for example."""
        data = super().read(size)
        if size is None or size < 0 or not data or len(data) == size:
            return data or b""
        found = bytearray(data)
        while len(found) < size and (data := super().read(size - len(found))):
            found += data
        return bytes(found)

    def map(self, start: int, end: int) -> memoryview:
        if start >= end:
            return memoryview(b"")
        begin = start - start % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(self.fileno(), end - begin, access=mmap.ACCESS_READ, offset=begin)
        except ValueError as error:  # which is how it says that the file is shorter
            raise OSError(errno.EIO, "the file is shorter than it was") from error
        return memoryview(mapped)[start - begin :]

    @cached_property
    def stat(self) -> Stat:
        return _stat(os.fstat(self.fileno()))


class LocalDraft:
    """A draft in the draft folder."""

    def __init__(self, name: str, path: Path, size: int) -> None:
        self.name = name
        self.path = path
        self.is_name_synced = False
        """Whether the name is known to be on disk."""
        _refuse_special(path, missing_ok=True)
        with within_limit():
            self._file = io.FileIO(path, "r+" if size else "w+")
        if size:
            self._cut_off(size)

    def _cut_off(self, size: int) -> None:
        with closed_on_failure(self._file.close):
            if os.fstat(self._file.fileno()).st_size < size:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
            self._file.truncate(size)
            self._file.seek(size)

    def write(self, data: bytes | memoryview, /) -> None:
        view = memoryview(data)
        written = 0
        while written < view.nbytes:  # an unbuffered write may be short, e.g. above 2 GiB or when a signal arrives
            rest = view.cast("B")[written:] if written else view
            written += self._file.write(rest) or 0

    def read(self, size: int, /) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, /) -> int:
        return self._file.seek(offset)

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _own(drafts: Sequence[Draft]) -> list[LocalDraft]:
    if foreign := [draft.name for draft in drafts if not isinstance(draft, LocalDraft)]:
        raise TypeError(f"{foreign[0]} is not a draft of this storage")
    return [draft for draft in drafts if isinstance(draft, LocalDraft)]


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a whole file and force it to disk."""
    _refuse_special(path, missing_ok=True)
    with within_limit(), path.open("wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


def _entry(entry: os.DirEntry[str]) -> Entry:
    try:
        return Entry(entry.name, entry.is_dir(), entry.is_symlink())
    except OSError:
        return Entry(entry.name, False, True)  # a link to itself, say: for whoever opens it to report


def _stat(status: os.stat_result) -> Stat:
    version = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    return Stat(status.st_size, version, stat.S_ISREG(status.st_mode))


_SPECIAL = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _refuse_special(path: Path, *, missing_ok: bool = False) -> None:
    """Before it is opened: a pipe would have us wait for somebody at its other end, and a device may have no end."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    for is_one, what in _SPECIAL:
        if is_one(mode):
            raise OSError(errno.EINVAL, f"it is {what}, not a file", os.fspath(path))


def _sync_folder(path: Path) -> None:
    """Force names to disk: a rename is durable only with the folder that holds it."""
    with within_limit():
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
