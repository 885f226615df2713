"""The frames of Arrow messages, as far as pyarrow keeps them to itself: where each ends, how many rows it declares.

pyarrow reads as much as a frame says, a terabyte if need be, so it is asked only for what the file has. And of a record
batch that cannot be read, the frame says how many rows are lost, and where the next one begins.

    stream   [ffffffff, size, metadata, body]… [ffffffff, 0]      metadata: a FlatBuffer, which knows the body's size
    file     ARROW1.. stream footer size ARROW1                   footer: a FlatBuffer, which knows where batches lie
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tokenmill.storage.base import Source

MAGIC = b"ARROW1"
STREAM_START = 8
"""Where the stream inside a file begins: behind the magic and two bytes of padding."""
MARKER = b"\xff\xff\xff\xff"
MAX_METADATA_BYTES = 64 << 20
MAX_COMPRESSION = 1000
_RECORD_BATCH = 3
_BLOCK = struct.Struct("<qi4xq")


@dataclass(frozen=True, slots=True)
class Frame:
    """What a message says of itself: where it ends, which may be beyond the file, and of a record batch, its rows."""

    end: int
    rows: int | None = None


def frame_at(source: Source, position: int) -> Frame | None:
    """The frame of the message at this place; None where the stream ends, or if it makes no sense."""
    if not 0 <= position < source.stat.size:
        return None
    came_from = source.tell()
    try:
        start, size = _metadata(source, position)
        if start + size > source.stat.size:
            return Frame(start + size)
        data = source.read(min(size, MAX_METADATA_BYTES))
        message = _Table(data, _unsigned(data, 0))
        body = message.number(3, "<q")
        end = start + size + max(0, body)
        if message.number(1, "<B") != _RECORD_BATCH:
            return Frame(end)
        batch = message.table(2)
        rows, is_compressed = batch.number(0, "<q"), batch.has(3)
    except (struct.error, ValueError):
        return None
    finally:
        source.seek(came_from)
    # A row takes a byte or more, which may be compressed: a damaged number must not stand for a billion lost records.
    most = body * (MAX_COMPRESSION if is_compressed else 1)
    return Frame(end, rows if 0 < rows <= most else 1)


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer of a file says: where the record batches lie; and where the last of all messages ends.

    `gap` is how much lies between that and the footer: the end marker, or what somebody put there.
    """

    batches: tuple[int, ...]
    gap: int


def footer_of(source: Source) -> Footer | None:
    """The footer of a file; None if it makes no sense."""
    came_from = source.tell()
    try:
        size = source.stat.size
        source.seek(max(0, size - 4 - len(MAGIC)))
        (length,) = struct.unpack("<I", source.read(4))
        start = size - 4 - len(MAGIC) - length
        source.seek(max(0, start))
        data = source.read(length)
        footer = _Table(data, _unsigned(data, 0))
        others, batches = ([_BLOCK.unpack_from(data, p) for p in footer.vector(n, _BLOCK.size)] for n in (2, 3))
    except (struct.error, ValueError):
        return None
    finally:
        source.seek(came_from)
    last = max((sum(block) for block in (*others, *batches)), default=start)
    return Footer(tuple(block[0] for block in batches), start - last)


def _metadata(source: Source, position: int) -> tuple[int, int]:
    """Where the metadata of a message begin, which is where the source is left, and their size."""
    source.seek(position)
    prefix = source.read(8)
    # Before version 0.15 there was no marker in front of the size.
    start, field = (8, prefix[4:]) if prefix.startswith(MARKER) else (4, prefix[:4])
    (size,) = struct.unpack("<I", field)
    if not size:
        raise ValueError("the end of a stream")
    source.seek(position + start)
    return position + start, size


def _unsigned(data: bytes, place: int) -> int:
    (found,) = struct.unpack_from("<I", data, place)
    return int(found)


class _Table:
    """A table of a FlatBuffer: fields by number, each of which may be absent."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place
        (back,) = struct.unpack_from("<i", data, place)
        self._fields = place - back
        (self._fields_size,) = struct.unpack_from("<H", data, self._fields)

    def _find(self, number: int) -> int:
        entry = 4 + 2 * number
        if entry + 2 > self._fields_size:
            return 0
        (found,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._place + found if found else 0

    def has(self, field: int) -> bool:
        return self._find(field) > 0

    def number(self, field: int, kind: str) -> int:
        """An integer; 0 if it is absent."""
        place = self._find(field)
        return int(struct.unpack_from(kind, self._data, place)[0]) if place else 0

    def _follow(self, field: int) -> int:
        if not (place := self._find(field)):
            raise ValueError(f"there is no field {field}")
        return place + _unsigned(self._data, place)

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._follow(field))

    def vector(self, field: int, size: int) -> range:
        """Where the elements of a vector lie, each of so many bytes; one that is absent has none."""
        if not self.has(field):
            return range(0)
        place = self._follow(field)
        count = _unsigned(self._data, place)
        return range(place + 4, min(place + 4 + count * size, len(self._data)), size)
