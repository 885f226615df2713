"""Files, directories and globs become names below one root, in the order of their bytes."""

from __future__ import annotations

import glob
import heapq
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tokenmill.errors import InputError
from tokenmill.records import printable

OUTPUT_MARKS = {"job.json", "units"}


def find_files(arguments: Iterable[str], output: Path) -> tuple[Path, Iterator[tuple[str, bool]]]:
    """The common root and, sorted by bytes, (name below it, whether the user named this very file).

    The names come one at a time, as a directory is walked: a corpus may have more of them than memory should hold.

    find_files(["corpus"], ...) -> (Path("corpus"), ("a.jsonl", False), ("sub/b.jsonl.gz", False) …)
    """
    expanded = [_expand(a) for a in arguments]
    roots = {root for root, _ in expanded}
    root = Path(os.path.commonpath(roots)) if len(roots) > 1 else roots.pop()
    output = Path(os.path.realpath(output))
    paths = [path for _, matches in expanded for path in matches]
    for path in paths:
        if Path(os.path.realpath(path)) == output:
            raise InputError(f"{printable(path)} is both an input and the output: choose another output")
    streams: list[Iterable[tuple[bytes, bool]]] = [
        ((os.fsencode(os.path.relpath(file, root)), False) for file in _walk(path, output, set()))
        for path in paths
        if os.path.isdir(path)
    ]
    streams.append(
        sorted((os.fsencode(os.path.relpath(path, root)), True) for path in paths if not os.path.isdir(path))
    )
    return root, _merge(streams)


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


def _walk(top: str, output: Path, seen: set[tuple[int, int]]) -> Iterator[str]:
    """All files below a directory, in the order of their bytes, links followed, each real directory once.

    The output is left out. A hidden directory is given as if it were a file, to be named among what is left out.
    """
    try:
        status = os.stat(top)
        with os.scandir(top) as entries:
            found = {e.name: e.is_dir() for e in entries}
    except OSError as error:
        raise InputError(
            f"cannot list the directory {printable(top)}: {error.strerror}. Make it readable or name the files to read"
        ) from error
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    if found.keys() >= OUTPUT_MARKS:
        # The output of another job, not a corpus. One file stands for it in the list of what was left out.
        found = {"job.json": False}
    # Below a directory all names go on with a separator: so sorted, what is walked is in the order of whole names.
    for name in sorted(found, key=lambda n: os.fsencode(n + os.sep if found[n] else n)):
        path = os.path.join(top, name)
        if not found[name] or name.startswith("."):
            yield path
        elif Path(os.path.realpath(path)) != output:
            yield from _walk(path, output, seen)
