"""Raw material for one parse: whole lines, or rows, of one part of a file.

A reader makes blocks one after another (it does the I/O and the decompression); what is in a block is parsed later, by
any thread, for `parse` depends on the block alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenmill.read.ring import Ring
from tokenmill.records import Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingWay:
    """How bytes come from a file. It cannot change what is read."""

    ring: Ring | None = None
    """Blocks are lent from it; otherwise each is a bytes object."""
    mapped: bool = False
    """Plain files are mapped into memory, not read."""
    windows: int | None = None
    """The most bytes that a decompressor may keep of its output, to copy from; None: as many as the file asks for."""


READ_PLAINLY = ReadingWay()


@dataclass(frozen=True, slots=True)
class Block(ABC):
    """`offset` is where it starts (bytes into the decompressed file; rows for Parquet), `consumed` how many bytes of
    the input file were read for it.
    """

    offset: int
    consumed: int

    @property
    def size(self) -> int:
        """How many bytes it takes before it is parsed, about."""
        return 0

    @abstractmethod
    def parse(self) -> Documents:
        """What it holds."""

    def parse_plainly(self) -> Documents:
        """The same by the plainest way there is, to check the quick one."""
        return self.parse()

    def offsets_of(self, records: Sequence[int]) -> list[int]:
        """Where records of the block begin; only rejects need it, so it is looked for only then."""
        return [self.offset + record for record in records]

    def release(self) -> None:  # noqa: B027 - most blocks have memory of their own
        """Nothing more is asked of the block: whoever lent its memory can have it back."""


class Reader(Protocol):
    """Reads one part of one opened file."""

    def blocks(self, offset: int | None) -> Iterator[Block]:
        """Blocks from the start of the part, or from a block's `offset` when a checkpoint is resumed."""
        ...
