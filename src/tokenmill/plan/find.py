"""Files, directories and globs become names below one root, in the order of their bytes."""

from __future__ import annotations

import glob
import heapq
import json
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tokenmill.errors import InputError
from tokenmill.messages import printable

JOB_FILE = "job.json"
JOB_FILE_BYTES = 1 << 20
OUTPUT_MARKS = {"plan.jsonl", "units", "tmp"}


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
        ((os.fsencode(os.path.relpath(file, root)), False) for file in _walk(path, output))
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


def _walk(top: str, output: Path) -> Iterator[str]:
    """All files below a directory, in the order of their bytes, links followed, each real directory once.

    The output is left out. A hidden directory is given as if it were a file, to be named among what is left out.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [iter(_listing(top, output, seen))]
    while waiting:
        for key, is_walked in waiting[-1]:
            path = os.fsdecode(key)
            if is_walked:
                waiting.append(iter(_listing(path.rstrip(os.sep), output, seen)))
                break
            yield path
        else:
            waiting.pop()


def _listing(directory: str, output: Path, seen: set[tuple[int, int]]) -> list[tuple[bytes, bool]]:
    """What is in a directory, in order: the path, and whether it is a directory to walk."""
    try:
        status = os.stat(directory)
        if (status.st_dev, status.st_ino) in seen:
            return []
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(directory) as entries:
            found = [(e.path, e.name, _is_directory(e)) for e in entries]
    except OSError as error:
        raise InputError(
            f"cannot list the directory {printable(directory)}: {error.strerror}. Make it readable or name the files "
            "to read"
        ) from error
    if is_job(os.path.join(directory, JOB_FILE)) and not OUTPUT_MARKS.isdisjoint(name for _, name, _ in found):
        # The output of another job, not a corpus. One file stands for it in the list of what was left out.
        return [(os.fsencode(os.path.join(directory, JOB_FILE)), False)]
    listing = []
    for path, name, is_directory in found:
        if is_directory and Path(os.path.realpath(path)) == output:
            continue
        is_walked = is_directory and not name.startswith(".")
        # Below a directory all names go on with a separator: so sorted, what is walked is in the order of whole names.
        listing.append((os.fsencode(path + os.sep if is_walked else path), is_walked))
    return sorted(listing)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself, say: for whoever opens it to report


def is_job(path: str | Path) -> bool:
    """Whether a file says that its directory is the output of a job."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(JOB_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= {"format_version", "options", "tokenizer"}
