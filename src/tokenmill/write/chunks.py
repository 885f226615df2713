"""Stage 5, write: rows become chunk files, which nobody sees before they are whole and on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from tokenmill.output import layout
from tokenmill.records import EMPTY, SIDECAR_DTYPE, ChunkEntry, PackedRows, Partial
from tokenmill.storage.base import Storage, closed_on_failure
from tokenmill.write.lines import LinesWriter
from tokenmill.write.npy import DraftChangedError, NpyWriter


class ChunkWriter:
    """One chunk being written: the rows, the sidecar, and the documents' own ids if they are kept."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        *,
        dtype: np.dtype[Any],
        seq_len: int,
        with_ids: bool,
        begun: Partial = EMPTY,
    ) -> None:
        self.name = name
        self._storage = storage
        self._seq_len = seq_len
        self._padding = 0
        self._rows = self._begin(layout.ROWS, dtype, seq_len, begun.tokens)
        with closed_on_failure(self._rows.draft.close):
            self._documents = self._begin(layout.DOCUMENTS, SIDECAR_DTYPE, None, begun.documents)
        with closed_on_failure(self._rows.draft.close, self._documents.draft.close):
            self._ids = self._begin_ids(begun.ids_bytes) if with_ids else None
        self._writers = [w for w in (self._rows, self._documents, self._ids) if w is not None]
        if begun.tokens and begun.xxh3 != self._checksum():
            self.abort()
            raise DraftChangedError(f"the incomplete chunk {name} is not as it was written")

    def _begin(self, suffix: str, dtype: np.dtype[Any], columns: int | None, count: int) -> NpyWriter:
        draft = self._storage.draft(layout.chunk_file(self.name, suffix), NpyWriter.size_of(dtype, columns, count))
        with closed_on_failure(draft.close):
            return NpyWriter(draft, dtype, columns, count)

    def _begin_ids(self, size: int) -> LinesWriter:
        draft = self._storage.draft(layout.chunk_file(self.name, layout.IDS), size)
        with closed_on_failure(draft.close):
            return LinesWriter(draft, size)

    def append(self, rows: PackedRows) -> None:
        self._rows.append(rows.token_ids)
        self._padding += rows.padding
        self._documents.append(rows.documents)
        if self._ids is not None and rows.document_ids:
            self._ids.append(b"\n".join(rows.document_ids) + b"\n")

    def sync(self) -> Partial:
        """Force an incomplete chunk to disk, so that it can be continued."""
        for writer in self._writers:
            writer.flush()
        self._storage.sync_drafts([writer.draft for writer in self._writers])
        ids_bytes = 0 if self._ids is None else self._ids.size
        return Partial(
            tokens=self._rows.count, documents=self._documents.count, ids_bytes=ids_bytes, xxh3=self._checksum()
        )

    def _checksum(self) -> str:
        """Of all drafts, as far as they are written."""
        return xxhash.xxh3_128_hexdigest("".join(writer.checksum for writer in self._writers).encode())

    def close(self) -> ChunkEntry:
        """Complete the chunk and publish it."""
        checksums = [writer.complete() for writer in self._writers]
        self._storage.publish_drafts([writer.draft for writer in self._writers])
        return ChunkEntry(
            name=self.name,
            rows=self._rows.count // self._seq_len,
            tokens=self._rows.count - self._padding,
            documents=self._documents.count,
            xxh3=checksums[0],
            docs_xxh3=checksums[1],
            ids_xxh3=None if self._ids is None else checksums[2],
        )

    def abort(self) -> None:
        """Let go of the drafts. They stay, for a checkpoint may know of them; the next run clears up."""
        for writer in self._writers:
            writer.draft.close()
