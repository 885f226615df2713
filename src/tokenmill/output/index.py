"""Where a record went, and where a document came from.

Inputs, units and chunks are in the same order in a manifest, and the documents of a unit in its sidecars. So whatever
is looked for, a binary search finds it, and of a million sidecars no more than some twenty are opened.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.errors import OutputError
from tokenmill.output import layout
from tokenmill.output.open import Output, decode_id
from tokenmill.output.schema import PartEntry
from tokenmill.records import Sidecar

Origin = tuple[str, int | None]
"""A file, and the number of a record in it, from 1; None if nobody knows."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The tokens of a document: from `start` in one chunk up to `end`, exclusive, in the same one or a later one."""

    first_chunk: int
    start: int
    last_chunk: int
    end: int


class Index:
    """Finds documents in an output. Chunks and files are numbered as the manifest lists them."""

    def __init__(self, output: Output) -> None:
        self.chunks = output.catalog.chunks
        self.names = [file.name for file in output.catalog.inputs]
        self._units = output.catalog.units
        self._output = output

    def sidecar(self, chunk: int) -> Sidecar:
        entry = self.chunks[chunk]
        found = self._output.sidecar(entry.name, entry.tokens)
        if len(found) != entry.documents:
            where = self._output.storage.describe(layout.chunk_file(entry.name, layout.DOCUMENTS))
            raise OutputError(f"{where} has {len(found):,} documents, the manifest says {entry.documents:,}")
        return found

    def origin(self, chunk: int, file: int, record: int) -> Origin:
        """Where a record of the sidecar of this chunk came from."""
        for part in self._units[self.chunks[chunk].unit].parts:
            if part.file == file:
                return self.names[file], None if part.first_record is None else part.first_record + record
        raise self._output.foreign_file(self.chunks[chunk].name, file)

    def goes_on(self, chunk: int, unit: int) -> bool:
        """Whether this is a chunk of the unit, and its last document goes on in the next."""
        if chunk < 0 or self.chunks[chunk].unit != unit:
            return False
        return self._last_end(chunk) != self.chunks[chunk].tokens

    def end_of_rest(self, chunk: int) -> int | None:
        """The chunk in which the document ends that goes on behind this one; None if its end was dropped."""
        later = range(chunk + 1, self._chunks_of(self.chunks[chunk].unit).stop)
        return next((number for number in later if self.chunks[number].documents), None)

    def origin_of_rest(self, chunk: int) -> Origin | None:
        """Where the document came from that goes on behind a chunk; None if its end was dropped."""
        later = self.end_of_rest(chunk)
        if later is None:
            return None
        _, record, file = self.sidecar(later)[0].tolist()
        return self.origin(later, file, record)

    def ids(self, chunk: int) -> list[Any]:
        """The documents' own ids, of those that end in a chunk."""
        entry = self.chunks[chunk]
        return [decode_id(line) for line in self._output.ids(entry.name, entry.documents)]

    def find(self, file: int, number: int) -> Extent | None:
        """Where record `number`, from 1, of a file lies, if it is in any row."""
        place = self._place(file, number)
        if place is None:
            return None
        unit, record = place
        chunks = [chunk for chunk in self._chunks_of(unit) if self.chunks[chunk].documents]
        at = bisect.bisect_left(chunks, (file, record), key=self._last_document)
        return self._extent(chunks[at], file, record) if at < len(chunks) else None

    def _place(self, file: int, number: int) -> tuple[int, int] | None:
        """The unit that read a record, and the record's number in its part, from 0."""
        first = bisect.bisect_left(self._units, file, key=lambda unit: unit.parts[-1].file)
        last = bisect.bisect_right(self._units, file, key=lambda unit: unit.parts[0].file)
        for unit in self._units[first:last]:
            for part in unit.parts:
                if part.file == file and part.first_record is not None and _holds(part, number):
                    return unit.unit, number - part.first_record
        return None

    def find_id(self, document_id: str) -> Iterator[Extent]:
        """Where the documents with this id of their own lie: a string, or anything else as JSON writes it."""
        # All of them are looked through, so most are told apart without decoding them.
        spellings = {document_id, json.dumps(document_id), json.dumps(document_id, ensure_ascii=False)}
        wanted = {text.encode(errors="surrogateescape") for text in spellings}
        for number, chunk in enumerate(self.chunks):
            for place, line in enumerate(self._output.ids(chunk.name, chunk.documents)):
                if line in wanted or (b"\\" in line and decode_id(line) == document_id):
                    yield self._extent_at(number, place)

    def _extent(self, chunk: int, file: int, record: int) -> Extent | None:
        documents = self.sidecar(chunk)
        found = np.flatnonzero((documents["file"] == file) & (documents["record"] == record)).tolist()
        return self._extent_at(chunk, found[0]) if found else None

    def _extent_at(self, chunk: int, place: int) -> Extent:
        """Of the document that ends in this chunk as the `place`-th."""
        documents = self.sidecar(chunk)
        start = int(documents["end"][place - 1]) if place else 0
        first, unit = chunk, self.chunks[chunk].unit
        # The first document of a chunk may have begun in chunks before.
        while start == 0 and self.goes_on(first - 1, unit):
            first -= 1
            start = self._last_end(first)
        return Extent(first, start, chunk, int(documents["end"][place]))

    def _chunks_of(self, unit: int) -> range:
        first = bisect.bisect_left(self.chunks, unit, key=lambda chunk: chunk.unit)
        last = bisect.bisect_right(self.chunks, unit, key=lambda chunk: chunk.unit)
        return range(first, last)

    def _last_document(self, chunk: int) -> tuple[int, int]:
        """File and record of the last document that ends in a chunk."""
        _, record, file = self.sidecar(chunk)[-1].tolist()
        return file, record

    def _last_end(self, chunk: int) -> int:
        """Where the last document that ends in a chunk does so; 0 if there is none."""
        return int(self.sidecar(chunk)["end"][-1]) if self.chunks[chunk].documents else 0


def _holds(part: PartEntry, number: int) -> bool:
    return part.first_record is not None and 0 <= number - part.first_record < part.lines
