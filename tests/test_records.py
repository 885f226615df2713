"""The nouns: ledgers that balance or say so, and what goes to disk and comes back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import asdict, replace

from tokenmill.errors import LedgerError
from tokenmill.output.schema import decode, to_builtins, to_text
from tokenmill.records import (
    EMPTY,
    SIDECAR_DTYPE,
    Codec,
    Format,
    InputFile,
    Ledger,
    Part,
    Partial,
    Reason,
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


COUNTS = [name for name in Ledger.__struct_fields__ if name != "rejects_by_reason"]


def test_ledgers_add_up_number_by_number() -> None:
    one = Ledger(**{name: n for n, name in enumerate(COUNTS, 1)}, rejects_by_reason={"a": 1, "b": 2})
    other = Ledger(**{name: 100 * n for n, name in enumerate(COUNTS, 1)}, rejects_by_reason={"b": 3, "c": 4})
    before = other.copy()
    one.add(other)
    assert {name: getattr(one, name) for name in COUNTS} == {name: 101 * n for n, name in enumerate(COUNTS, 1)}
    assert one.rejects_by_reason == {"a": 1, "b": 5, "c": 4}
    assert other == before


def test_a_ledger_is_taken_back_by_its_negative() -> None:
    ledger = Ledger(**{name: n for n, name in enumerate(COUNTS, 1)}, rejects_by_reason={"a": 1, "b": 2})
    negative = -ledger
    assert {name: getattr(negative, name) for name in COUNTS} == {name: -n for n, name in enumerate(COUNTS, 1)}
    assert negative.rejects_by_reason == {"a": -1, "b": -2}
    assert ledger.rejects_by_reason == {"a": 1, "b": 2}


def test_a_ledger_is_written_with_its_reasons_in_order() -> None:
    ledger = Ledger(records=3, rejected=3, rejects_by_reason={"b": 2, "a": 1})
    written = json.loads(to_text(ledger))
    assert list(written["rejects_by_reason"].items()) == [("a", 1), ("b", 2)]
    assert Ledger(**written) == ledger == decode(to_text(ledger).encode(), Ledger)
    assert written.keys() == {*COUNTS, "rejects_by_reason"}


def test_a_copy_of_a_ledger_does_not_change_with_it() -> None:
    ledger = balanced()
    copy = ledger.copy()
    assert asdict(copy) == asdict(ledger)
    ledger.add(Ledger(records=1, rejected=1, rejects_by_reason={"broken_json": 1, "too_large": 1}))
    assert copy == balanced()


def test_ledgers_that_begin_empty_share_nothing() -> None:
    one, other = Ledger(), Ledger()
    assert {getattr(one, name) for name in COUNTS} == {0}
    one.add(Ledger(rejects_by_reason={"a": 1}))
    assert other == Ledger() != one


def test_cpu_time_adds_up_stage_by_stage() -> None:
    assert StageSeconds() == StageSeconds(0, 0, 0, 0, 0)
    stage_seconds = StageSeconds(1, 2, 3, 4, 5)
    stage_seconds.add(StageSeconds(10, 20, 30, 40, 50))
    assert stage_seconds == StageSeconds(11, 22, 33, 44, 55)


ONE = InputFile(name="a", size=5, fingerprint="f", format=Format.JSONL, codec=Codec.GZIP)
OTHER = InputFile(name="b", size=6, fingerprint="g", format=Format.TEXT, codec=Codec.PLAIN, problem="no")


def test_a_unit_comes_back_as_it_was_written() -> None:
    unit = Unit(12, (Part(3, 5, 9), Part(4)), (ONE, OTHER), 77)
    written = to_builtins(unit)
    assert (written["unit"], written["size"], written["parts"]) == (12, 77, ([3, 5, 9], [4, 0, None]))
    assert written["files"][1] == {
        "name": "b",
        "size": 6,
        "fingerprint": "g",
        "format": "text",
        "codec": "plain",
        "problem": "no",
    }
    back = decode(to_text(unit).encode(), Unit)
    assert back == unit
    assert (back.files[0].format, back.files[0].codec) == (Format.JSONL, Codec.GZIP)
    assert isinstance(back.files[1].format, Format)
    assert isinstance(back.files[1].codec, Codec)
    assert (unit.name, unit.names) == ("00012", {3: "a", 4: "b"})


@pytest.mark.parametrize("count", [1, 3])
def test_a_unit_with_other_files_than_parts_is_refused(count: int) -> None:
    written = to_builtins(Unit(0, (Part(0), Part(1)), (ONE, OTHER), 11))
    written["files"] = (written["files"] * 2)[:count]
    with pytest.raises(ValueError, match=f"{count} files for 2 parts"):
        msgspec.convert(written, Unit)
    with pytest.raises(ValueError, match=f"{count} files for 2 parts"):
        Unit(0, (Part(0), Part(1)), (ONE, OTHER, ONE)[:count], 11)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Part, [-1, 0, None]),
        (Part, [0, -1, None]),
        (Part, [0, 0, -1]),
        (Part, [0, 0, None, 4]),
        (Part, [0.5]),
        (Partial, {"tokens": -1}),
        (Partial, {"more": 1}),
        (Ledger, {"tokens": -1}),
        (Ledger, {"more": 1}),
        (Ledger, {"rejects_by_reason": {"a": -1}}),
        (InputFile, {"name": "a", "size": -1, "fingerprint": "f", "format": "jsonl", "codec": "gzip"}),
        (InputFile, {"name": "a", "size": 1, "fingerprint": "f", "format": "csv", "codec": "gzip"}),
        (InputFile, {"name": "a", "size": 1, "fingerprint": "f", "format": "jsonl", "codec": "lzo"}),
        (InputFile, {"name": "a", "size": 1, "fingerprint": "f", "format": "jsonl"}),
    ],
    ids=str,
)
def test_what_no_run_writes_is_refused(kind: type[Any], data: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, kind)


def test_a_part_is_the_whole_file_and_a_chunk_that_is_not_begun_is_empty_unless_it_is_said() -> None:
    assert (Part(3).start, Part(3).end) == (0, None)
    assert Partial(tokens=0, documents=0, ids_bytes=0) == EMPTY


def test_names_that_stand_in_outputs_never_change() -> None:
    assert [str(f) for f in Format] == ["jsonl", "parquet", "text", "arrow"]
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
