"""Where a unit stands: what is in chunks, and where to read on if it is interrupted now."""

from __future__ import annotations

import msgspec

from tokenmill.output.damage import with_rejects
from tokenmill.output.schema import Checkpoint
from tokenmill.records import EMPTY, ChunkEntry, Ledger, Partial, Reject, Unit
from tokenmill.write.rejects import RejectsWriter


def beginning(unit: Unit, missing: dict[int, str]) -> Checkpoint:
    """The checkpoint of a unit of which nothing is done."""
    return Checkpoint(
        unit=unit.index,
        part=0,
        offset=None,
        skip=0,
        ledger=Ledger(),
        chunks=(),
        lines=(0,) * len(unit.parts),
        rejects_bytes=0,
        missing=dict(missing),
    )


class Position:
    """The state between blocks, from which the next checkpoint is made.

    A restart reads on at the start of the block that is being written and passes over what is written of it, so the
    counts of a checkpoint are those from before that block.
    """

    def __init__(self, start: Checkpoint) -> None:
        self.ledger = start.ledger.copy()
        self.lines = list(start.lines)
        self.damaged = start.damaged
        self.chunks: list[ChunkEntry] = list(start.chunks)
        self.into_block = 0
        """How many tokens of the current block are in chunks; below 0 while a row from before it is incomplete."""
        self._mark = start

    def begin_block(self, part: int, offset: int, into_block: int, rejects: RejectsWriter) -> None:
        self.into_block = into_block
        self._mark = msgspec.structs.replace(
            self._mark,
            part=part,
            offset=offset,
            ledger=self.ledger.copy(),
            lines=tuple(self.lines),
            rejects_bytes=rejects.size,
            rejects_xxh3=rejects.checksum,
            damaged=self.damaged,
        )

    def end_block(self, part: int, lines: int, ledger: Ledger, rejects: list[Reject]) -> None:
        self.damaged = with_rejects(self.damaged, part, self.lines[part], rejects)
        self.lines[part] += lines
        self.ledger.add(ledger)

    def checkpoint(self, partial: Partial = EMPTY) -> Checkpoint:
        return msgspec.structs.replace(self._mark, skip=self.into_block, chunks=tuple(self.chunks), partial=partial)
