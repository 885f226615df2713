"""Reading the output back: rows as a memory-mapped sequence, documents with where they came from."""

from __future__ import annotations

import bisect
import json
import operator
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, repeat
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from tokenmill.messages import counted
from tokenmill.output import layout
from tokenmill.output.open import Output, decode_id, open_output
from tokenmill.output.schema import ChunkOfUnit
from tokenmill.records import TokenIds


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it lies in the rows, BOS and EOS included.

    `record` is its line (or row) in the file, from 1; None if an unreadable part of the file lies before it. `id` is
    its own id, with --id-field.
    """

    tokens: TokenIds
    file: str
    record: int | None
    id: Any = None


class Rows:
    """The rows of an output directory: len(rows), rows[i], rows[-1], rows[10:20], rows[[3, 1, 7]], for row in rows.

    A row is a read-only numpy array that is mapped from disk; several of them are a 2-D array. Usable as the map-style
    dataset of a training framework: it pickles, and maps files only when they are first touched.
    """

    def __init__(self, output: str | Path | Output) -> None:
        output = output if isinstance(output, Output) else open_output(output)
        index = output.row_index
        self.root = Path(output.storage.location)
        self.seq_len = index.options.seq_len
        self.dtype = np.dtype(index.tokenizer.dtype)
        self._names = [c.name for c in index.chunks]
        self._ends = array("Q", accumulate(c.rows for c in index.chunks))
        self._tokens = array("Q", (c.tokens for c in index.chunks))
        self._has_ids = index.options.id_field is not None
        self._maps: dict[int, TokenIds] = {}
        self._document_ends: dict[int, Any] = {}

    def __repr__(self) -> str:
        rows = f"{counted(len(self), 'row')} of {self.seq_len:,} tokens, {self.dtype}"
        return f"<tokenmill.Rows of {str(self.root)!r}: {rows}>"

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

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens per row, as numpy has it: rows[:] is an array of this shape and `dtype`."""
        return len(self), self.seq_len

    def __iter__(self) -> Iterator[TokenIds]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: SupportsIndex | slice | Sequence[int] | npt.NDArray[Any]) -> TokenIds:
        if isinstance(index, slice):
            return self._slice(range(len(self))[index])
        try:
            row = operator.index(index)  # type: ignore[arg-type]
        except TypeError:
            return self._pick(index)
        number, within = self.locate(self._number(row))
        found: TokenIds = self._chunk(number)[within]
        return found

    def _number(self, index: SupportsIndex) -> int:
        """The number of a row, from 0; negative ones count from the end."""
        row, count = operator.index(index), len(self)
        if not -count <= row < count:
            there = f"{counted(count, 'row')}, 0 to {count - 1:,}" if count else "no rows"
            raise IndexError(f"there is no row {row:,}: the output has {there}")
        return row % count

    def _pick(self, index: Any) -> TokenIds:
        """Rows by a list or array of numbers, or of a truth value for each row."""
        chosen = np.asarray(index)
        if chosen.dtype == bool and chosen.shape == (len(self),):
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or isinstance(index, tuple) or (len(chosen) and chosen.dtype.kind not in "iu"):
            raise TypeError(f"rows are chosen by a number, a slice or a list of numbers, not by {index!r:.100}")
        if not len(chosen):
            return np.empty((0, self.seq_len), self.dtype)
        return np.stack([self[row] for row in chosen.tolist()])

    def boundaries(self, index: SupportsIndex) -> npt.NDArray[np.int32]:
        """Where documents begin in a row, and where the last one ends: rows.boundaries(0) -> [0, 146, 512, 2048].

        Document k of the row is row[b[k] : b[k + 1]]. The first may have begun in a row before, and the last may go on
        in the next. What lies behind the last boundary is padding.
        """
        chunk, within = self.locate(self._number(index))
        first, last = within * self.seq_len, (within + 1) * self.seq_len
        used = min(last, self._tokens[chunk])
        ends = self._ends_in(chunk)
        inner = ends[bisect.bisect_right(ends, first) : bisect.bisect_left(ends, used)]
        return (np.concatenate([[first], inner.astype(np.int64), [used]]) - first).astype(np.int32)

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
            rows = self._ends[number] - self.first_row(number)
            self._maps[number] = self._output.rows(self._names[number], (rows, self.seq_len))
        return self._maps[number]

    def _ends_in(self, chunk: int) -> Any:
        """Where the documents that end in a chunk do so."""
        if chunk not in self._document_ends:
            self._document_ends[chunk] = self._output.sidecar(self._names[chunk], self._tokens[chunk])["end"]
        return self._document_ends[chunk]

    def __getstate__(self) -> dict[str, Any]:
        """Without what is mapped or read from the manifest: both are there again when they are asked for."""
        return {k: v for k, v in self.__dict__.items() if k not in ("manifest", "_output")} | {
            "_maps": {},
            "_document_ends": {},
        }

    def documents(self) -> Iterator[StoredDocument]:
        """All documents in order, put together again across rows and chunks of a unit."""
        catalog = self._output.catalog
        for unit, group in groupby(catalog.chunks, key=lambda chunk: chunk.unit):
            chunks = list(group)
            firsts = {p.file: p.first_record for p in catalog.units[unit].parts}
            ids = self._ids(chunks)
            for file, record, tokens in self._output.documents(chunks, self.seq_len):
                if file not in firsts:
                    raise self._output.foreign_file(chunks[0].name, file)
                first, name = firsts[file], catalog.inputs[file].name
                yield StoredDocument(tokens, name, None if first is None else first + record, next(ids))

    def _ids(self, chunks: Iterable[ChunkOfUnit]) -> Iterator[Any]:
        """The ids of the documents that end in these chunks; None for each if there are none."""
        if not self._has_ids:
            yield from repeat(None)
        for chunk in chunks:
            yield from map(decode_id, self._output.ids(chunk.name, chunk.documents))


def open(output: str | Path) -> Rows:
    """Open a complete output directory: open("tokenized")[0] -> the first row."""
    return Rows(output)
