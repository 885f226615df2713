"""Does the footer of a Parquet file belong to the bytes in front of it, or were two files put one behind the other?

    first  PAR1 row groups, indexes  footer PAR1
    other                                       PAR1 row groups, indexes  footer PAR1

The footer of `other` counts from the beginning of its own file, so it is applied to the bytes of `first`: pyarrow reads
rows of that one, or garbage, and says nothing. What such a footer does not cover is as long as `first`, and there one
file ends and another begins. Writers may put things of their own before a footer, so without that there is no verdict,
nor if the footer makes no sense. pyarrow is not asked where the columns lie: if that is damaged, it ends the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tokenmill.storage.base import Source

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 8 << 20  # no mutant: only time depends on it, two seconds at most
MAX_UNKNOWN_BYTES = 64 << 10
"""What may lie before a footer that does not know of it: copies of metadata, Bloom filters of older writers."""

_FOOTER_START = b"\x15"
"""Its first field, the version, is a number."""

# Fields, by the numbers that parquet.thrift gives them: FileMetaData.row_groups, RowGroup.columns; of a ColumnChunk,
# its metadata and where its indexes lie; of the metadata, where pages and the Bloom filter lie.
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_INDEXES = ((4, 5), (6, 7))
_COMPRESSED_SIZE, _PAGES, _BLOOM_FILTER = 7, (9, 11), (14, 15)

# Types of the compact protocol of Thrift.
_TRUE_FALSE = (1, 2)  # as a field; in a list it takes a byte
_BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 3, (4, 5, 6), 7, 8, (9, 10), 12


def bytes_of_another_file(source: Source) -> int:
    """How many bytes lie before the file that the footer belongs to; 0 if it is this one, or if nobody can tell."""
    came_from, size = source.tell(), source.stat.size
    try:
        source.seek(max(0, size - 8))
        length, magic = struct.unpack("<I4s", source.read(8))
        start = size - 8 - length
        if magic != MAGIC or length > MAX_FOOTER_BYTES or start < 2 * len(MAGIC):
            return 0
        source.seek(start)
        gap = start - _covered(source.read(length))
        return _end_of_a_file(source, max(0, gap - MAX_UNKNOWN_BYTES), gap)
    except (struct.error, ValueError, IndexError, RecursionError):
        return 0
    finally:
        source.seek(came_from)


def _end_of_a_file(source: Source, first: int, last: int) -> int:
    """Where, from one byte of a file to another, a Parquet file ends and the next one begins; 0 for nowhere."""
    source.seek(first := max(0, first - 8))
    data = source.read(max(0, last + len(MAGIC) - first))
    place = data.rfind(MAGIC + MAGIC)
    while place >= 4:
        (length,) = struct.unpack_from("<I", data, place - 4)
        if (start := first + place - 4 - length) >= len(MAGIC):
            source.seek(start)
            if source.read(1) == _FOOTER_START:
                return first + place + len(MAGIC)
        place = data.rfind(MAGIC + MAGIC, 0, place + 2 * len(MAGIC) - 1)
    return 0


def _covered(footer: bytes) -> int:
    """Where the last of all that a footer knows of ends."""
    compact = _Compact(footer)
    end = len(MAGIC)
    for number, kind in compact.fields():
        if number != _ROW_GROUPS or kind not in _LISTS:
            compact.skip(kind)
            continue
        for _ in compact.structs():
            for field, of_type in compact.fields():
                if field != _COLUMNS or of_type not in _LISTS:
                    compact.skip(of_type)
                    continue
                for _ in compact.structs():
                    end = max(end, _end_of_column(compact))
    return end


def _end_of_column(compact: _Compact) -> int:
    """Where a column of a row group ends, with its indexes and its Bloom filter."""
    chunk: dict[int, int] = {}
    metadata: dict[int, int] = {}
    for number, kind in compact.fields():
        if number == _METADATA and kind == _STRUCT:
            metadata = compact.integers()
        elif kind in _INTEGERS:
            chunk[number] = compact.integer()
        else:
            compact.skip(kind)
    pages = [metadata[page] for page in _PAGES if metadata.get(page, 0) > 0]
    ends = [chunk.get(place, 0) + chunk.get(size, 0) for place, size in _INDEXES]
    ends.append(min(pages, default=0) + metadata.get(_COMPRESSED_SIZE, 0))
    ends.append(sum(metadata.get(part, 0) for part in _BLOOM_FILTER))
    return max(ends)


class _Compact:
    """Reads the compact protocol of Thrift; raises IndexError, ValueError or RecursionError where it makes no sense.

    Every element takes a byte or more, so that the size of the data bounds the time.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of the fields of a struct; each must be read, or skipped, before the next."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 15

    def structs(self) -> Iterator[None]:
        """As many turns as a list has structs; each must be read before the next."""
        kind, count = self._list()
        if kind != _STRUCT and count:
            raise ValueError("not a list of structs")
        for _ in range(count):
            yield

    def integers(self) -> dict[int, int]:
        """A struct, of which only the integers are wanted."""
        found = {}
        for number, kind in self.fields():
            if kind in _INTEGERS:
                found[number] = self.integer()
            else:
                self.skip(kind)
        return found

    def integer(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int) -> None:
        if kind in _INTEGERS:
            self._unsigned()
        elif kind == _BINARY:
            length = self._unsigned()
            self._at += length
        elif kind == _STRUCT:
            for _, of_type in self.fields():
                self.skip(of_type)
        elif kind in _LISTS:
            of_type, count = self._list()
            for _ in range(count):
                self.skip(of_type if of_type > _TRUE_FALSE[-1] else _BYTE)
        elif kind in (_BYTE, _DOUBLE):
            self._at += 1 if kind == _BYTE else 8
        elif kind not in _TRUE_FALSE:
            raise ValueError(f"there is no type {kind} in a Parquet footer")

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        return head & 15, head >> 4 if head >> 4 < 15 else self._unsigned()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._data[self._at]) >= 128:
            value |= (byte & 127) << shift
            shift += 7
            self._at += 1
            if shift > 63:
                raise ValueError("not a number of 64 bits")
        self._at += 1
        return value | byte << shift
