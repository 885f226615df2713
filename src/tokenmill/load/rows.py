"""Reading the output back: rows as a memory-mapped sequence, documents with where they came from."""

from __future__ import annotations

import bisect
import json
import operator
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from tokenmill.errors import OutputError
from tokenmill.messages import printable
from tokenmill.output.manifest import Index, read_manifest
from tokenmill.records import Ids


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it lies in the rows, BOS and EOS included.

    `record` is its line (or row) in the file, from 1; None if an unreadable part of the file lies before it.
    """

    tokens: Ids
    file: str
    record: int | None


class Rows:
    """The rows of an output directory: len(rows), rows[i], rows[-1], rows[10:20], for row in rows.

    A row is a read-only numpy array that is mapped from disk; a slice is a 2-D array. Usable as the map-style dataset
    of a training framework: it pickles, and maps files only when they are first touched.
    """

    def __init__(self, root: Path) -> None:
        index = _read_index(root / "manifest.json")
        self.root = root
        self.seq_len = index.options.seq_len
        self.dtype = np.dtype(index.tokenizer.dtype)
        self._names = [c.name for c in index.chunks]
        self._ends = array("Q", accumulate(c.rows for c in index.chunks))
        self._maps: dict[int, Ids] = {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """All of manifest.json, read when it is first asked for: a million chunks make it large."""
        found: dict[str, Any] = json.loads((self.root / "manifest.json").read_bytes())
        return found

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Ids]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: SupportsIndex | slice) -> Ids:
        if isinstance(index, slice):
            return self._slice(range(len(self))[index])
        row = operator.index(index)
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        number, within = self.locate(row)
        found: Ids = self._chunk(number)[within]
        return found

    def locate(self, row: int) -> tuple[int, int]:
        """The number of the chunk that a row is in, and the row in it."""
        number = bisect.bisect_right(self._ends, row)
        return number, row - self.first_row(number)

    def first_row(self, chunk: int) -> int:
        return self._ends[chunk - 1] if chunk else 0

    def _slice(self, rows: range) -> Ids:
        if not rows:
            return np.empty((0, self.seq_len), self.dtype)
        first, start = self.locate(rows[0])
        last, end = self.locate(rows[-1])
        if first == last and rows.step > 0:
            return self._chunk(first)[start : end + 1 : rows.step]
        return np.stack([self[row] for row in rows])

    def _chunk(self, number: int) -> Ids:
        if number not in self._maps:
            self._maps[number] = load_array(self.root / "chunks" / f"{self._names[number]}.npy")
        return self._maps[number]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "manifest"} | {"_maps": {}}

    def documents(self) -> Iterator[StoredDocument]:
        """All documents in order, put together again across rows and chunks of a unit."""
        inputs = self.manifest["inputs"]
        for unit, group in groupby(self.manifest["chunks"], key=lambda chunk: chunk["unit"]):
            firsts = {p["file"]: p["first_record"] for p in self.manifest["units"][unit]["parts"]}
            chunks = ((c["name"], c["tokens"]) for c in group)
            for file, record, tokens in split_documents(self.root / "chunks", chunks):
                first = firsts[file]
                yield StoredDocument(tokens, inputs[file]["name"], None if first is None else first + record)


def split_documents(folder: Path, chunks: Iterable[tuple[str, int]]) -> Iterator[tuple[int, int, Ids]]:
    """File, record and tokens of the documents of one unit, put together across its chunks (name, tokens)."""
    carry: list[Ids] = []
    for name, count in chunks:
        tokens = load_array(folder / f"{name}.npy").reshape(-1)[:count]
        start = 0
        for end, record, file in load_array(folder / f"{name}.docs.npy").tolist():
            yield file, record, np.concatenate([*carry, tokens[start:end]]) if carry else tokens[start:end]
            carry, start = [], end
        if start < len(tokens):
            carry.append(tokens[start:])


def load_array(path: Path) -> Any:
    """An array of the output, mapped."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise OutputError(f"{printable(path)} cannot be read: {error}") from error


def _read_index(path: Path) -> Index:
    try:
        return read_manifest(path, Index)
    except FileNotFoundError:
        unfinished = (path.parent / "job.json").exists()
        problem = "The job there is not complete: run it again to continue" if unfinished else ""
        raise OutputError(f"{printable(path)} does not exist. {problem or 'Is this an output of tokenmill?'}") from None
    except (OSError, ValueError) as error:
        raise OutputError(f"{printable(path)} cannot be read: {error}") from error


def open(output: str | Path) -> Rows:
    """Open a complete output directory: open("tokenized")[0] -> the first row."""
    return Rows(Path(output))
