"""What is picked out of a JSON record: the text and, if it is kept, the id. Everything else is skipped undecoded.

A field with dots is two things: a key of that very name, or a way through nested objects. The key wins where a record
has it, whatever its value is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

MISSING = object()

# Types are made for this many levels; deeper fields are looked up by Python's json.
_MOST_LEVELS = 64
_NO_ID = msgspec.Raw(b"null")
_NO_KEY = msgspec.Raw(b"")


def look_up(record: dict[str, Any], field: str) -> object:
    """The value of a field in a decoded record, or MISSING."""
    if field in record:
        return record[field]
    value: object = record
    for key in field.split("."):
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


class Picker:
    """Decodes records into the few fields that are wanted, and gets at them.

    A record that the decoder refuses, or in which the text is UNSET, needs a closer look.
    """

    def __init__(self, text_field: str, id_field: str | None = None) -> None:
        self._text_path = _levels(text_field)
        self._id_path = _levels(id_field) if id_field else []
        self._text_is_dotted = "." in text_field
        self._id_is_dotted = "." in (id_field or "")
        self._nested_text = attrgetter(".".join(["text"] * max(1, len(self._text_path))))
        self._nested_id = attrgetter(".".join(_id_attributes(self._text_path, self._id_path) or ["id"]))
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if max(text_field.count("."), (id_field or "").count(".")) < _MOST_LEVELS:
            with suppress(ValueError):  # it cannot know a key with quotes, backslashes or control characters
                self._decoder = msgspec.json.Decoder(self._record_type(text_field, id_field))

    def decode(self, line: bytes) -> Any:
        """A record. Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError if it needs a closer look."""
        return self._known().decode(line)

    def decode_lines(self, lines: bytes | memoryview) -> list[Any]:
        """Records, one behind the other; see `decode`."""
        return self._known().decode_lines(lines)

    def _known(self) -> msgspec.json.Decoder[Any]:
        if self._decoder is None:
            raise msgspec.DecodeError("its fields are for Python's json")
        return self._decoder

    def texts(self, records: Sequence[Any]) -> list[str] | None:
        """The text of each; None if one has none."""
        if not self._text_is_dotted:
            return [record.text for record in records]
        found = [self.text(record) for record in records]
        return None if UNSET in found else found  # type: ignore[return-value]

    def text(self, record: Any) -> str | UnsetType:
        """The text of a record, UNSET if it has none."""
        if self._text_is_dotted and record.text_key is not UNSET:
            key: str = record.text_key
            return key
        try:
            text: str | UnsetType = self._nested_text(record)
        except AttributeError:  # of UNSET, on the way there
            return UNSET
        return text

    def id(self, record: Any) -> bytes:
        """The id as JSON."""
        if self._id_is_dotted and record.id_key is not _NO_KEY:
            raw = record.id_key
        else:
            try:
                raw = self._nested_id(record)
            except AttributeError:
                raw = _NO_ID
        return bytes(raw).decode(errors="replace").encode()  # msgspec does not look into what it hands on raw

    def _record_type(self, text_field: str, id_field: str | None) -> type[msgspec.Struct]:
        """A Struct that picks the text, and the id if asked for, out of a record and skips everything else."""
        keys: list[tuple[str, Any, Any]] = []
        if self._text_is_dotted:
            keys.append(("text_key", str | UnsetType, msgspec.field(name=text_field, default=UNSET)))
        if self._id_is_dotted:
            keys.append(("id_key", msgspec.Raw, msgspec.field(name=id_field, default=_NO_KEY)))
        nested = _nested(self._text_path, self._id_path, is_optional=self._text_is_dotted)
        return msgspec.defstruct("Record", [*keys, *nested], kw_only=True, gc=False)


def _levels(field: str) -> list[str]:
    """The keys on the way to a nested field; none if it is too deep to be one."""
    path = field.split(".")
    return path if len(path) <= _MOST_LEVELS else []


def _id_attributes(text_path: list[str], id_path: list[str]) -> list[str]:
    """The attributes that lead to the id: `text` along the way that it shares with the text, then `id`."""
    shared = 0
    while shared < min(len(text_path), len(id_path)) - 1 and text_path[shared] == id_path[shared]:
        shared += 1
    return ["text"] * shared + ["id"] * (len(id_path) - shared)


def _nested(text_path: list[str], id_path: list[str], *, is_optional: bool) -> list[tuple[str, Any, Any]]:
    """The fields of an object that lead to the text and the id."""
    fields: list[tuple[str, Any, Any]] = []
    shared = len(text_path) > 1 and len(id_path) > 1 and text_path[0] == id_path[0]
    if text_path:
        kind: Any = str
        if len(text_path) > 1:
            inner = _nested(text_path[1:], id_path[1:] if shared else [], is_optional=is_optional)
            kind = msgspec.defstruct("Text", inner, gc=False)
        if is_optional:
            fields.append(("text", kind | UnsetType, msgspec.field(name=text_path[0], default=UNSET)))
        else:
            fields.append(("text", kind, msgspec.field(name=text_path[0])))
    if id_path and not shared:
        fields.append(("id", *_id_type(id_path)))
    return fields


def _id_type(path: list[str]) -> tuple[Any, Any]:
    if len(path) == 1:
        return msgspec.Raw, msgspec.field(name=path[0], default=_NO_ID)
    inner = msgspec.defstruct("Id", [("id", *_id_type(path[1:]))], gc=False)
    return inner, msgspec.field(name=path[0], default_factory=inner)
