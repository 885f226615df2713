"""What tokenmill asks of a place where files lie.

Names are relative to the storage's root and use forward slashes. Two halves:

    Reading   list, stat, read a range, open (stream), map, prefetch          inputs need no more
    Storage   publish (whole or not at all), create (only if it is not there), remove, and drafts: files that grow

A name that is published, and what stands behind it, survives a power loss once the call returns. A name that is removed
is gone at once, but may come back after a power loss until its folder is synced. A draft is not seen by anybody before
it is published; what was synced of it is still there after a crash, where the storage can keep it.

tests/storage/contract.py is the contract in full: any implementation must pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Protocol, Self


@contextmanager
def closed_on_failure(*closes: Callable[[], None]) -> Iterator[None]:
    """On a full disk a file fails as it is begun, and whoever begins it has no name for it yet."""
    try:
        yield
    except BaseException:
        for close in closes:
            close()
        raise


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder, or (`is_link`) a link to something elsewhere."""

    name: str
    is_folder: bool
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class Stat:
    """`version` changes whenever the file is replaced or written to; a pipe or a folder is not a file."""

    size: int
    version: str
    is_file: bool = True


class Source(Protocol):
    """A file opened to be read: a stream that can be started anywhere.

    `stat` is of the very file that was opened, whatever its name stands for by now.
    """

    @property
    def stat(self) -> Stat: ...
    def read(self, size: int = -1, /) -> bytes:
        """Fewer bytes than asked for only at the end of the file."""
        ...

    def readinto(self, buffer: memoryview | bytearray, /) -> int | None: ...
    def map(self, start: int, end: int) -> memoryview:
        """These bytes, read-only, brought into memory as they are touched. OSError if the file ends before them.

        Should the file be cut off later, touching what is gone ends the process, on a disk.
        """
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Draft(Protocol):
    """A file that is being made under its final name, which nobody sees yet."""

    name: str

    def write(self, data: bytes | memoryview, /) -> None:
        """Write all of it at the current position."""
        ...

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...

    def close(self) -> None:
        """Let go of it. It stays, to be taken up again."""
        ...


class Reading(Protocol):
    """The half that inputs need. What is not there raises FileNotFoundError, what cannot be read another OSError."""

    @property
    def location(self) -> str:
        """Where the root is: what a user would write to name it."""
        ...

    def describe(self, name: str = "") -> str:
        """Where this lies, for messages; printable."""
        ...

    def list(self, folder: str = "") -> list[Entry]:
        """What is directly in a folder, in no particular order."""
        ...

    def identify(self, folder: str) -> str:
        """The same text for the same folder, by whatever name it is reached."""
        ...

    def stat(self, name: str) -> Stat: ...

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a range, or fewer where the file ends."""
        ...

    def open(self, name: str) -> Source: ...

    def map(self, name: str) -> memoryview:
        """The whole file, read-only, brought into memory as it is touched."""
        ...

    def prefetch(self, name: str, start: int, end: int) -> None:
        """A hint that this range is wanted soon. Never fails."""
        ...


class Storage(Reading, Protocol):
    """All of it: what an output needs."""

    def publish(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file as a whole: readers see the old content or the new, also after a crash."""
        ...

    def create(self, name: str, pieces: Iterable[bytes]) -> None:
        """Publish a file that is not there yet; FileExistsError if it is, and then nothing has changed."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Those that are there; for good once their folders are synced."""
        ...

    def make_folder(self, folder: str) -> None:
        """Where folders exist by themselves, have this one; for good once the folder above it is synced."""
        ...

    def remove_folder(self, folder: str) -> None:
        """With all that is in it, if it is there; for good once the folder above it is synced."""
        ...

    def sync(self, folder: str = "") -> None:
        """What was made and removed directly in a folder stays made and removed, also after a power loss."""
        ...

    def draft(self, name: str, size: int = 0) -> Draft:
        """Begin a file, or take up a draft behind its first `size` bytes; what lies there is cut off.

        FileNotFoundError if there is no draft of that base name, or a shorter one. Base names of drafts differ.
        """
        ...

    def drafts(self) -> Iterator[tuple[str, int]]:
        """The base names of all drafts that could be taken up, and their sizes."""
        ...

    def open_draft(self, name: str) -> Source:
        """What has been written of a draft so far, by whoever writes it."""
        ...

    def sync_drafts(self, drafts: Sequence[Draft]) -> None:
        """What was written of these can be taken up again, even after a power loss."""
        ...

    def publish_drafts(self, drafts: Sequence[Draft]) -> None:
        """Close and publish these; each appears whole, the last one last."""
        ...

    def unpublish(self, name: str) -> None:
        """Turn a published file back into a draft, if it is there."""
        ...

    def remove_drafts(self, names: Iterable[str] | None = None) -> None:
        """These drafts, by base name, or all of them."""
        ...

    def append(self, name: str) -> BinaryIO:
        """A log to write to, from its end on; nothing that counts may depend on it."""
        ...

    def locked(self, name: str) -> AbstractContextManager[tuple[int, ...]]:
        """Hold a lock that dies with its holder; BlockingIOError if another one has it.

        Gives the handles that a child process must inherit to hold it, too.
        """
        ...
