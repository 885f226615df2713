"""Rows as a person wants to look at them: the text of each token, documents, and where they came from."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

from tokenmill.encode.decoder import Decoder, TokenText
from tokenmill.errors import ConfigError, OutputError
from tokenmill.load.rows import Rows
from tokenmill.messages import counted, printable, some_of
from tokenmill.output import layout
from tokenmill.output.index import Extent, Index
from tokenmill.output.open import open_output
from tokenmill.output.spool import lines_of


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a row: part of a document, or (`file` None) padding."""

    start: int
    end: int
    file: str | None
    record: int | None
    begins: bool
    ends: bool
    id: Any = None
    """The document's own, of a job with --id-field."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, taken apart."""

    number: int
    token_ids: list[int]
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Asked:
    """A document that was asked for: from one token of all rows, laid end to end, up to another."""

    start: int
    end: int
    seq_len: int

    @property
    def rows(self) -> list[int]:
        """The rows that it lies in."""
        return list(range(self.start // self.seq_len, (self.end - 1) // self.seq_len + 1))

    def covers(self, row: Row, span: Span) -> bool:
        return self.start <= row.number * self.seq_len + span.start < self.end


class Viewer:
    """Looks into an output directory."""

    def __init__(self, output: str | Path) -> None:
        self._output = open_output(output)
        self.rows = Rows(self._output)
        self._decoder = Decoder(self._output.tokenizer(), self._output.storage.describe(layout.TOKENIZER))

    @property
    def has_ids(self) -> bool:
        """Whether documents have ids of their own."""
        return self._output.job.options.id_field is not None

    @cached_property
    def _index(self) -> Index:
        return Index(self._output)

    def row(self, number: int) -> Row:
        if not 0 <= number < len(self.rows):
            there = f"{counted(len(self.rows), 'row')}, from 0 on" if len(self.rows) else "no rows"
            raise ConfigError(f"there is no row {number}: the output has {there}")
        chunk, within = self.rows.locate(number)
        length = self.rows.seq_len
        first, last = within * length, (within + 1) * length
        spans = [
            Span(
                max(d.start, first) - first,
                min(d.end, last) - first,
                d.file,
                d.record,
                begins,
                d.ends and d.end <= last,
                d.id,
            )
            for d in self._documents(chunk)
            if d.start < last and d.end > first
            for begins in (d.begins and d.start >= first,)
        ]
        used = spans[-1].end if spans else 0
        if used < length:
            spans.append(Span(used, length, None, None, True, True))
        return Row(number, self.rows[number].tolist(), spans)

    def _documents(self, number: int) -> Iterator[Span]:
        """The documents of a chunk; the first may have begun before it, the last may end behind it."""
        chunk = self._index.chunks[number]
        start, begins = 0, not self._index.goes_on(number - 1, chunk.unit)
        ids = self._index.ids(number) if self.has_ids else repeat(None)
        for (end, record, file), own_id in zip(self._index.sidecar(number).tolist(), ids, strict=False):
            yield Span(start, end, *self._index.origin(number, file, record), begins, True, own_id)
            start, begins = end, True
        if start < chunk.tokens:
            origin = self._index.origin_of_rest(number) or ("(a document whose end was dropped)", None)
            yield Span(start, chunk.tokens, *origin, begins, False, self._id_of_rest(number))

    def _id_of_rest(self, number: int) -> Any:
        later = self._index.end_of_rest(number) if self.has_ids else None
        return None if later is None else self._index.ids(later)[0]

    def texts(self, token_ids: list[int]) -> list[TokenText]:
        return self._decoder.texts(token_ids)

    def sample(self, count: int, seed: int) -> list[int]:
        """Row numbers at random, in order."""
        total = len(self.rows)
        return sorted(random.Random(seed).sample(range(total), min(count, total)))

    def find(self, file: str, record: int) -> Asked:
        """The document of this file (a part of its name will do) and line."""
        if record < 1:
            raise ConfigError(f"--record: records count from 1, not from {record}")
        number = self._file(file)
        extent = self._index.find(number, record)
        if extent is None:
            raise ConfigError(self._why_in_no_row(self._index.names[number], record))
        return self._asked(extent)

    def _why_in_no_row(self, name: str, record: int) -> str:
        for line in self._rejects():
            reject = json.loads(line)
            first, noun = (reject[noun], noun) if (noun := "line") in reject else (reject["row"], "row")
            if reject["file"] == name and first is not None and first <= record < first + max(1, reject["records"]):
                return f"{noun} {record} of {printable(name)} was rejected: {reject['reason']} ({reject['detail']})"
        dropped = " or its end was dropped (--tail drop)" if self._output.job.options.tail == "drop" else ""
        return f"record {record} of {printable(name)} is in no row: it is empty or not there{dropped}"

    def _rejects(self) -> Iterable[bytes]:
        try:
            return lines_of(self._output.storage.open(layout.REJECTS))
        except OSError as error:
            raise OutputError(
                f"{self._output.storage.describe(layout.REJECTS)} cannot be read: {error.strerror}"
            ) from error

    def find_id(self, document_id: str) -> list[Asked]:
        """The documents that have this id of their own."""
        field = self._output.job.options.id_field
        if field is None:
            raise ConfigError("--id: the documents have no ids of their own: the job was run without --id-field")
        found = [self._asked(extent) for extent in self._index.find_id(document_id)]
        if not found:
            raise ConfigError(f"--id: no document has {printable(document_id)!r} as its {printable(field)}")
        return found

    def _asked(self, extent: Extent) -> Asked:
        length = self.rows.seq_len
        first = self.rows.first_row(extent.first_chunk)
        last = self.rows.first_row(extent.last_chunk)
        return Asked(first * length + extent.start, last * length + extent.end, length)

    def _file(self, name: str) -> int:
        names = self._index.names
        path = f"/{os.path.normpath(name)}"
        whole = [number for number, known in enumerate(names) if path.endswith(f"/{known}")]
        if whole:  # as it was typed for the run, or from anywhere else: the longest is the nearest
            return max(whole, key=lambda number: len(names[number]))
        found = [number for number, known in enumerate(names) if name in known]
        if not found:
            raise ConfigError(f"--file: no input has {printable(name)!r} in its name. The inputs: {some_of(names)}")
        if len(found) > 1:
            some = some_of([names[number] for number in found])
            raise ConfigError(f"--file: {len(found):,} inputs have {printable(name)!r} in their name: {some}")
        return found[0]
