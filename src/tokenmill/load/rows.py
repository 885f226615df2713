"""Reading the output back: rows as a memory-mapped sequence, documents with where they came from."""

from __future__ import annotations

import bisect
import json
import operator
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from tokenmill.output import layout
from tokenmill.output.open import Output, open_output
from tokenmill.records import TokenIds


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it lies in the rows, BOS and EOS included.

    `record` is its line (or row) in the file, from 1; None if an unreadable part of the file lies before it.
    """

    tokens: TokenIds
    file: str
    record: int | None


class Rows:
    """The rows of an output directory: len(rows), rows[i], rows[-1], rows[10:20], for row in rows.

    A row is a read-only numpy array that is mapped from disk; a slice is a 2-D array. Usable as the map-style dataset
    of a training framework: it pickles, and maps files only when they are first touched.
    """

    def __init__(self, output: str | Path | Output) -> None:
        output = output if isinstance(output, Output) else open_output(output)
        index = output.row_index
        self.root = Path(output.storage.location)
        self.seq_len = index.options.seq_len
        self.dtype = np.dtype(index.tokenizer.dtype)
        self._names = [c.name for c in index.chunks]
        self._ends = array("Q", accumulate(c.rows for c in index.chunks))
        self._maps: dict[int, TokenIds] = {}

    @cached_property
    def _output(self) -> Output:
        return open_output(self.root)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """All of manifest.json, read when it is first asked for: a million chunks make it large."""
        found: dict[str, Any] = json.loads(self._output.storage.read(layout.MANIFEST))
        return found

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[TokenIds]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: SupportsIndex | slice) -> TokenIds:
        if isinstance(index, slice):
            return self._slice(range(len(self))[index])
        row = operator.index(index)
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        number, within = self.locate(row)
        found: TokenIds = self._chunk(number)[within]
        return found

    def locate(self, row: int) -> tuple[int, int]:
        """The number of the chunk that a row is in, and the row in it."""
        number = bisect.bisect_right(self._ends, row)
        return number, row - self.first_row(number)

    def first_row(self, chunk: int) -> int:
        return self._ends[chunk - 1] if chunk else 0

    def _slice(self, rows: range) -> TokenIds:
        if not rows:
            return np.empty((0, self.seq_len), self.dtype)
        first, start = self.locate(rows[0])
        last, end = self.locate(rows[-1])
        if first == last and rows.step > 0:
            return self._chunk(first)[start : end + 1 : rows.step]
        return np.stack([self[row] for row in rows])

    def _chunk(self, number: int) -> TokenIds:
        if number not in self._maps:
            self._maps[number] = self._output.rows(self._names[number])
        return self._maps[number]

    def __getstate__(self) -> dict[str, Any]:
        """Without what is mapped or read from the manifest: both are there again when they are asked for."""
        return {k: v for k, v in self.__dict__.items() if k not in ("manifest", "_output")} | {"_maps": {}}

    def documents(self) -> Iterator[StoredDocument]:
        """All documents in order, put together again across rows and chunks of a unit."""
        catalog = self._output.catalog
        for unit, group in groupby(catalog.chunks, key=lambda chunk: chunk.unit):
            firsts = {p.file: p.first_record for p in catalog.units[unit].parts}
            for file, record, tokens in self._output.documents((c.name, c.tokens) for c in group):
                first = firsts[file]
                yield StoredDocument(tokens, catalog.inputs[file].name, None if first is None else first + record)


def open(output: str | Path) -> Rows:
    """Open a complete output directory: open("tokenized")[0] -> the first row."""
    return Rows(output)
