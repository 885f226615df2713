"""An input, opened: is it the file that was planned, and does it stay that while it is read?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import xxhash

from tokenmill.errors import InputChangedError, UnreadableInputError
from tokenmill.messages import printable
from tokenmill.records import InputFile
from tokenmill.storage.base import Reading, Source

EDGE_BYTES = 64 << 10


@contextmanager
def open_input(inputs: Reading, file: InputFile) -> Iterator[Source]:
    """Open a file to read all that is wanted of it.

    Raises UnreadableInputError where it cannot be read, InputChangedError where it is not, or does not stay, the file
    that was planned.
    """
    name = printable(file.name)
    if file.problem:
        raise UnreadableInputError(f"{name} cannot be read: {file.problem}")
    try:
        with inputs.open(file.name) as source:
            if not is_as_planned(source, file):
                raise InputChangedError(f"{name} changed since the job was planned: restore it, or use --overwrite")
            source.seek(0)
            yield source
            if inputs.stat(file.name).version != source.stat.version:
                raise InputChangedError(f"{name} changed while it was read: restore it, or use --overwrite")
    except UnreadableInputError:
        raise
    except OSError as error:
        raise UnreadableInputError(f"{name} cannot be read: {error.strerror or error}") from error


def is_as_planned(source: Source, file: InputFile) -> bool:
    return source.stat.size == file.size and fingerprint_of(source) == file.fingerprint


def fingerprint_of(source: Source, head: bytes | None = None) -> str:
    """A cheap identity of the content: XXH3-128 of the size and the first and last 64 KiB."""
    size = source.stat.size
    if head is None:
        source.seek(0)
        head = source.read(EDGE_BYTES)
    source.seek(max(0, size - EDGE_BYTES))
    return xxhash.xxh3_128_hexdigest(b"%d:" % size + head + source.read(EDGE_BYTES))
