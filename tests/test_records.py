"""The nouns: ledgers that balance or say so, and what goes to disk and comes back."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tokenmill.errors import LedgerError
from tokenmill.messages import printable
from tokenmill.records import (
    SIDECAR_DTYPE,
    ChunkEntry,
    Codec,
    Format,
    InputFile,
    Ledger,
    Part,
    Reason,
    Receipt,
    StageSeconds,
    Unit,
)

SEQ_LEN = 10


def balanced(**changes: Any) -> Ledger:
    """10 records went three ways; 32 tokens are 3 rows of 10, and 2 that were dropped."""
    ledger = Ledger(
        records=10,
        documents=5,
        empty=3,
        rejected=2,
        tokens=20,
        separators=5,
        padding=7,
        rows=3,
        dropped_tokens=2,
        dropped_documents=1,
        special_tokens_in_text=4,
        text_bytes=99,
        rejects_by_reason={"broken_json": 2},
    )
    return replace(ledger, **changes)


def test_a_ledger_in_which_everything_went_somewhere_balances() -> None:
    balanced().check(SEQ_LEN, "here")
    Ledger().check(SEQ_LEN, "here")


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", ["records", "documents", "empty", "rejected"])
def test_a_record_that_went_nowhere_or_twice_is_an_error(name: str, change: int) -> None:
    ledger = balanced(**{name: getattr(balanced(), name) + change})
    with pytest.raises(LedgerError, match=r"^unit 7: records do not add up, please report this: Ledger") as error:
        ledger.check(SEQ_LEN, "unit 7")
    assert f"{name}={getattr(ledger, name)}" in str(error.value)


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", ["tokens", "separators", "padding", "rows", "dropped_tokens"])
def test_a_token_that_went_nowhere_or_twice_is_an_error(name: str, change: int) -> None:
    with pytest.raises(LedgerError, match=r"^unit 7: tokens do not add up, please report this: Ledger"):
        balanced(**{name: getattr(balanced(), name) + change}).check(SEQ_LEN, "unit 7")


def test_the_length_of_a_row_is_part_of_the_equation() -> None:
    with pytest.raises(LedgerError, match="tokens do not add up"):
        balanced().check(SEQ_LEN + 1, "here")


@pytest.mark.parametrize("name", ["dropped_documents", "special_tokens_in_text", "text_bytes"])
def test_what_is_only_counted_is_in_no_equation(name: str) -> None:
    balanced(**{name: 1000}).check(SEQ_LEN, "here")


COUNTS = [f.name for f in fields(Ledger) if f.name != "rejects_by_reason"]


def test_ledgers_add_up_number_by_number() -> None:
    one = Ledger(**{name: n for n, name in enumerate(COUNTS, 1)}, rejects_by_reason={"a": 1, "b": 2})
    other = Ledger(**{name: 100 * n for n, name in enumerate(COUNTS, 1)}, rejects_by_reason={"b": 3, "c": 4})
    before = asdict(other)
    one.add(other)
    assert {name: getattr(one, name) for name in COUNTS} == {name: 101 * n for n, name in enumerate(COUNTS, 1)}
    assert one.rejects_by_reason == {"a": 1, "b": 5, "c": 4}
    assert asdict(other) == before


def test_a_ledger_is_taken_back_by_its_negative() -> None:
    ledger = Ledger(**{name: n for n, name in enumerate(COUNTS, 1)}, rejects_by_reason={"a": 1, "b": 2})
    negative = -ledger
    assert {name: getattr(negative, name) for name in COUNTS} == {name: -n for n, name in enumerate(COUNTS, 1)}
    assert negative.rejects_by_reason == {"a": -1, "b": -2}
    assert ledger.rejects_by_reason == {"a": 1, "b": 2}


def test_a_ledger_is_written_with_its_reasons_in_order() -> None:
    ledger = Ledger(records=3, rejected=3, rejects_by_reason={"b": 2, "a": 1})
    written = ledger.to_json()
    assert list(written["rejects_by_reason"].items()) == [("a", 1), ("b", 2)]
    assert Ledger(**written) == ledger
    assert list(written) == [*COUNTS, "rejects_by_reason"]


def test_cpu_time_adds_up_stage_by_stage() -> None:
    assert StageSeconds() == StageSeconds(0, 0, 0, 0, 0)
    stage_seconds = StageSeconds(1, 2, 3, 4, 5)
    stage_seconds.add(StageSeconds(10, 20, 30, 40, 50))
    assert stage_seconds == StageSeconds(11, 22, 33, 44, 55)


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
    written = receipt().to_json()
    assert Receipt.from_json(written) == receipt()
    assert list(written["missing"].items()) == [("2", "no"), ("9", "gone")]
    assert (written["lines"], written["chunks"][1]["ids_xxh3"]) == ([4, 6], None)
    bare = replace(receipt(), chunks=(), lines=(), rejects_xxh3=None, missing={})
    assert Receipt.from_json(bare.to_json()) == bare


def put(path: str, value: Any) -> dict[str, Any]:
    """A receipt as it is written, with something else in one place."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(receipt().to_json()))
    *way, last = path.split(".")
    place: Any = data
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[int(last) if isinstance(place, list) else last] = value
    return data


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
        ("missing", {"-2": "gone", "09": "no"}),
        ("more", 1),
    ],
)
def test_what_no_receipt_can_say_is_refused(path: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Receipt.from_json(put(path, value))


def test_a_negative_number_makes_it_no_receipt() -> None:
    with pytest.raises(ValueError, match=r"^not what a receipt looks like$"):
        Receipt.from_json(put("chunks.1.rows", -1))


@pytest.mark.parametrize("name", [f.name for f in fields(Receipt)])
def test_a_receipt_without_a_field_is_refused(name: str) -> None:
    data = receipt().to_json()
    del data[name]
    with pytest.raises(ValueError, match=r".+"):
        Receipt.from_json(data)


def test_a_receipt_may_say_nothing_but_zeros() -> None:
    data = put("unit", 0) | {"rejects_bytes": 0, "lines": [0, 0]}
    assert Receipt.from_json(data).unit == 0


ONE = InputFile(name="a", size=5, fingerprint="f", format=Format.JSONL, codec=Codec.GZIP)
OTHER = InputFile(name="b", size=6, fingerprint="g", format=Format.TEXT, codec=Codec.PLAIN, problem="no")


def test_a_unit_comes_back_as_it_was_written() -> None:
    unit = Unit(12, (Part(3, 5, 9), Part(4)), (ONE, OTHER), 77)
    written = unit.to_json()
    assert written["parts"] == [[3, 5, 9], [4, 0, None]]
    back = Unit.from_json(msgspec.json.decode(msgspec.json.encode(written)))
    assert back == unit
    assert (back.files[0].format, back.files[0].codec) == (Format.JSONL, Codec.GZIP)
    assert isinstance(back.files[1].format, Format)
    assert isinstance(back.files[1].codec, Codec)
    assert (unit.name, unit.names) == ("00012", {3: "a", 4: "b"})


@pytest.mark.parametrize("count", [1, 3])
def test_a_unit_with_other_files_than_parts_is_refused(count: int) -> None:
    data = Unit(0, (Part(0), Part(1)), (ONE, OTHER), 11).to_json()
    data["files"] = (data["files"] * 2)[:count]
    with pytest.raises(ValueError, match=f"{count} files for 2 parts"):
        Unit.from_json(data)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        assert Unit(0, (Part(0), Part(1)), (ONE,), 11).names


def test_names_that_stand_in_outputs_never_change() -> None:
    assert [str(f) for f in Format] == ["jsonl", "parquet", "text"]
    assert [str(c) for c in Codec] == ["plain", "gzip", "zstd", "bzip2", "xz"]
    assert [str(r) for r in Reason] == [
        "broken_json",
        "not_an_object",
        "no_text_field",
        "text_not_a_string",
        "invalid_utf8",
        "lone_surrogate",
        "too_large",
        "special_token",
        "truncated_file",
        "corrupt_file",
    ]


def test_the_sidecar_is_twenty_bytes_a_document_everywhere() -> None:
    assert SIDECAR_DTYPE.itemsize == 20
    entry = np.array([(1, 2, 3)], SIDECAR_DTYPE)
    assert entry.tobytes() == b"\1" + bytes(7) + b"\2" + bytes(7) + b"\3" + bytes(3)
    assert SIDECAR_DTYPE.names == ("end", "record", "file")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain é 日本.jsonl", "plain é 日本.jsonl"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\udce9", "\\udce9"),
        ("\u202e", "\\u202e"),
        ("", ""),
    ],
)
def test_foreign_text_is_printed_without_what_a_terminal_obeys(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_anything_can_be_printed() -> None:
    assert printable(ValueError("a\nb")) == "a\\nb"
