"""Whether a file has the fields that the options name: one record with it will do, and no record is no evidence."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import jsonl, texts
from tests.support.sources import arrow_bytes, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.read.corpus import Corpus
from tokenmill.read.lines import BLOCK_BYTES
from tokenmill.read.source import EDGE_BYTES
from tokenmill.records import AbsentField
from tokenmill.storage.memory import MemoryStorage


def absent(name: str, data: bytes, **options: Any) -> AbsentField | None:
    found = Corpus(MemoryStorage({name: data}), ReadOptions(**options)).inspect(name)
    assert found.file is not None
    assert found.head == b""
    return found.absent


# JSON Lines


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_lines_without_the_text_field_are_told_with_the_fields_that_are_there(compressed: bool) -> None:
    data = jsonl({"body": "a", "id": 1}, {"body": "b", "title": "x"})
    name, data = ("a.jsonl.gz", gzip.compress(data)) if compressed else ("a.jsonl", data)
    assert absent(name, data) == AbsentField("text_field", "text", ("body", "id", "title"))
    assert absent(name, data, text_field="body") is None


def test_lines_without_the_id_field_are_told() -> None:
    data = jsonl({"text": "a", "key": 1})
    assert absent("a.jsonl", data, id_field="id") == AbsentField("id_field", "id", ("text", "key"))
    assert absent("a.jsonl", data, id_field="key") is None


def test_one_record_with_the_field_will_do() -> None:
    assert absent("a.jsonl", jsonl({"body": "a"}) * 50 + texts("a")) is None
    assert absent("a.jsonl", texts("a") + jsonl({"body": "a", "id": None}), id_field="id") is None
    assert absent("a.jsonl", jsonl({"text": None})) is None  # there, if of no use


def test_a_record_without_any_field_lacks_it() -> None:
    assert absent("a.jsonl", b"{}\n") == AbsentField("text_field", "text", ())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n \n\n",
        b"broken\n" * 100,
        b'{"body": "cut off\n' * 3,
        b"[1, 2]\n3\n",
        b'{"body": ' + b"[" * 5000 + b"\n",
        b'{"body": ' + b"9" * 5000 + b"}\n",
        b'{"body": "\xff"}\n',
    ],
    ids=["empty", "blank", "broken", "cut off", "other values", "deep", "a long number", "not UTF-8"],
)
def test_lines_that_are_no_records_are_no_evidence(data: bytes) -> None:
    assert absent("a.jsonl", data) is None
    assert absent("a.jsonl", data + texts("a")) is None


def test_a_mark_at_the_beginning_hides_no_record() -> None:
    mark = b"\xef\xbb\xbf"
    assert absent("a.jsonl", mark + texts("a")) is None
    assert absent("a.jsonl", mark + jsonl({"body": "a"})) == AbsentField("text_field", "text", ("body",))


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_the_whole_first_block_is_looked_at_before_anything_is_refused(compressed: bool) -> None:
    """A header, say, and then a record that does not fit into the first bytes."""

    def look(data: bytes) -> AbsentField | None:
        return absent("a.jsonl.gz", gzip.compress(data)) if compressed else absent("a.jsonl", data)

    header, long = jsonl({"version": 1}), "x" * EDGE_BYTES
    assert look(header + jsonl({"title": long, "text": "a"})) is None
    assert look(header + jsonl({"title": long, "body": "a"})) == AbsentField(
        "text_field", "text", ("version", "title", "body")
    )
    enough = jsonl({"title": long}) * (2 * BLOCK_BYTES // EDGE_BYTES + 4)
    assert look(enough + texts("a")) == AbsentField("text_field", "text", ("title",))


def test_a_first_line_that_is_too_large_is_no_evidence() -> None:
    data = jsonl({"body": "x" * 2 * BLOCK_BYTES}, {"body": "x"})
    assert absent("a.jsonl", data, max_document_bytes=1000) is None
    assert absent("a.jsonl", data) == AbsentField("text_field", "text", ("body",))


@pytest.mark.parametrize(
    ("record", "known"),
    [
        ({"meta": {"text": "a"}}, None),
        ({"meta.text": "a"}, None),
        ({"meta": {"body": "a", "id": 1}, "n": 1}, ("meta.body", "meta.id")),
        ({"meta": "a", "n": 1}, ("meta", "n")),
        ({"body": {"text": "a"}}, ("body",)),
        ({"meta": {"text": {"text": "a"}}}, None),
    ],
    ids=["there", "a key with a dot", "beside", "not an object", "elsewhere", "an object"],
)
def test_nested_fields_are_reached_by_dots(record: dict[str, object], known: tuple[str, ...] | None) -> None:
    wanted = None if known is None else AbsentField("text_field", "meta.text", known)
    assert absent("a.jsonl", jsonl(record), text_field="meta.text") == wanted


def test_the_text_is_looked_for_before_the_id() -> None:
    found = absent("a.jsonl", json.dumps({"a": 1}).encode(), text_field="b", id_field="c")
    assert found == AbsentField("text_field", "b", ("a",))


# tables


def table(columns: dict[str, Any]) -> dict[str, bytes]:
    """The same table in each format."""
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    batch = pa.RecordBatch.from_pydict(columns)
    return {
        "a.parquet": buffer.getvalue(),
        "a.arrow": arrow_bytes([batch], "file"),
        "b.arrow": arrow_bytes([batch], "stream", "zstd"),
    }


NESTED = {"n": [1], "meta": [{"body": "a", "deep": {"x": 1}}]}


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "b.arrow"])
@pytest.mark.parametrize(
    ("columns", "options", "wanted"),
    [
        ({"text": ["a"], "n": [1]}, {}, None),
        ({"body": ["a"], "n": [1]}, {}, AbsentField("text_field", "text", ("body", "n"))),
        ({"text": ["a"], "n": [1]}, {"id_field": "id"}, AbsentField("id_field", "id", ("text", "n"))),
        ({"text": ["a"], "id": [1]}, {"id_field": "id"}, None),
        (NESTED, {"text_field": "meta.body", "id_field": "meta.deep.x"}, None),
        (NESTED, {"text_field": "meta.text"}, AbsentField("text_field", "meta.text", ("meta.body", "meta.deep"))),
        (NESTED, {"text_field": "meta.deep.y"}, AbsentField("text_field", "meta.deep.y", ("meta.deep.x",))),
        (NESTED, {"text_field": "n.text"}, AbsentField("text_field", "n.text", ("n", "meta"))),
        ({"text": [1]}, {}, None),
        ({"body": pa.array([], pa.string())}, {}, None),
    ],
    ids=["there", "text", "id", "both", "nested", "beside", "deeper", "no struct", "not a string", "no rows"],
)
def test_a_table_without_the_column_is_told_with_those_that_are_there(
    name: str, columns: dict[str, Any], options: dict[str, Any], wanted: AbsentField | None
) -> None:
    assert absent(name, table(columns)[name], **options) == wanted


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "b.arrow"])
def test_a_damaged_table_is_no_evidence(name: str) -> None:
    data = table({"body": ["a"]})[name]
    assert absent(name, data[:30]) is None


# neither


def test_text_has_no_fields() -> None:
    assert absent("a.txt", b"text", id_field="id") is None


def test_without_options_nothing_is_looked_for() -> None:
    files = {"a.jsonl": jsonl({"body": "a"}), "b.parquet": parquet_file(["a"])}
    corpus = Corpus(MemoryStorage(files))
    assert [corpus.inspect(name).absent for name in files] == [None, None]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.arrow"])
def test_a_file_that_fails_at_the_second_look_is_left_to_whoever_reads_it(name: str) -> None:
    data = {"a.jsonl": jsonl({"body": "a"})} | table({"body": ["a"]})
    opens = 0

    def watch(operation: str, _: str) -> None:
        nonlocal opens
        opens += operation == "open"
        if opens > 1:
            raise OSError(5, "Input/output error")

    found = Corpus(MemoryStorage({name: data[name]}, watch), ReadOptions()).inspect(name)
    assert found.file is not None
    assert (found.absent, found.file.problem) == (None, None)
