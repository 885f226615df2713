"""Bytes become blocks of whole lines.

pieces of bytes ─> complete lines, about 1 MiB of them ─> Block
└ a line over the limit: a reject, and only its head is held
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

from tokenmill.read.decompress import BrokenStreamError
from tokenmill.read.ring import Ring
from tokenmill.records import PREVIEW_BYTES, Part, Reason, Reject
from tokenmill.storage.base import Source

# 1 MiB of lines and what is made of it fit the cache: 4 MiB was measured 15 % slower, 8 MiB 30 %.
BLOCK_BYTES = 1 << 20  # no mutant: only speed and memory depend on it
# As much of a file as is mapped at a time. What lies behind is let go with the last block of it.
MAP_BYTES = 64 << 20
SEARCH_BYTES = 16 << 10  # no mutant: only speed depends on it
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines. `release` is called once nobody looks at them, if their memory is lent."""

    offset: int
    consumed: int
    data: bytes | memoryview
    release: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Break:
    """A place where lines could not be read, or where one is too long; `tail` is the incomplete line before it."""

    offset: int
    consumed: int
    tail: bytes
    reject: Reject


def line_start(file: Source, part: Part) -> int:
    """Where the first line that begins inside the part begins."""
    if part.start == 0:
        return 0
    position = file.seek(part.start - 1)
    while data := file.read(BLOCK_BYTES):
        if (cut := data.find(b"\n")) >= 0:
            return position + cut + 1
        position += len(data)
    return position


def lines_in_range(file: Source, position: int, end: int | None) -> Iterator[bytes]:
    """The lines that begin at or after `position` and before `end`; the last may reach beyond it."""
    file.seek(position)
    while end is None or position < end:
        if not (data := file.read(BLOCK_BYTES)):
            return
        if end is not None and position + len(data) >= end:
            cut = data.find(b"\n", max(0, end - 1 - position))
            while cut < 0 and (more := file.read(BLOCK_BYTES)):
                yield data
                data, cut = more, more.find(b"\n")
            yield data[: cut + 1] if cut >= 0 else data
            return
        position += len(data)
        yield data


def skip_bytes(source: Iterable[bytes], count: int) -> Iterator[bytes]:
    for piece in source:
        if count >= len(piece):
            count -= len(piece)
        else:
            yield piece[count:] if count else piece
            count = 0


def lend_lines(file: Source, position: int, end: int | None, ring: Ring) -> Generator[Lines, None, int]:
    """The same lines as `lines_in_range`, read straight into buffers of the ring.

    Returns where it stopped: at the end, or at a line longer than a buffer, which is for the ordinary way to read.
    """
    file.seek(position)
    if position == 0 and file.read(len(BOM)) == BOM:
        position = len(BOM)
        end = None if end is None else max(end, position + 1)  # its line is the first one, which begins before it
    file.seek(position)
    tail = b""
    while end is None or position < end:
        view, release = ring.lend()
        view[: len(tail)] = tail
        stop = None if end is None else end - position
        size, cut = _fill(file, view, len(tail), stop)
        if not cut:
            release()
            return position
        tail = bytes(view[cut:size])  # before the buffer is lent: it may come back at any time, and hold other lines
        yield Lines(position, cut, view[:cut], release)
        position += cut
    return position


def _fill(file: Source, view: memoryview, size: int, stop: int | None) -> tuple[int, int]:
    """Read until about 1 MiB holds a whole line; how much there is, and where the last whole line ends (0: nowhere).

    The last line wanted is the one that begins before `stop`.
    """
    data = view.obj
    assert isinstance(data, bytearray)
    for target in range(BLOCK_BYTES, len(view) + 1, BLOCK_BYTES):
        while size < target and (got := file.readinto(view[size:target])):
            size += got
        if stop is not None and stop <= size:
            cut = data.find(b"\n", stop - 1, size) + 1
        else:
            cut = data.rfind(b"\n", 0, size) + 1 if size == target else size
        if cut or size < target:
            return size, cut or size
    return size, 0


def map_lines(file: Source, position: int, end: int | None) -> Generator[Lines, None, int]:
    """The same lines as `lines_in_range`, as slices of a map of the file: nothing is copied.

    Returns where it stopped: at the end, or at a line longer than what is mapped at a time, which is for the ordinary
    way to read.
    """
    size = file.stat.size
    end = size if end is None else min(end, size)
    if position == 0 and file.map(0, min(size, len(BOM))) == BOM:
        position = len(BOM)
        end = min(size, max(end, position + 1))  # its line is the first one, which begins before it
    while position < end:
        view = file.map(position, min(size, position + MAP_BYTES))
        done = 0
        while position + done < end and (cut := _cut(view, done, end - position, position + len(view) == size)):
            yield Lines(position + done, cut - done, view[done:cut])
            done = cut
        if not done:
            return position
        position += done
    return position


def _cut(view: memoryview, start: int, end: int, is_last: bool) -> int:
    """Where about a block of whole lines ends; 0: it is not in view. The last line wanted begins before `end`."""
    target = min(start + BLOCK_BYTES, len(view))
    if end <= target:
        return _next_newline(view, end - 1) or len(view) * is_last
    if is_last and target == len(view):
        return target
    return _last_newline(view, start, target) or _next_newline(view, target) or len(view) * is_last


def _last_newline(view: memoryview, start: int, stop: int) -> int:
    """The place behind it, or 0."""
    while stop > start:
        low = max(start, stop - SEARCH_BYTES)
        if found := bytes(view[low:stop]).rfind(b"\n") + 1:
            return low + found
        stop = low
    return 0


