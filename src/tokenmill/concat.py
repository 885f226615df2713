"""Stage 4, concat: documents become one stream of tokens, cut into rows and the rows into chunks.

    documents        [7 7 7] [8] [9 9]                      (ids and offsets, from encode)
    framed           7 7 7 E 8 E 9 9 E                      (BOS and EOS added, ends remembered: 4, 6, 9)
    rows, seq_len 4  7 7 7 E | 8 E 9 9 | E p p p            (p: padding of the unit's last row)

Only whole rows leave the packer. What it keeps between calls is explicit: the incomplete row with the documents
that end in it, how far the chunk is filled, and how many tokens a resumed unit must pass over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.records import SIDECAR_DTYPE, Ends, PackedRows, Sidecar, TokenBatch, TokenIds

Records = npt.NDArray[np.int64]


class Packer:
    """Packs the batches of one unit.

    `skip`: tokens at the beginning that were written before the unit was interrupted; `used`: how many of them, or of
    those before, are in the current chunk.
    """

    def __init__(
        self,
        *,
        seq_len: int,
        rows_per_chunk: int,
        dtype: np.dtype[Any],
        eos: int | None = None,
        bos: int | None = None,
        skip: int = 0,
        used: int = 0,
    ) -> None:
        self._seq_len = seq_len
        self._chunk_tokens = seq_len * rows_per_chunk
        self._dtype = dtype
        self._eos = eos
        self._bos = bos
        assert skip >= 0
        self._skip = skip
        self._used = used
        self._carry: TokenIds = np.empty(0, dtype)
        self._carry_documents = np.empty(0, SIDECAR_DTYPE)  # ends count from the start of the carry
        self._carry_ids: list[bytes] = []

    @property
    def carried(self) -> int:
        """Tokens of the incomplete row."""
        return len(self._carry)

    @property
    def skipping(self) -> int:
        """Tokens that are still to be passed over."""
        return self._skip

    def add(self, batch: TokenBatch, file: int, records: Records, document_ids: list[bytes]) -> Iterator[PackedRows]:
        """Pack the documents of a batch, which come from these records of a file."""
        tokens, ends = frame(batch, self._dtype, self._eos, self._bos)
        documents = np.empty(len(records), SIDECAR_DTYPE)
        documents["end"], documents["record"], documents["file"] = ends, records, file
        if self._skip:
            tokens, documents, document_ids = self._pass_over(tokens, documents, document_ids)
        documents["end"] += len(self._carry)
        tokens = np.concatenate([self._carry, tokens])
        documents = np.concatenate([self._carry_documents, documents])
        document_ids = self._carry_ids + document_ids
        while len(tokens) >= self._seq_len:
            whole = len(tokens) - len(tokens) % self._seq_len
            take = min(self._chunk_tokens - self._used, whole)
            count = int(np.searchsorted(documents["end"], take, side="right"))
            yield self._rows(tokens[:take], documents[:count], document_ids[:count])
            tokens, documents, document_ids = tokens[take:], documents[count:], document_ids[count:]
            documents["end"] -= take
        # Copies, so that a few tokens do not keep the whole batch in memory.
        self._carry, self._carry_documents, self._carry_ids = tokens.copy(), documents.copy(), document_ids

    def pad(self, pad: int) -> Iterator[PackedRows]:
        """End the unit: fill the incomplete row, if there is one."""
        if padding := -len(self._carry) % self._seq_len:
            tokens = np.concatenate([self._carry, np.full(padding, pad, self._dtype)])
            yield self._rows(tokens, self._carry_documents, self._carry_ids, padding)

    def drop(self) -> tuple[int, int]:
        """End the unit without its incomplete row: how many tokens and ends of documents are lost."""
        return len(self._carry), len(self._carry_documents)

    def _rows(self, tokens: TokenIds, documents: Sidecar, ids: list[bytes], padding: int = 0) -> PackedRows:
        placed = documents.copy()
        placed["end"] += self._used
        self._used += len(tokens)
        full = self._used == self._chunk_tokens
        if full:
            self._used = 0
        return PackedRows(tokens, placed, ids, full, padding)

    def _pass_over(
        self, tokens: TokenIds, documents: Sidecar, ids: list[bytes]
    ) -> tuple[TokenIds, Sidecar, list[bytes]]:
        passed = min(self._skip, len(tokens))
        self._skip -= passed
        gone = int(np.searchsorted(documents["end"], passed, side="right"))
        rest = documents[gone:]
        rest["end"] -= passed
        return tokens[passed:], rest, ids[gone:]


def frame(batch: TokenBatch, dtype: np.dtype[Any], eos: int | None, bos: int | None) -> tuple[TokenIds, Ends]:
    """Put BOS before and EOS after each document; give the tokens in the output type and where documents end.

    frame(TokenBatch([7, 8], [0, 1, 2]), uint16, eos=0, bos=None) -> [7, 0, 8, 0], [2, 4]
    """
    ids = batch.token_ids.astype(dtype)  # checked against the vocabulary size by encode, so nothing can wrap
    starts, ends = batch.offsets[:-1], batch.offsets[1:]
    documents = np.arange(1, len(ends) + 1)
    if bos is None and eos is None:
        return ids, ends
    if bos is not None and eos is not None:
        places = np.stack([starts, ends], axis=1).ravel()
        return np.insert(ids, places, np.tile(np.array([bos, eos], dtype), len(ends))), ends + 2 * documents
    places, value = (starts, bos) if bos is not None else (ends, eos)
    return np.insert(ids, places, np.array(value, dtype)), ends + documents
