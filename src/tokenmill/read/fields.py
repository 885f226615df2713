"""Whether a file has the fields that the options name, looked at before anything is run.

A table says it in its schema. Of JSON Lines, the records of the first block are looked at: those that are objects. One
of them with the field is enough; if there are none to look at, nothing is wrong with the options.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tokenmill.config import ReadOptions
from tokenmill.read.pick import MISSING, look_up
from tokenmill.records import AbsentField


def named_fields(options: ReadOptions) -> Iterator[tuple[str, str]]:
    """The options that name a field, and the fields."""
    yield "text_field", options.text_field
    if options.id_field is not None:
        yield "id_field", options.id_field


def have_fields(records: Iterable[dict[str, object]], options: ReadOptions) -> bool:
    """Whether each of the fields is in some record; it reads no more of them than it must."""
    wanted = [field for _, field in named_fields(options)]
    for record in records:
        wanted = [field for field in wanted if look_up(record, field) is MISSING]
        if not wanted:
            return True
    return False


def absent_from_records(records: list[dict[str, object]], options: ReadOptions) -> AbsentField | None:
    """The first of the fields that no record has, if there is a record."""
    for option, field in named_fields(options):
        if records and all(look_up(record, field) is MISSING for record in records):
            known = dict.fromkeys(key for record in records for key in _keys_beside(record, field))
            return AbsentField(option, field, tuple(known))
    return None


def records_of(lines: Iterable[bytes]) -> Iterator[dict[str, object]]:
    """The objects among lines; of a line that is cut off nothing is known."""
    for line in lines:
        try:
            record = json.loads(line) if line.lstrip()[:1] == b"{" else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def _keys_beside(record: dict[str, object], path: str) -> Iterator[str]:
    """The keys where the path ends: of the record, or ("meta.body") of an object inside of it that the path enters."""
    prefix = ""
    level: object = record
    for key in path.split("."):
        if not isinstance(level, dict) or not isinstance(level.get(key), dict):
            break
        level, prefix = level[key], f"{prefix}{key}."
    assert isinstance(level, dict)
    return (prefix + key for key in level)
