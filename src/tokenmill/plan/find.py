"""Files, directories and globs become names below one root, in the order of their bytes."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenmill.errors import InputError
from tokenmill.records import printable


def find_files(arguments: Iterable[str], output: Path) -> tuple[Path, list[tuple[str, bool]]]:
    """The common root and, sorted by bytes, (name below it, whether the user named this very file).

    find_files(["corpus"], ...) -> (Path("corpus"), [("a.jsonl", False), ("sub/b.jsonl.gz", False)])
    """
    expanded = [_expand(a) for a in arguments]
    roots = {root for root, _ in expanded}
    root = Path(os.path.commonpath(roots)) if len(roots) > 1 else roots.pop()
    output = Path(os.path.realpath(output))
    found: dict[str, bool] = {}
    for _, paths in expanded:
        for path in paths:
            if Path(os.path.realpath(path)) == output:
                raise InputError(f"{printable(path)} is both an input and the output: choose another output")
            files = _walk(path, output) if path.is_dir() else [path]
            for file in files:
                name = os.path.relpath(file, root)
                found[name] = found.get(name, False) or not path.is_dir()
    return root, sorted(found.items(), key=lambda item: os.fsencode(item[0]))


def _expand(argument: str) -> tuple[Path, list[Path]]:
    """The root that names below this argument are relative to, and the paths that it stands for."""
    path = Path(os.path.abspath(argument))
    if path.is_dir():
        return path, [path]
    if os.path.lexists(path):
        return path.parent, [path]
    if glob.has_magic(argument):
        matches = [Path(m) for m in glob.glob(str(path), recursive=True)]
        if not matches:
            raise InputError(f"no file matches {printable(argument)!r}")
        fixed = str(path).split(os.sep)
        wild = next(i for i, part in enumerate(fixed) if glob.has_magic(part))
        return Path(os.sep.join(fixed[:wild]) or os.sep), matches
    raise InputError(f"there is no file or directory {printable(argument)!r}")


def _walk(top: Path, output: Path) -> Iterator[Path]:
    """All files below a directory, links followed, each real directory once, the output left out.

    A hidden directory is given as if it were a file, so that it is named among what is left out.
    """
    seen: set[tuple[int, int]] = set()
    for directory, names, files in os.walk(top, followlinks=True, onerror=_refuse):
        here = Path(directory)
        status = here.stat()
        if (status.st_dev, status.st_ino) in seen:
            names.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        if {"plan.json", "units"} <= {*names, *files}:
            # The output of another job, not a corpus. Its plan stands for it in the list of what was left out.
            names.clear()
            files = ["plan.json"]
        hidden = [n for n in names if n.startswith(".")]
        names[:] = [n for n in names if n not in hidden and Path(os.path.realpath(here / n)) != output]
        yield from (here / f for f in files + hidden)


def _refuse(error: OSError) -> None:
    raise InputError(
        f"cannot list the directory {printable(error.filename)}: {error.strerror}. Make it readable or name the "
        "files to read"
    ) from error
