"""Files, directories and globs become names below one root, in the order of their bytes."""

from __future__ import annotations

import glob
import heapq
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tokenmill.errors import InputError
from tokenmill.messages import printable
from tokenmill.output import layout
from tokenmill.output.store import is_job
from tokenmill.storage.base import Reading
from tokenmill.storage.local import LocalStorage


def find_files(arguments: Iterable[str], output: Path) -> tuple[LocalStorage, Iterator[tuple[str, bool]]]:
    """The common root and, sorted by bytes, (name below it, whether the user named this very file).

    The names come one at a time, as a directory is walked: a corpus may have more of them than memory should hold.

    find_files(["corpus"], ...) -> (LocalStorage("corpus"), ("a.jsonl", False), ("sub/b.jsonl.gz", False) …)
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
    walker = _Walker(inputs, _identity(LocalStorage(output), ""))
    folders = [path for path in paths if os.path.isdir(path)]
    streams: list[Iterable[tuple[bytes, bool]]] = [
        ((name, False) for name in walker.walk(_relative(path, root))) for path in folders
    ]
    files = (path for path in paths if not os.path.isdir(path))
    streams.append(sorted((os.fsencode(os.path.relpath(path, root)), True) for path in files))
    return inputs, _merge(streams)


def _identity(storage: Reading, folder: str) -> str | None:
    """What identifies a folder; None if it cannot be told, whoever opens it will say why."""
    try:
        return storage.identify(folder)
    except OSError:
        return None


def _relative(path: str, root: Path) -> str:
    return "" if Path(path) == root else os.path.relpath(path, root)


def _merge(streams: list[Iterable[tuple[bytes, bool]]]) -> Iterator[tuple[str, bool]]:
    """Sorted streams in one; a file that is found twice is given once, as named if it was named."""
    for name, found in groupby(heapq.merge(*streams), key=lambda entry: entry[0]):
        yield os.fsdecode(name), any(explicit for _, explicit in found)


def _expand(argument: str) -> tuple[Path, list[str]]:
    """The root that names below this argument are relative to, and the paths that it stands for."""
    path = Path(os.path.abspath(argument))
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


class _Walker:
    """Lists all files below folders, in the order of their bytes, links followed, each real folder once.

    The output is skipped. A hidden folder is given as if it were a file, to be named among what is skipped.
    """

    def __init__(self, inputs: Reading, output: str | None) -> None:
        self._inputs = inputs
        self._output = output
        """What identifies the output's folder, if it is there."""

    def walk(self, top: str) -> Iterator[bytes]:
        seen: set[str] = set()
        waiting = [iter(self._listing(top, seen))]
        while waiting:
            for name, is_walked in waiting[-1]:
                if is_walked:
                    waiting.append(iter(self._listing(os.fsdecode(name).rstrip("/"), seen)))
                    break
                yield name
            else:
                waiting.pop()

    def _listing(self, folder: str, seen: set[str]) -> list[tuple[bytes, bool]]:
        """What is in a folder, in order: the name, and whether it is a folder to walk."""
        try:
            identity = self._inputs.identify(folder)
            if identity in seen or identity == self._output:
                return []
            seen.add(identity)
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
            return [(os.fsencode(prefix + layout.JOB), False)]
        listing = []
        for entry in entries:
            is_hidden = entry.name.startswith(".")
            if is_hidden and entry.is_folder and _identity(self._inputs, prefix + entry.name) == self._output:
                continue
            is_walked = entry.is_folder and not is_hidden
            # Below a folder all names go on with a slash: so sorted, what is walked is in the order of whole names.
            listing.append((os.fsencode(prefix + entry.name + ("/" if is_walked else "")), is_walked))
        return sorted(listing)
