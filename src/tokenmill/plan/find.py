"""Files, directories and globs become names below one root, in the order of their bytes.

A folder that is reached twice, over all arguments, is walked once. A file may have several names: which of them are
links is told, so that whoever reads the files can read each once. Hard links are files of their own: nothing in a name
says that they are the same, and on the next disk they are not.
"""

from __future__ import annotations

import glob
import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tokenmill.errors import InputError
from tokenmill.messages import printable
from tokenmill.output import layout
from tokenmill.output.store import is_job
from tokenmill.storage.base import Reading
from tokenmill.storage.local import LocalStorage


@dataclass(frozen=True, slots=True)
class Found:
    """A name below the root.

    `explicit`: the user named this very file. `real`: where it lies, if a link leads there.
    """

    name: bytes
    explicit: bool = False
    real: str | None = None


def find_files(arguments: Iterable[str], output: Path) -> tuple[LocalStorage, Iterator[Found]]:
    """The common root and, sorted by bytes, the files below it.

    The names come one at a time, as a directory is walked: a corpus may have more of them than memory should hold.

    find_files(["corpus"], ...) -> (LocalStorage("corpus"), Found(b"a.jsonl"), Found(b"sub/b.jsonl.gz") …)
    """
    expanded = [_expand(a) for a in arguments]
    roots = {root for root, _ in expanded}
    root = Path(os.path.commonpath(roots)) if len(roots) > 1 else roots.pop()
    inputs = LocalStorage(root)
    paths = [path for _, matches in expanded for path in matches]
    real_output = os.path.realpath(output)
    for path in paths:
        if os.path.realpath(path) == real_output:
            raise InputError(f"{printable(path)} is both an input and the output: choose another output")
    walker = _Walker(inputs, root, _identity(LocalStorage(output), ""))
    folders = [path for path in paths if os.path.isdir(path)]
    streams: list[Iterable[Found]] = [walker.walk(_relative(path, root)) for path in folders]
    files = (os.path.relpath(path, root) for path in paths if not os.path.isdir(path))
    streams.append(Found(os.fsencode(name), True, walker.real(name)) for name in sorted(files, key=os.fsencode))
    return inputs, _merge(streams)


def _identity(storage: Reading, folder: str) -> str | None:
    """What identifies a folder; None if it cannot be told, whoever opens it will say why."""
    try:
        return storage.identify(folder)
    except OSError:
        return None


def _relative(path: str, root: Path) -> str:
    return "" if Path(path) == root else os.path.relpath(path, root)


def _merge(streams: list[Iterable[Found]]) -> Iterator[Found]:
    """Sorted streams in one; a name that is found twice is given once, as named if it was named."""
    for _, group in groupby(heapq.merge(*streams, key=lambda found: found.name), key=lambda found: found.name):
        same = list(group)
        yield next((found for found in same if found.explicit), same[0])


def _expand(argument: str) -> tuple[Path, list[str]]:
    """The root that names below this argument are relative to, and the paths that it stands for."""
    path = Path(_absolute(argument))
    if path.is_dir():
        return path, [str(path)]
    if os.path.lexists(path):
        return path.parent, [str(path)]
    if glob.has_magic(argument):
        matches = glob.glob(str(path), recursive=True)
        if not matches:
            raise InputError(f"no file matches {printable(argument)!r}")
        fixed = str(path).split(os.sep)
        wild = next(i for i, part in enumerate(fixed) if glob.has_magic(part))
        return Path(os.sep.join(fixed[:wild]) or os.sep), matches
    raise InputError(f"there is no file or directory {printable(argument)!r}")


def _absolute(argument: str) -> str:
    """The path without dots. Behind a link, `..` is not where the text of the path says."""
    path = os.path.abspath(argument)
    real = os.path.realpath(argument)
    return path if os.path.realpath(path) == real else real


class _Walker:
    """Lists all files below folders, in the order of their bytes, links followed, each real folder once.

    The output is skipped. A hidden folder is given as if it were a file, to be named among what is skipped.
    """

    def __init__(self, inputs: Reading, root: Path, output: str | None) -> None:
        self._inputs = inputs
        self._root = root
        self._real_root = os.path.realpath(root)
        self._output = output
        """What identifies the output's folder, if it is there."""
        self._seen: set[str] = set()

    def real(self, name: str) -> str | None:
        """Where a file lies, if that is not where its name says."""
        try:
            real = os.path.realpath(self._root / name, strict=True)
        except OSError:
            return None  # whoever opens it will say why
        return None if real == os.path.join(self._real_root, name).rstrip("/") else real

    def walk(self, top: str) -> Iterator[Found]:
        waiting = [iter(self._listing(top))]
        while waiting:
            for found, is_walked in waiting[-1]:
                if is_walked:
                    waiting.append(iter(self._listing(os.fsdecode(found.name).rstrip("/"))))
                    break
                yield found
            else:
                waiting.pop()

    def _listing(self, folder: str) -> list[tuple[Found, bool]]:
        """What is in a folder, in order: the name, and whether it is a folder to walk."""
        try:
            identity = self._inputs.identify(folder)
            if identity in self._seen or identity == self._output:
                return []
            self._seen.add(identity)
            entries = self._inputs.list(folder)
        except OSError as error:
            raise InputError(
                f"cannot list the directory {self._inputs.describe(folder)}: {error.strerror}. Make it readable or "
                "name the files to read"
            ) from error
        prefix = f"{folder}/" if folder else ""
        names = {entry.name for entry in entries}
        if layout.JOB in names and layout.looks_like_an_output(names) and is_job(self._inputs, prefix + layout.JOB):
            # The output of another job, not a corpus. One file stands for it in the list of what is skipped.
            return [(Found(os.fsencode(prefix + layout.JOB)), False)]
        is_behind_link = self.real(folder) is not None
        listing = []
        for entry in entries:
            is_hidden = entry.name.startswith(".")
            if is_hidden and entry.is_folder and _identity(self._inputs, prefix + entry.name) == self._output:
                continue
            is_walked = entry.is_folder and not is_hidden
            # Below a folder all names go on with a slash: so sorted, what is walked is in the order of whole names.
            name = os.fsencode(prefix + entry.name + ("/" if is_walked else ""))
            is_elsewhere = not is_walked and (entry.is_link or is_behind_link)
            listing.append((Found(name, False, self.real(prefix + entry.name) if is_elsewhere else None), is_walked))
        return sorted(listing, key=lambda listed: listed[0].name)
