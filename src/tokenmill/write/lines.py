"""Lines of text that become a file with a checksum: ids of documents, rejects of a unit."""

from __future__ import annotations

import xxhash

from tokenmill.storage.base import Draft
from tokenmill.write.npy import hash_rest

BUFFER_BYTES = 64 << 10  # no mutant: only speed and memory depend on it


class LinesWriter:
    """Streams lines into a draft. `size`: go on with one that already holds so many bytes."""

    def __init__(self, draft: Draft, size: int = 0) -> None:
        self.draft = draft
        self.size = size
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._hash = xxhash.xxh3_128()
        if size:
            hash_rest(draft, 0, self._hash)

    def append(self, lines: bytes) -> None:
        self.size += len(lines)
        self._held.append(lines)
        self._held_bytes += len(lines)
        if self._held_bytes >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write out what is buffered."""
        if self._held:
            data = b"".join(self._held)
            self._held, self._held_bytes = [], 0
            self.draft.write(data)
            self._hash.update(data)

    @property
    def checksum(self) -> str:
        """Of all that was written so far."""
        return self._hash.hexdigest()

    def complete(self) -> str:
        """The checksum of all lines."""
        self.flush()
        return self._hash.hexdigest()
