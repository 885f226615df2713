"""Arrow, as a file and as a stream: record batches in small blocks; damage costs what is damaged."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.sources import arrow_bytes, opened, opened_file
from tokenmill.config import ReadOptions
from tokenmill.read.arrow import ArrowReader, count_record_batches, schema_of
from tokenmill.read.rows import RowsBlock
from tokenmill.records import Documents, Part, Reason
from tokenmill.storage.base import Source
from tokenmill.storage.memory import MemoryStorage

WHOLE = Part(0)
VALUES = [f"document {n} " + "x" * (n % 7) for n in range(50)]
BATCH = 10
BOTH = pytest.mark.parametrize("kind", ["file", "stream"])
COMPRESSIONS = [None, "lz4", "zstd"]


def read_source(source: Source, part: Part = WHOLE, offset: int | None = None, **options: Any) -> list[Documents]:
    return [block.parse() for block in ArrowReader(source, part, ReadOptions(**options)).blocks(offset)]


def read(data: bytes, part: Part = WHOLE, offset: int | None = None, **options: Any) -> list[Documents]:
    return read_source(opened(data), part, offset, **options)


def batches(values: list[Any] = VALUES, rows: int = BATCH, kind: Any = None) -> list[Any]:
    kind = kind or pa.string()
    cuts = range(0, len(values), rows)
    return [{"n": pa.array(range(i, i + rows)), "text": pa.array(values[i : i + rows]).cast(kind)} for i in cuts]


def all_texts(found: list[Documents]) -> list[str]:
    return [t for d in found for t in d.texts]


def numbers(found: list[Documents]) -> list[int]:
    """Record numbers within the part."""
    result, base = [], 0
    for documents in found:
        result += [base + n for n in documents.numbers]
        base += documents.lines
    return result


def rejects(found: list[Documents]) -> list[tuple[Reason, int]]:
    return [(r.reason, r.records) for d in found for r in d.rejects]


# what is read


@BOTH
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("column", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()], ids=str)
def test_texts_come_back_whatever_the_format_the_compression_and_the_type(
    tmp_path: Path, kind: str, compression: str | None, column: pa.DataType
) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow_bytes(batches(kind=column), kind, compression))
    with opened_file(path) as file:
        found = read_source(file, id_field="n")
        assert not file.closed
    assert all_texts(found) == VALUES
    assert numbers(found) == list(range(50))
    assert [i for d in found for i in d.document_ids or ()] == [b"%d" % n for n in range(50)]
    assert found == read(path.read_bytes(), id_field="n")


@BOTH
def test_a_dictionary_is_read_through_its_words(kind: str) -> None:
    words = pa.array(["a", "büro", ""])
    columns = [pa.DictionaryArray.from_arrays(pa.array(i, pa.int32()), words) for i in ([0, 1, None], [2, 1, 0])]
    found = read(arrow_bytes([{"text": c} for c in columns], kind))
    assert (all_texts(found), numbers(found)) == (["a", "büro", "büro", "a"], [0, 1, 4, 5])
    assert (rejects(found), sum(d.empty for d in found)) == ([(Reason.TEXT_NOT_A_STRING, 1)], 1)


@BOTH
def test_nested_text_and_ids_are_reached_by_dots(kind: str) -> None:
    rows = pa.array([{"body": "a", "id": 7}, {"body": "b", "id": None}])
    (found,) = read(arrow_bytes([{"n": [1, 2], "doc": rows}], kind), text_field="doc.body", id_field="doc.id")
    assert (found.texts, found.document_ids) == (["a", "b"], [b"7", b"null"])


@BOTH
def test_a_column_may_have_a_dot_or_a_namesake(kind: str) -> None:
    assert all_texts(read(arrow_bytes([{"meta.text": ["a"], "meta": [{"id": 1}]}], kind), text_field="meta.text")) == [
        "a"
    ]
    twice = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"])
    assert all_texts(read(arrow_bytes([twice], kind))) == ["a"]


@BOTH
def test_empty_record_batches_and_files_without_any_hold_nothing(kind: str) -> None:
    empty = pa.RecordBatch.from_pydict({"text": pa.array([], pa.string())})
    full = pa.RecordBatch.from_pydict({"text": ["a"]})
    assert all_texts(read(arrow_bytes([empty, full, empty], kind))) == ["a"]
    assert read(arrow_bytes([empty], kind)) == []


@BOTH
def test_a_bad_row_costs_one_row(kind: str) -> None:
    text = pa.array([b"a", b"\xff", b"b"], pa.binary()).view(pa.string())
    ids = pa.array([b"\xff", b"1", b"2"], pa.binary()).view(pa.string())
    (found,) = read(arrow_bytes([{"text": text, "id": ids}], kind), id_field="id")
    assert (found.texts, found.document_ids) == (["a", "b"], [b"null", b'"2"'])
    assert [(r.reason, r.record) for r in found.rejects] == [(Reason.INVALID_UTF8, 1)]


@BOTH
def test_a_missing_column_rejects_its_rows_and_names_the_others(kind: str) -> None:
    found = read(arrow_bytes([{"body": ["a", "b"], "n": [1, 2]}, {"body": ["c"], "n": [3]}], kind))
    assert rejects(found) == [(Reason.NO_TEXT_FIELD, 2), (Reason.NO_TEXT_FIELD, 1)]
    assert "body, n" in found[0].rejects[0].detail


# parts and resuming


def test_ranges_of_record_batches_cover_a_file() -> None:
    data = arrow_bytes(batches(), "file")
    for cut in range(6):
        assert all_texts(read(data, Part(0, 0, cut)) + read(data, Part(0, cut, 5))) == VALUES


@BOTH
def test_blocks_of_a_resumed_file_tell_their_true_row_so_that_it_can_be_resumed_again(kind: str) -> None:
    data = arrow_bytes(batches([*VALUES[:24], None, *VALUES[25:]]), kind)
    for offset in range(50):
        blocks = list(ArrowReader(opened(data), WHOLE, ReadOptions()).blocks(offset))
        assert blocks[0].offset == offset
        row = offset
        for block in blocks:
            assert block.offset == row
            parsed = block.parse()
            assert parsed.texts == [VALUES[row + n] for n in parsed.numbers]
            assert [(r.record + row, r.offset) for r in parsed.rejects] in ([], [(24, 24)])
            row += parsed.lines
        assert row == 50


def test_a_resumed_part_counts_from_its_own_start() -> None:
    assert all_texts(read(arrow_bytes(batches(), "file"), Part(0, 2, 4), offset=7)) == VALUES[27:40]


def test_what_is_read_stands_for_the_whole_file() -> None:
    for kind in ("file", "stream"):
        data = arrow_bytes(batches(), kind)
        consumed = sum(b.consumed for b in ArrowReader(opened(data), WHOLE, ReadOptions()).blocks(None))
        assert 0.9 * len(data) < consumed <= len(data)


# memory


def sizes(column: Any) -> list[int]:
    data = arrow_bytes([pa.RecordBatch.from_arrays([column], ["text"])])
    blocks = list(ArrowReader(opened(data), WHOLE, ReadOptions()).blocks(None))
    assert all(isinstance(b, RowsBlock) for b in blocks)
    return [b.parse().records for b in blocks]


MIB = "x" * (1 << 20)


def test_a_record_batch_is_cut_into_blocks_of_a_mebibyte_and_of_few_rows() -> None:
    assert sizes(pa.array(["a"] * 3000)) == [1024, 1024, 952]
    quarter = MIB[: 1 << 18]
    assert sizes(pa.array([quarter] * 10)) == [4, 4, 2]
    assert sizes(pa.array([MIB + "x", "a", None, MIB, "b"])) == [1, 2, 1, 1]


@pytest.mark.parametrize("form", ["dictionary", "views", "runs", "JSON"])
def test_a_block_is_as_large_as_its_texts_whatever_they_are_wrapped_in(form: str) -> None:
    """Of a slice of a dictionary or of views, Arrow counts all that they may refer to."""
    half = MIB[: 1 << 19]
    column: Any = pa.array([half] * 7)
    if form == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([1] * 6 + [None]), pa.array(["a", half]))
        assert sizes(column) == [2, 2, 2, 1]
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 7), pa.array(["a", half]))
        assert sizes(column) == [7]
        return
    if form == "views":
        column = column.cast(pa.string_view())
    if form == "runs":
        column = pa.RunEndEncodedArray.from_arrays(pa.array([7]), pa.array([half]))
    if form == "JSON":
        column = pa.ExtensionArray.from_storage(pa.json_(), column)
    assert sizes(column) == [2, 2, 2, 1]


def test_no_more_than_a_record_batch_is_held(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(arrow_bytes([{"text": [MIB[: 1 << 18]] * 8}] * 32))
    before = pa.total_allocated_bytes()
    with opened_file(path) as file:
        tracemalloc.start()
        for block in ArrowReader(file, WHOLE, ReadOptions()).blocks(None):
            assert len(block.parse().texts) == 4
            assert pa.total_allocated_bytes() - before < 6 << 20
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 6 << 20


def test_columns_that_nobody_asked_for_are_not_decompressed() -> None:
    data = arrow_bytes([{"image": [b"\0" * (64 << 20)], "text": ["a"]}], "file", "zstd")
    before = pa.total_allocated_bytes()
    blocks = ArrowReader(opened(data), WHOLE, ReadOptions()).blocks(None)
    assert next(blocks).parse().texts == ["a"]
    assert pa.total_allocated_bytes() - before < 1 << 20


# planning


def test_record_batches_of_a_file_are_counted_and_a_stream_is_one() -> None:
    whole = arrow_bytes(batches(), "file")
    files = {"file": whole, "stream": arrow_bytes(batches()), "cut": whole[:-1], "empty": b""}
    counts = {name: count_record_batches(MemoryStorage(files), name) for name in (*files, "absent")}
    assert counts == {"file": 5, "stream": 1, "cut": 1, "empty": 1, "absent": 1}


def test_the_columns_of_a_file_are_known_and_of_a_damaged_one_not() -> None:
    whole, stream = arrow_bytes(batches(), "file"), arrow_bytes(batches())
    inputs = MemoryStorage({"file": whole, "stream": stream, "cut": whole[:-1], "begun": stream[:20]})
    for name in ("file", "stream"):
        schema = schema_of(inputs, name)
        assert schema is not None
        assert schema.names == ["n", "text"]
    assert [schema_of(inputs, name) for name in ("cut", "begun", "absent")] == [None] * 3


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    for kind in ("file", "stream"):
        path.write_bytes(arrow_bytes(batches(), kind))
        before = len(os.listdir("/dev/fd"))
        with opened_file(path) as file:
            assert len(read_source(file)) == 5
        with opened_file(path) as file:
            next(iter(ArrowReader(file, WHOLE, ReadOptions()).blocks(None)))
        assert len(os.listdir("/dev/fd")) == before
