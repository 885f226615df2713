"""Rows of a table: what is text and what is not, whatever type the column has."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tokenmill.config import ReadOptions
from tokenmill.read.rows import RowsBlock, halves, has_field, leaf_of, raise_if_unreadable, raw_values
from tokenmill.records import Documents, Reason


def parse(column: Any, ids: Any = None) -> Documents:
    names = ["text", "id"] if ids is not None else ["text"]
    batch = pa.RecordBatch.from_arrays([column, ids][: len(names)], names)
    return RowsBlock(0, 0, batch, ReadOptions(id_field="id" if ids is not None else None)).parse()


def wrapped(kind: Any, values: Any) -> Any:
    return pa.ExtensionArray.from_storage(kind, values)


STRINGS = pa.array(["a", "ü", ""])
JSON_IN_DICTIONARY = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), wrapped(pa.json_(), STRINGS))


@pytest.mark.parametrize(
    "column",
    [
        wrapped(pa.json_(), STRINGS),
        wrapped(pa.json_(pa.large_string()), STRINGS.cast(pa.large_string())),
        wrapped(pa.json_(pa.string_view()), STRINGS.cast(pa.string_view())),
        wrapped(pa.opaque(pa.binary(), "text", "somebody"), STRINGS.cast(pa.binary())),
        JSON_IN_DICTIONARY,
        STRINGS.cast(pa.string_view()),
        STRINGS.cast(pa.binary_view()),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3]), STRINGS),
    ],
    ids=["JSON", "large JSON", "JSON views", "opaque bytes", "dictionary of JSON", "views", "views of bytes", "runs"],
)
def test_text_is_read_through_whatever_it_is_wrapped_in(column: Any) -> None:
    found = parse(column)
    assert (found.texts, found.numbers, found.empty, found.rejects) == (["a", "ü"], [0, 1], 1, [])


def test_a_text_that_is_not_utf8_inside_an_extension_type_costs_one_row() -> None:
    broken = pa.array([b"\xff", b"fine"], pa.binary()).view(pa.string())
    found = parse(wrapped(pa.json_(), broken))
    assert found.texts == ["fine"]
    assert [(r.reason, r.record, r.head) for r in found.rejects] == [(Reason.INVALID_UTF8, 0, b"\xff")]


def test_a_uuid_is_not_text_even_if_its_bytes_are() -> None:
    ids = wrapped(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    (reject,) = parse(ids).rejects
    assert (reject.reason, reject.head) == (Reason.TEXT_NOT_A_STRING, b"30313233-3435-3637-3839-616263646566")
    assert parse(pa.array(["a"]), ids).document_ids == [b'"30313233-3435-3637-3839-616263646566"']


TIMES: list[Any] = [
    pa.array([0, 1], pa.timestamp("ns")),
    pa.array([0, 2**62], pa.timestamp("us")),
    pa.array([0, 1], pa.timestamp("ns", "Europe/Berlin")),
    pa.array([0, 1], pa.timestamp("us", "No/Where")),
    pa.array([0, 2**30], pa.date32()),
    pa.array([0, 1], pa.time64("ns")),
    pa.array([0, 2**62], pa.duration("s")),
    pa.array([(0, 0, 0), (1, 2, 3)], pa.month_day_nano_interval()),
    pa.array([[0], [1]], pa.list_(pa.timestamp("ns"))),
    pa.array([[0], [1]], pa.large_list(pa.timestamp("ns"))),
    pa.array([[0], [1]], pa.list_(pa.timestamp("ns"), 1)),
    pa.array([{"at": 0}, {"at": 1}], pa.struct([("at", pa.timestamp("ns"))])),
    pa.array([[("at", 0)], [("at", 1)]], pa.map_(pa.string(), pa.timestamp("ns"))),
    pa.array([0, 1], pa.timestamp("ns")).dictionary_encode(),
]


@pytest.mark.parametrize("column", TIMES, ids=[str(t.type) for t in TIMES])
def test_a_time_is_not_text_and_not_damage(column: Any) -> None:
    """Pyarrow asks for pandas where Python has no such time."""
    found = parse(column)
    assert (found.texts, found.records) == ([], 2)
    assert [(r.record, r.reason) for r in found.rejects] == [(n, Reason.TEXT_NOT_A_STRING) for n in range(2)]
    details = {r.detail for r in found.rejects}
    assert details == {f"the text is of type {column.type}, not a string"}


def test_a_time_in_place_of_text_is_shown() -> None:
    column = pa.array([1, None], pa.timestamp("ns"))
    assert [(r.head, r.detail) for r in parse(column).rejects] == [
        (b"1970-01-01 00:00:00.000000001", "the text is of type timestamp[ns], not a string"),
        (b"", "the text is null, not a string"),
    ]


def test_times_inside_of_ids_are_written_whatever_they_are() -> None:
    ids = pa.array([{"at": [1]}, {"at": None}], pa.struct([("at", pa.list_(pa.timestamp("ns")))]))
    found = parse(pa.array(["a", "b"]), ids).document_ids
    assert found is not None
    assert [json.loads(i) for i in found] == [{"at": ["1970-01-01 00:00:00.000000001"]}, {"at": None}]


def test_the_name_of_a_long_type_is_cut_off() -> None:
    kind = pa.struct([(f"field {n}", pa.int8()) for n in range(1000)])
    (reject,) = parse(pa.array([{}], kind)).rejects
    assert len(reject.detail) < 120


def test_a_field_of_a_struct_may_have_a_namesake() -> None:
    column = pa.StructArray.from_arrays([pa.array([{"x": "a"}]), pa.array(["b"])], ["body", "body"])
    batch = pa.RecordBatch.from_arrays([column], ["doc"])
    assert has_field(batch.schema, "doc.body.x")
    assert leaf_of(batch, "doc.body.x").to_pylist() == ["a"]


def test_a_field_inside_a_struct_of_an_extension_type_is_found() -> None:
    kind = pa.opaque(pa.struct([("body", pa.string())]), "record", "somebody")
    column = wrapped(kind, pa.array([{"body": "a"}, {"body": None}, None], kind.storage_type))
    batch = pa.RecordBatch.from_arrays([column], ["doc"])
    assert has_field(batch.schema, "doc.body")
    assert not has_field(batch.schema, "doc.text")
    assert not has_field(batch.schema, "doc.body.text")
    assert leaf_of(batch, "doc.body").to_pylist() == ["a", None, None]


def test_an_index_beyond_the_dictionary_costs_one_row() -> None:
    indices, words = pa.array([0, 101, 1]), pa.array(["a", "b"])
    first, broken, last = raw_values(pa.DictionaryArray.from_arrays(indices, words, safe=False))
    assert (first, last) == (b"a", b"b")
    assert isinstance(broken, pa.ArrowException)


def test_a_batch_that_is_too_large_is_halved_until_it_is_not() -> None:
    values = ["x" * n for n in (1, 2, 3, 40, 50, 6, 7)]
    batch = pa.RecordBatch.from_pydict({"text": values})
    pieces = list(halves(batch, 40))
    assert [t for p in pieces for t in p.column(0).to_pylist()] == values
    assert [p.num_rows for p in pieces] == [3, 1, 1, 2]
    assert [p.num_rows for p in halves(batch, batch.nbytes // 2 + 1)] == [7]


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (OSError(5, "Input/output error"), 5),
        (OSError("Failed to read message body, error IOError: [Errno 116] Stale file handle. Detail: …"), 116),
        (pa.ArrowInvalid("Error reading bytes from file. Detail: [errno 13] Permission denied"), 13),
        (OSError("LZ4 decompress failed: ERROR_decompressionFailed"), None),
        (pa.ArrowInvalid("Expected to read 5 metadata bytes, but only read 3"), None),
    ],
    ids=["system", "wrapped by Python", "wrapped by Arrow", "damage", "cut off"],
)
def test_a_disk_that_fails_is_told_from_damaged_data_however_arrow_says_it(
    error: Exception, number: int | None
) -> None:
    if number is None:
        raise_if_unreadable(error)
        return
    with pytest.raises(OSError) as raised:
        raise_if_unreadable(error)
    assert raised.value.errno == number
