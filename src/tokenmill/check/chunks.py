"""One unit's chunks: are the files what the receipt says, and can the rows be what a tokenizer wrote?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.check.verdict import Fault
from tokenmill.messages import counted
from tokenmill.output import layout
from tokenmill.output.open import Output
from tokenmill.output.schema import Receipt
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Unit
from tokenmill.storage.base import Source, closed_on_failure
from tokenmill.write.npy import npy_header, npy_size

BLOCK_BYTES = 4 << 20


class DamagedError(Exception):
    """A chunk is not what it should be."""


class UnitChecker:
    """Checks the chunks of one unit, in order."""

    def __init__(self, output: Output, unit: Unit, receipt: Receipt, progress: Callable[[int], None]) -> None:
        self._storage = output.storage
        self._unit = unit
        self._receipt = receipt
        self._progress = progress
        options, tokenizer = output.job.options, output.job.tokenizer
        self._seq_len = options.seq_len
        self._eos, self._bos, self._pad = tokenizer.eos_id, tokenizer.bos_id, tokenizer.pad_id
        self._vocabulary = tokenizer.vocab_size
        self._dtype = output.dtype
        # Where special tokens in texts are matched, or BOS is the same token, EOS stands elsewhere, too.
        matched = options.special_tokens_in_text == "match"
        self._countable = self._eos is not None and not matched and self._bos != self._eos
        self._lines = {p.file: n for p, n in zip(unit.parts, receipt.lines, strict=True)}
        self._last = (-1, -1)
        self._begins = True
        """Whether a document begins with the next chunk; not known behind a damaged one."""

    def faults(self) -> Iterator[Fault]:
        for chunk in self._receipt.chunks:
            try:
                begins, self._begins = self._begins, False
                ends = self._check_sidecar(chunk)
                self._check_rows(chunk, ends, _starts(ends, chunk.tokens, begins))
                self._begins = bool(len(ends) and ends[-1] == chunk.tokens)
                if chunk.ids_xxh3 is not None:
                    self._check_ids(chunk)
            except (DamagedError, OSError, ValueError) as error:
                yield Fault(f"chunk {chunk.name}: {_describe(error)}", self._unit.index)

    def _open(self, chunk: ChunkEntry, suffix: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Source:
        """The file behind a header that is right to the byte, if its size is."""
        header = npy_header(dtype, shape)
        wanted = npy_size(dtype, shape)
        source = self._storage.open(layout.chunk_file(chunk.name, suffix))
        with closed_on_failure(source.close):
            if source.stat.size != wanted:
                raise DamagedError(f"{suffix} has {source.stat.size:,} bytes instead of {wanted:,}")
            if source.read(len(header)) != header:
                raise DamagedError(f"the header of {suffix} does not say {dtype.name} {shape}")
        return source

    def _check_sidecar(self, chunk: ChunkEntry) -> npt.NDArray[np.int64]:
        with self._open(chunk, layout.DOCUMENTS, SIDECAR_DTYPE, (chunk.documents,)) as file:
            data = file.read()
        self._progress(len(data))
        _compare("the sidecar", xxhash.xxh3_128_hexdigest(data), chunk.docs_xxh3)
        docs = np.frombuffer(data, SIDECAR_DTYPE)
        ends = docs["end"].astype(np.int64)
        if len(ends) and (ends[0] < 1 or ends[-1] > chunk.tokens or not (np.diff(ends) > 0).all()):
            raise DamagedError("the ends of documents do not increase within the chunk")
        for file_number, record in zip(docs["file"].tolist(), docs["record"].tolist(), strict=True):
            if file_number not in self._lines or not 0 <= record < self._lines[file_number]:
                raise DamagedError(f"record {record} of file {file_number} is not of this unit")
            if (file_number, record) <= self._last:
                raise DamagedError(f"record {record} of file {file_number} appears twice or out of order")
            self._last = (file_number, record)
        return ends

    def _check_rows(self, chunk: ChunkEntry, ends: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> None:
        state = xxhash.xxh3_128()
        position = framed = 0
        problem: DamagedError | None = None
        with self._open(chunk, layout.ROWS, self._dtype, (chunk.rows, self._seq_len)) as file:
            while data := file.read(BLOCK_BYTES):
                state.update(data)
                ids = np.frombuffer(data, self._dtype)
                try:
                    framed += self._check_block(ids, position, ends, chunk)
                    self._check_starts(ids, position, starts)
                except DamagedError as error:
                    problem = problem or error
                position += len(ids)
                self._progress(len(data))
        _compare("the rows", state.hexdigest(), chunk.xxh3)  # first: it explains whatever else is wrong
        if problem is not None:
            raise problem
        if self._countable and framed != len(ends):
            ending = counted(len(ends), "document ends", "documents end")
            raise DamagedError(f"it has {counted(framed, 'EOS token')}, but {ending} there")

    def _check_block(self, ids: npt.NDArray[Any], position: int, ends: npt.NDArray[np.int64], chunk: ChunkEntry) -> int:
        """Tokens from `position` on; how many of them are EOS."""
        if (highest := int(ids.max())) >= self._vocabulary:
            raise DamagedError(f"it holds the id {highest}, but the vocabulary ends at {self._vocabulary - 1}")
        real = ids[: max(0, chunk.tokens - position)]
        if len(real) < len(ids) and (ids[len(real) :] != self._pad).any():
            raise DamagedError("after its last token there is something other than padding")
        here = ends[(ends > position) & (ends <= position + len(ids))] - position
        if self._eos is not None and (ids[here - 1] != self._eos).any():
            where = int(position + here[np.argmax(ids[here - 1] != self._eos)])
            raise DamagedError(f"the document that ends at token {where} does not end with EOS")
        return int(np.count_nonzero(real == self._eos)) if self._eos is not None else 0

    def _check_starts(self, ids: npt.NDArray[Any], position: int, starts: npt.NDArray[np.int64]) -> None:
        here = starts[(starts >= position) & (starts < position + len(ids))]
        if self._bos is not None and (wrong := ids[here - position] != self._bos).any():
            raise DamagedError(f"the document that begins at token {here[np.argmax(wrong)]} does not begin with BOS")

    def _check_ids(self, chunk: ChunkEntry) -> None:
        state = xxhash.xxh3_128()
        lines = 0
        with self._storage.open(layout.chunk_file(chunk.name, layout.IDS)) as file:
            while data := file.read(BLOCK_BYTES):
                state.update(data)
                lines += data.count(b"\n")
                self._progress(len(data))
        _compare("the list of ids", state.hexdigest(), str(chunk.ids_xxh3))
        if lines != chunk.documents:
            raise DamagedError(f"{lines:,} ids for {chunk.documents:,} documents")


def _starts(ends: npt.NDArray[np.int64], tokens: int, begins: bool) -> npt.NDArray[np.int64]:
    """Where documents begin in a chunk of so many tokens; `begins`: one does with the chunk."""
    inner = ends[ends < tokens]
    return np.concatenate([np.zeros(1, np.int64), inner]) if begins else inner


def _compare(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise DamagedError(f"the checksum of {what} is {found}, the receipt says {wanted}")


def _describe(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError):
        name = f"{Path(error.filename).name} " if error.filename else ""
        return f"{name}cannot be read: {error.strerror or error}"
    return str(error)
