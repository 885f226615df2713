"""JSON Lines, plain or compressed: whole lines in blocks, decoded a block at a time.

    bytes ─lines─> blocks of whole lines ─> msgspec decodes a block in one call
                                            └ a block with a bad line: line by line
    `--read mmap`: the blocks of a plain file are slices of its map, and nothing is copied

`decode_lines` reads JSON values and takes a newline for any other white space, so two lines that break a record
between them may come out as two records. The fast path therefore holds only where every newline stands between
`}` and `{` (inside a record that cannot be, by the grammar of JSON) and lines and records are equal in number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from tokenmill.config import ReadOptions
from tokenmill.read.block import READ_PLAINLY, Block, ReadingWay
from tokenmill.read.decompress import pieces
from tokenmill.read.lines import (
    BOM,
    Break,
    Lines,
    cut_lines,
    lend_lines,
    line_start,
    lines_in_range,
    map_lines,
    skip_bytes,
    too_large,
)
from tokenmill.read.pick import MISSING, Picker, look_up
from tokenmill.records import PREVIEW_BYTES, Codec, Documents, Part, Reason, Reject
from tokenmill.storage.base import Source

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"

# A line that is not a record becomes a reject of some 300 bytes: a block of junk would be half a million of them.
MAX_BLOCK_LINES = 1 << 15


class JsonlReader:
    """Reads one part of a JSON Lines file."""

    def __init__(
        self, source: Source, codec: Codec, part: Part, options: ReadOptions, way: ReadingWay = READ_PLAINLY
    ) -> None:
        self._source = source
        self._codec = codec
        self._part = part
        self._limit = options.max_document_bytes
        self._way = way
        self._parser = JsonlParser(options.text_field, options.id_field, options.max_document_bytes)

    def blocks(self, offset: int | None) -> Iterator[Block]:
        # Not a loop: its variable would hold a block of any size while the next one is read.
        return chain.from_iterable(map(self._blocks_of, self._stretches(offset)))

    def _blocks_of(self, found: Lines | Break) -> Iterable[Block]:
        if isinstance(found, Break):
            return [BrokenLinesBlock(found.offset, found.consumed, found, self._parser)]
        ends = newlines(found.data)
        if len(ends) <= MAX_BLOCK_LINES:
            return [LinesBlock(found.offset, found.consumed, found, ends, self._parser)]
        return self._portions(found, ends)

    def _portions(self, found: Lines, ends: npt.NDArray[np.int64]) -> Iterator[Block]:
        """Lines of a few bytes, so many at a time; copied, for the memory they lie in is lent as a whole."""
        data, size = bytes(found.data), len(found.data)
        if found.release is not None:
            found.release()
        start, consumed = 0, found.consumed
        for last in range(MAX_BLOCK_LINES - 1, len(ends) + MAX_BLOCK_LINES - 1, MAX_BLOCK_LINES):
            stop = int(ends[last]) + 1 if last < len(ends) - 1 else size
            lines = Lines(found.offset + start, consumed, data[start:stop])
            yield LinesBlock(lines.offset, consumed, lines, newlines(lines.data), self._parser)
            start, consumed = stop, 0

    def _stretches(self, offset: int | None) -> Iterator[Lines | Break]:
        source = self._source
        if self._codec is not Codec.PLAIN:
            position = offset or 0
            data = skip_bytes(pieces(source, self._codec, self._way.windows), position)
            yield from cut_lines(data, position, self._limit, source.tell, self._way.ring)
            return
        position = line_start(source, self._part) if offset is None else offset
        if self._way.mapped:
            position = yield from map_lines(source, position, self._part.end)
        elif self._way.ring is not None:
            position = yield from lend_lines(source, position, self._part.end, self._way.ring)
        source.seek(position)
        data = lines_in_range(source, position, self._part.end)
        yield from cut_lines(data, position, self._limit, source.tell, self._way.ring)


@dataclass(frozen=True, slots=True)
class LinesBlock(Block):
    """Whole lines."""

    lines: Lines
    ends: npt.NDArray[np.int64]
    """Where its newlines are."""
    parser: JsonlParser

    @property
    def size(self) -> int:
        return len(self.lines.data)

    def parse(self) -> Documents:
        return self.parser.parse(self.lines.data, self.offset, self.ends)

    def parse_plainly(self) -> Documents:
        return self.parser.parse_lines(bytes(self.lines.data), self.offset)

    def offsets_of(self, records: Sequence[int]) -> list[int]:
        starts = np.concatenate([[0], self.ends + 1]) + self.offset
        return [int(starts[record]) for record in records]

    def release(self) -> None:
        if self.lines.release is not None:
            self.lines.release()


@dataclass(frozen=True, slots=True)
class BrokenLinesBlock(Block):
    """Lines that could not be read, or one that is too long."""

    found: Break
    parser: JsonlParser

    def parse(self) -> Documents:
        return self.parser.parse_break(self.found)


class JsonlParser:
    """Turns lines into documents."""

    def __init__(self, text_field: str, id_field: str | None, limit: int) -> None:
        self._text_field = text_field
        self._id_field = id_field
        self._limit = limit
        self._picker = Picker(text_field, id_field)

    def parse(self, data: bytes | memoryview, offset: int, ends: npt.NDArray[np.int64] | None = None) -> Documents:
        """`ends`: where the newlines are, if that is known."""
        ends = newlines(data) if ends is None else ends
        if len(data) <= self._limit and (documents := self._parse_fast(data, ends)) is not None:
            return documents
        return self.parse_lines(bytes(data), offset)

    def _parse_fast(self, data: bytes | memoryview, ends: npt.NDArray[np.int64]) -> Documents | None:
        """All lines at once, or None where a line needs a closer look."""
        lines = _aligned_lines(data, ends)
        if lines is None:
            return None
        try:
            records = self._picker.decode_lines(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if len(records) != lines or (texts := self._picker.texts(records)) is None:
            return None
        ids = [self._picker.id(r) for r in records] if self._id_field else None
        if "" not in texts:
            return Documents(texts=texts, numbers=range(lines), document_ids=ids, records=lines, lines=lines)
        kept = [i for i, text in enumerate(texts) if text]
        return Documents(
            texts=[texts[i] for i in kept],
            numbers=kept,
            document_ids=[ids[i] for i in kept] if ids else None,
            records=lines,
            lines=lines,
            empty=lines - len(kept),
        )

    def parse_lines(self, data: bytes, offset: int) -> Documents:
        """The plain way, line by line. The fast path gives exactly this."""
        ids: list[bytes] | None = [] if self._id_field else None
        numbers: list[int] = []
        result = Documents(texts=[], numbers=numbers, document_ids=ids, records=0, lines=0)
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines):
            if len(line) > self._limit or line.strip():
                result.records += 1
                parsed = self._parse_line(line, number, offset)
                if isinstance(parsed, Reject):
                    result.rejects.append(parsed)
                elif parsed[0]:
                    result.texts.append(parsed[0])
                    numbers.append(number)
                    if ids is not None:
                        ids.append(parsed[1])
                else:
                    result.empty += 1
            offset += len(line) + 1
        result.lines = len(lines)
        return result

    def _parse_line(self, line: bytes, number: int, offset: int) -> tuple[str, bytes] | Reject:
        if len(line) > self._limit:
            return too_large(number, offset, len(line), self._limit, line)
        line = line.removeprefix(BOM)
        try:
            record = self._picker.decode(line)
            if (text := self._picker.text(record)) is not UNSET:
                return text, self._picker.id(record) if self._id_field else b""
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        # Python's json has the last word: it takes NaN, and it tells a missing field from a broken line.
        try:
            return self._from_json(line)
        except _BadRecordError as bad:
            head = line[:PREVIEW_BYTES]
            return Reject(record=number, offset=offset, reason=bad.reason, detail=str(bad), head=head)

    def _from_json(self, line: bytes) -> tuple[str, bytes]:
        try:
            record = json.loads(line.decode())
        except UnicodeDecodeError as error:
            raise _BadRecordError(Reason.INVALID_UTF8, f"{error.reason} at byte {error.start} of the line") from None
        except RecursionError:
            raise _BadRecordError(Reason.BROKEN_JSON, "nested too deeply") from None
        except ValueError as error:
            raise _BadRecordError(Reason.BROKEN_JSON, str(error)) from None
        if not isinstance(record, dict):
            raise _BadRecordError(Reason.NOT_AN_OBJECT, f"the line is a JSON {_json_type(record)}, not an object")
        text = look_up(record, self._text_field)
        if text is MISSING:
            keys = ", ".join(list(record)[:8])
            path = " > ".join(self._text_field.split("."))
            raise _BadRecordError(Reason.NO_TEXT_FIELD, f"no field {path} in the record, which has: {keys}")
        if not isinstance(text, str):
            raise _BadRecordError(Reason.TEXT_NOT_A_STRING, f"the text is a JSON {_json_type(text)}, not a string")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _BadRecordError(
                Reason.LONE_SURROGATE, f"half a surrogate pair at character {error.start} of the text"
            ) from None
        found = look_up(record, self._id_field) if self._id_field else None
        return text, to_json(None if found is MISSING else found)

    def parse_break(self, found: Break) -> Documents:
        """The incomplete line before a break: a document if it happens to be whole, else part of the break."""
        if found.reject.reason is Reason.TOO_LARGE:
            ids: list[bytes] | None = [] if self._id_field else None
            return Documents(texts=[], numbers=[], document_ids=ids, records=1, lines=1, rejects=[found.reject])
        result = self.parse_lines(found.tail, found.offset)
        lost = len(result.rejects)
        result.records += 1 - lost
        result.rejects = [found.reject]
        return result


def to_json(value: object) -> bytes:
    """An id as JSON; null for what JSON cannot say, such as NaN."""
    try:
        return json.dumps(value, allow_nan=False, default=str).encode()
    except ValueError:
        return b"null"


class _BadRecordError(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def newlines(data: bytes | memoryview) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)


def _aligned_lines(data: bytes | memoryview, ends: npt.NDArray[np.int64]) -> int | None:
    """How many lines there are, or None unless every newline but the last stands between `}` and `{`."""
    view = np.frombuffer(data, np.uint8)
    if view[0] != _OPEN:
        return None
    closed = bool(view[-1] == _NEWLINE)
    inner = ends[:-1] if closed else ends
    if not (view[inner + 1] == _OPEN).all():
        return None
    before = view[inner - 1]
    returns = before == _RETURN
    if returns.any():
        before = np.where(returns, view[inner - 2], before)
    return len(inner) + 1 if (before == _CLOSE).all() else None