def _next_newline(view: memoryview, start: int) -> int:
    """The place behind it, or 0."""
    for low in range(start, len(view), SEARCH_BYTES):
        if found := bytes(view[low : low + SEARCH_BYTES]).find(b"\n") + 1:
            return low + found
    return 0


def cut_lines(
    source: Iterable[bytes],
    offset: int,
    limit: int,
    consumed: Callable[[], int] = lambda: 0,
    ring: Ring | None = None,
) -> Iterator[Lines | Break]:
    """Cut pieces of bytes into blocks of whole lines; a line over the limit becomes a reject without being held."""
    return _LineCutter(offset, limit, consumed, ring).run(_begin_whole(source))


def _begin_whole(source: Iterable[bytes]) -> Iterator[bytes]:
    """The same pieces, the first of them long enough to tell a mark; a member of gzip may hold a single byte."""
    pieces = iter(source)
    held = b""
    try:
        while len(held) < len(BOM) and (piece := next(pieces, b"")):
            held += piece
    except BrokenStreamError:
        if held:
            yield held
        raise
    if held:
        yield held
    yield from pieces


class _LineCutter:
    """The state of `cut_lines`: complete lines not given out yet, and the line that is still incomplete."""

    def __init__(self, offset: int, limit: int, consumed: Callable[[], int], ring: Ring | None) -> None:
        self._ring = ring
        self._offset = offset
        self._limit = limit
        self._tell = consumed
        self._told = consumed()
        self._lines: list[bytes] = []
        self._lines_size = 0
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._overlong = False  # only the head of the incomplete line is kept, it is over the limit

    def run(self, source: Iterable[bytes]) -> Iterator[Lines | Break]:
        try:
            for piece in source:
                yield from self._add(piece)
        except BrokenStreamError as broken:
            yield from self._flush()
            if self._overlong:
                yield self._reject_overlong()
            yield self._broken(broken)
            return
        yield from self._flush()
        if self._overlong:
            yield self._reject_overlong()
        elif self._tail_size:
            yield self._block(b"".join(self._tail), size=self._tail_size)

    def _add(self, piece: bytes) -> Iterator[Lines | Break]:
        if self._offset == 0 and not self._tail_size and not self._lines_size and piece.startswith(BOM):
            piece = piece[len(BOM) :]
            self._offset = len(BOM)
        if self._overlong:
            cut = piece.find(b"\n") + 1
            more = piece[: cut - 1] if cut else piece
            self._tail = [(self._tail[0] + more[:PREVIEW_BYTES])[:PREVIEW_BYTES]]
            if not cut:
                self._tail_size += len(piece)
                return
            self._tail_size += cut - 1
            yield self._reject_overlong(newline=1)
            piece = piece[cut:]
        if cut := piece.rfind(b"\n") + 1:
            self._lines += [*self._tail, piece[:cut]]
            self._lines_size += self._tail_size + cut
            self._tail, self._tail_size = [piece[cut:]], len(piece) - cut
        else:
            self._tail.append(piece)
            self._tail_size += len(piece)
        if self._lines_size >= BLOCK_BYTES:
            yield from self._flush()
        if self._tail_size > self._limit:
            yield from self._flush()
            # Without joining what may be hundreds of megabytes.
            self._tail = [b"".join(p[:PREVIEW_BYTES] for p in self._tail[:PREVIEW_BYTES])[:PREVIEW_BYTES]]
            self._overlong = True

    def _flush(self) -> Iterator[Lines | Break]:
        if self._lines_size:
            yield self._joined()

    def _joined(self) -> Lines:
        """On its own, so that nothing holds the pieces, of a line of any length, while the block is worked on."""
        lines, size = self._lines, self._lines_size
        self._lines, self._lines_size = [], 0
        if self._ring is None:
            return self._block(lines[0] if len(lines) == 1 else b"".join(lines), size=size)
        return self._block(*self._ring.join(lines), size=size)

    def _block(self, data: bytes | memoryview, release: Callable[[], None] | None = None, *, size: int) -> Lines:
        return Lines(*self._advance(size), data, release)

    def _break(self, tail: bytes, reject: Reject, size: int) -> Break:
        return Break(*self._advance(size), tail, reject)

    def _advance(self, size: int) -> tuple[int, int]:
        """Where the next bytes begin, and how much of the file was read since the last ones."""
        offset, self._offset = self._offset, self._offset + size
        told, self._told = self._told, self._tell()
        return offset, self._told - told

    def _reject_overlong(self, newline: int = 0) -> Break:
        head, size = self._tail[0], self._tail_size
        self._tail, self._tail_size, self._overlong = [], 0, False
        reject = too_large(0, self._offset, size, self._limit, head)
        return self._break(b"", reject, size + newline)

    def _broken(self, broken: BrokenStreamError) -> Break:
        tail = b"".join(self._tail)
        reject = Reject(
            record=0,
            offset=self._offset + len(tail),
            reason=broken.reason,
            detail=broken.detail,
            head=tail[:PREVIEW_BYTES],
            loss=broken.loss,
        )
        return self._break(tail, reject, len(tail))


def too_large(record: int, offset: int, size: int, limit: int, head: bytes) -> Reject:
    detail = f"the record has {size:,} bytes, more than --max-document-bytes {limit:,}"
    return Reject(record=record, offset=offset, reason=Reason.TOO_LARGE, detail=detail, head=head[:PREVIEW_BYTES])
