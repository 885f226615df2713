"""Has the next files read ahead, so that nobody who encodes has to wait for the disk."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from tokenmill.records import InputFile, Part, Unit
from tokenmill.storage.base import Reading


class ReadAhead:
    """Asks for the files of the units that come next: `files` of them, up to `file_bytes` of each."""

    def __init__(self, inputs: Reading, files: int, file_bytes: int) -> None:
        self._inputs = inputs
        self._files = files
        self._file_bytes = file_bytes
        self._requested: set[Part] = set()

    def read(self, upcoming: Iterable[Unit]) -> None:
        parts = ((p, f) for u in upcoming for p, f in zip(u.parts, u.files, strict=True))
        ahead = list(islice(parts, self._files))
        for part, file in ahead:
            if part not in self._requested:
                self._request(part, file)
        self._requested = {part for part, _ in ahead}

    def _request(self, part: Part, file: InputFile) -> None:
        start, end = part.start, part.end
        if end is None or file.format.has_rows:  # then parts are not counted in bytes
            start, end = 0, file.size
        self._inputs.prefetch(file.name, start, min(end, start + self._file_bytes))
