"""JSON Lines, plain or compressed: whole lines in blocks, decoded a block at a time.

    bytes ─lines─> blocks of whole lines ─> msgspec decodes a block in one call
                                            └ a block with a bad line: line by line

`decode_lines` reads JSON values and takes a newline for any other white space, so two lines that break a record
between them may come out as two records. The fast path therefore holds only where every newline stands between
`}` and `{` (inside a record that cannot be, by the grammar of JSON) and lines and records are equal in number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.config import Config
from tokenmill.read.decompress import pieces
from tokenmill.read.lines import BOM, cut_lines, lend_lines, line_start, lines_in_range, skip_bytes, too_large
from tokenmill.read.ring import Ring
from tokenmill.records import PREVIEW_BYTES, Block, Codec, Documents, Part, Reason, Reject

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


class JsonlReader:
    """Reads one part of a JSON Lines file.

    `ring`: blocks are lent from it; otherwise each is a bytes object.
    """

    def __init__(self, path: Path, codec: Codec, part: Part, config: Config, ring: Ring | None = None) -> None:
        self._path = path
        self._codec = codec
        self._part = part
        self._limit = config.max_document_bytes
        self._ring = ring
        self.parser = JsonlParser(config.text_field, config.id_field, config.max_document_bytes)

    def blocks(self, offset: int | None) -> Iterator[Block]:
        with self._path.open("rb", buffering=0) as file:
            if self._codec is not Codec.PLAIN:
                position = offset or 0
                source = skip_bytes(pieces(file, self._codec), position)
                yield from cut_lines(source, position, self._limit, file.tell, self._ring)
                return
            position = line_start(file, self._part) if offset is None else offset
            if self._ring is not None:
                position = yield from lend_lines(file, position, self._part.end, self._ring)
            file.seek(position)
            source = lines_in_range(file, position, self._part.end)
            yield from cut_lines(source, position, self._limit, file.tell, self._ring)

    def parse(self, block: Block) -> Documents:
        return self.parser(block)


class JsonlParser:
    """Turns a block of lines into documents."""

    def __init__(self, text_field: str, id_field: str | None, limit: int) -> None:
        self._text_path = text_field.split(".")
        self._id_path = id_field.split(".") if id_field else None
        self._id_attributes = _id_attributes(self._text_path, self._id_path or [])
        self._limit = limit
        self._decoder = msgspec.json.Decoder(_record_type(self._text_path, self._id_path))

    def __call__(self, block: Block) -> Documents:
        data: bytes | memoryview = block.data
        if block.broken is not None:
            return self._parse_broken(block, block.broken)
        if len(data) <= self._limit and (documents := self._parse_fast(data)) is not None:
            return documents
        return self.parse_lines(bytes(data), block.offset)

    def _parse_fast(self, data: bytes | memoryview) -> Documents | None:
        """All lines at once, or None where a line needs a closer look."""
        lines = _aligned_lines(data)
        if lines is None:
            return None
        try:
            records = self._decoder.decode_lines(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if len(records) != lines:
            return None
        texts = [self._text(r) for r in records]
        ids = [self._id(r) for r in records] if self._id_path else None
        if "" not in texts:
            return Documents(texts=texts, numbers=range(lines), ids=ids, records=lines, lines=lines)
        kept = [i for i, text in enumerate(texts) if text]
        return Documents(
            texts=[texts[i] for i in kept],
            numbers=kept,
            ids=[ids[i] for i in kept] if ids else None,
            records=lines,
            lines=lines,
            empty=lines - len(kept),
        )

    def parse_lines(self, data: bytes, offset: int) -> Documents:
        """The plain way, line by line. The fast path gives exactly this."""
        ids: list[bytes] | None = [] if self._id_path else None
        numbers: list[int] = []
        result = Documents(texts=[], numbers=numbers, ids=ids, records=0, lines=0)
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
            record = self._decoder.decode(line)
            return self._text(record), self._id(record) if self._id_path else b""
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
        text = _lookup(record, self._text_path)
        if text is _MISSING:
            keys = ", ".join(list(record)[:8])
            path = " > ".join(self._text_path)
            raise _BadRecordError(Reason.NO_TEXT_FIELD, f"no field {path} in the record, which has: {keys}")
        if not isinstance(text, str):
            raise _BadRecordError(Reason.TEXT_NOT_A_STRING, f"the text is a JSON {_json_type(text)}, not a string")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _BadRecordError(
                Reason.LONE_SURROGATE, f"half a surrogate pair at character {error.start} of the text"
            ) from None
        found = _lookup(record, self._id_path) if self._id_path else None
        return text, to_json(None if found is _MISSING else found)

    def _parse_broken(self, block: Block, broken: Reject) -> Documents:
        """The incomplete line before a break: a document if it happens to be whole, else part of the break."""
        if broken.reason is Reason.TOO_LARGE:
            ids: list[bytes] | None = [] if self._id_path else None
            return Documents(texts=[], numbers=[], ids=ids, records=1, lines=1, rejects=[broken])
        result = self.parse_lines(block.data, block.offset)
        lost = len(result.rejects)
        result.records += 1 - lost
        result.rejects = [broken]
        return result

    def _text(self, record: Any) -> str:
        for _ in self._text_path[1:]:
            record = record.text
        text: str = record.text
        return text

    def _id(self, record: Any) -> bytes:
        for name in self._id_attributes:
            record = getattr(record, name)
        return bytes(record).decode(errors="replace").encode()  # msgspec does not look into what it hands on raw


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


_MISSING = object()


def _lookup(record: object, path: list[str]) -> object:
    for key in path:
        if not isinstance(record, dict) or key not in record:
            return _MISSING
        record = record[key]
    return record


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _aligned_lines(data: bytes | memoryview) -> int | None:
    """How many lines there are, or None unless every newline but the last stands between `}` and `{`."""
    view = np.frombuffer(data, np.uint8)
    if view[0] != _OPEN:
        return None
    ends = np.flatnonzero(view == _NEWLINE)
    closed = bool(view[-1] == _NEWLINE)
    inner = ends[:-1] if closed else ends
    if not (view[inner + 1] == _OPEN).all():
        return None
    before = view[inner - 1]
    returns = before == _RETURN
    if returns.any():
        before = np.where(returns, view[inner - 2], before)
    return len(inner) + 1 if (before == _CLOSE).all() else None


def _id_attributes(text_path: list[str], id_path: list[str]) -> list[str]:
    """The attributes that lead to the id: `text` along the way that it shares with the text, then `id`."""
    shared = 0
    while shared < min(len(text_path), len(id_path)) - 1 and text_path[shared] == id_path[shared]:
        shared += 1
    return ["text"] * shared + ["id"] * (len(id_path) - shared)


def _record_type(text_path: list[str], id_path: list[str] | None) -> type[msgspec.Struct]:
    """A Struct that picks the text, and the id if asked for, out of a record and skips everything else."""
    fields: list[tuple[str, Any, Any]] = []
    shared = id_path is not None and len(text_path) > 1 and len(id_path) > 1 and text_path[0] == id_path[0]
    rest = id_path[1:] if id_path and shared else None
    text_type = _record_type(text_path[1:], rest) if len(text_path) > 1 else str
    fields.append(("text", text_type, msgspec.field(name=text_path[0])))
    if id_path and not shared:
        fields.append(("id", *_id_type(id_path)))
    return msgspec.defstruct("Record", fields, gc=False)


def _id_type(path: list[str]) -> tuple[Any, Any]:
    if len(path) == 1:
        return msgspec.Raw, msgspec.field(name=path[0], default=msgspec.Raw(b"null"))
    inner = msgspec.defstruct("Id", [("id", *_id_type(path[1:]))], gc=False)
    return inner, msgspec.field(name=path[0], default_factory=inner)
