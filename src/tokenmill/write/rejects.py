"""A unit's rejects: one JSON object per line, in the order of the records. Most units have none, and no file."""

from __future__ import annotations

from collections.abc import Iterable

from tokenmill.output import layout
from tokenmill.output.schema import StoredReject, to_line
from tokenmill.records import Reject, Unit
from tokenmill.storage.base import Storage, closed_on_failure
from tokenmill.write.lines import LinesWriter
from tokenmill.write.npy import DraftChangedError


class RejectsWriter:
    """The list of one unit. `size`: go on with a draft that already holds so many bytes, of this checksum."""

    def __init__(self, storage: Storage, unit: Unit, size: int = 0, checksum: str | None = None) -> None:
        self._storage = storage
        self._name = layout.rejects_file(unit)
        self._lines = self._begin(size) if size else None
        if self.checksum != checksum:
            self.close()
            raise DraftChangedError(f"the list of rejects {self._name} is not as it was written")
        self._synced = -1  # it may have been unpublished, and its name not be on disk

    def _begin(self, size: int) -> LinesWriter:
        draft = self._storage.draft(self._name, size)
        with closed_on_failure(draft.close):
            return LinesWriter(draft, size)

    @property
    def size(self) -> int:
        return 0 if self._lines is None else self._lines.size

    @property
    def checksum(self) -> str | None:
        """Of the list so far; None if it is empty."""
        return None if self._lines is None else self._lines.checksum

    def append(self, rejects: Iterable[Reject], part: int, first_record: int) -> None:
        """The rejects of a block whose first record has this number in its part. Whoever looks sees them at once."""
        text = "".join(to_line(_stored(reject, part, first_record)) for reject in rejects)
        if text:
            self._lines = self._lines or self._begin(0)
            self._lines.append(text.encode("ascii"))
            self._lines.flush()

    def sync(self) -> int:
        """Force the list to disk, so that it can be continued; its size."""
        if self._lines is not None and self._lines.size != self._synced:
            self._storage.sync_drafts([self._lines.draft])
            self._synced = self.size
        return self.size

    def publish(self) -> str | None:
        """Complete the list and publish it; its checksum, None if it is empty."""
        if self._lines is None:
            return None
        checksum = self._lines.complete()
        self._storage.publish_drafts([self._lines.draft])
        return checksum

    def close(self) -> None:
        """Let go of the draft; it stays, for a checkpoint may know of it."""
        if self._lines is not None:
            self._lines.draft.close()


def _stored(reject: Reject, part: int, first_record: int) -> StoredReject:
    return StoredReject(
        part=part,
        record=first_record + reject.record,
        offset=reject.offset,
        reason=reject.reason,
        detail=reject.detail,
        records=reject.records,
        head=reject.head.decode("utf-8", "backslashreplace"),
    )
