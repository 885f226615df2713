"""A receipt as it is written: it comes back as it was, and what no receipt can say is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.test_records import balanced
from tokenmill.output.schema import Receipt, decode_exactly, to_text
from tokenmill.records import ChunkEntry, Ledger


def receipt() -> Receipt:
    return Receipt(
        unit=3,
        ledger=balanced(),
        chunks=(
            ChunkEntry(name="00003-0000", rows=2, tokens=20, documents=3, xxh3="a", docs_xxh3="b", ids_xxh3="c"),
            ChunkEntry(name="00003-0001", rows=1, tokens=3, documents=1, xxh3="d", docs_xxh3="e"),
        ),
        lines=(4, 6),
        rejects_bytes=17,
        rejects_xxh3="f",
        missing={9: "gone", 2: "no"},
    )


def test_a_receipt_comes_back_as_it_was_written() -> None:
    written = to_text(receipt()).encode()
    assert decode_exactly(written, Receipt) == receipt()
    shown = json.loads(written)
    assert list(shown["missing"].items()) == [("2", "no"), ("9", "gone")]
    assert (shown["lines"], shown["chunks"][1]["ids_xxh3"]) == ([4, 6], None)
    bare = replace(receipt(), chunks=(), lines=(), rejects_xxh3=None, missing={})
    assert decode_exactly(to_text(bare).encode(), Receipt) == bare


def put(path: str, value: Any) -> bytes:
    """A receipt as it is written, with something else in one place."""
    data: dict[str, Any] = json.loads(to_text(receipt()))
    *way, last = path.split(".")
    place: Any = data
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[int(last) if isinstance(place, list) else last] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("unit", -1),
        ("unit", "3"),
        ("unit", 3.5),
        ("unit", True),
        ("ledger.tokens", -1),
        ("ledger.more", 1),
        ("ledger.rejects_by_reason.broken_json", -2),
        ("chunks", None),
        ("chunks.0.rows", -2),
        ("chunks.0.name", 7),
        ("chunks.1.more", "x"),
        ("lines", [4, -6]),
        ("lines", None),
        ("rejects_bytes", -1),
        ("rejects_xxh3", 5),
        ("missing", {"x": "gone"}),
        ("missing", {"09": "no"}),
        ("more", 1),
    ],
)
def test_what_no_receipt_can_say_is_refused(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_exactly(put(path, value), Receipt)


@pytest.mark.parametrize("name", [name for name in Receipt.__struct_fields__ if name != "damaged"])
def test_a_receipt_without_a_field_is_refused(name: str) -> None:
    data = json.loads(to_text(receipt()))
    del data[name]
    with pytest.raises(ValueError, match=r".+"):
        decode_exactly(json.dumps(data).encode(), Receipt)


@pytest.mark.parametrize("name", ["ledger.padding", "chunks.1.ids_xxh3"])
def test_a_receipt_without_a_field_that_could_be_left_out_is_refused(name: str) -> None:
    """It says no less than tokenmill writes, though a ledger may be built without."""
    data = json.loads(to_text(receipt()))
    *way, last = name.split(".")
    place: Any = data
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    del place[last]
    with pytest.raises(ValueError, match="not what tokenmill writes"):
        decode_exactly(json.dumps(data).encode(), Receipt)


def test_a_receipt_may_say_nothing_but_zeros() -> None:
    empty = Receipt(unit=0, ledger=Ledger(), chunks=(), lines=(0, 0), rejects_bytes=0, rejects_xxh3=None, missing={})
    assert decode_exactly(to_text(empty).encode(), Receipt) == empty
