"""Parquet: the text column by row groups, in small batches; bad rows and bad row groups leave alone."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import mishaps
from tests.support.sources import opened, opened_file, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.read import parquet
from tokenmill.read.parquet import ParquetReader, count_row_groups
from tokenmill.records import Documents, Part, Reason
from tokenmill.storage.base import Source
from tokenmill.storage.local import LocalStorage
from tokenmill.storage.memory import MemoryStorage

WHOLE = Part(0)


def read_source(source: Source, part: Part = WHOLE, offset: int | None = None, **options: Any) -> list[Documents]:
    return [block.parse() for block in ParquetReader(source, part, ReadOptions(**options)).blocks(offset)]


def read(path: Path, part: Part = WHOLE, offset: int | None = None, **options: Any) -> list[Documents]:
    """From the file, which Arrow reads by itself, and from memory, through Python: both give the same."""
    with opened_file(path) as file:
        found = read_source(file, part, offset, **options)
    assert read_source(opened(path.read_bytes()), part, offset, **options) == found
    return found


def all_texts(found: list[Documents]) -> list[str]:
    return [t for d in found for t in d.texts]


def numbers(found: list[Documents]) -> list[int]:
    """Record numbers within the part."""
    result, base = [], 0
    for documents in found:
        result += [base + n for n in documents.numbers]
        base += documents.lines
    return result


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_come_back_whatever_the_column_type(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    values = ["a", "büro", "", "a"]
    column = pa.array([v.encode() for v in values], kind) if kind == pa.binary() else pa.array(values).cast(kind)
    pq.write_table(pa.table({"n": [1, 2, 3, 4], "text": column}), path)
    found = read(path)
    assert all_texts(found) == ["a", "büro", "a"]
    assert numbers(found) == [0, 1, 3]
    assert sum(d.empty for d in found) == 1


def test_a_null_or_a_number_is_rejected_as_not_a_string(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["a", None, "b"])}), path)
    (found,) = read(path)
    assert found.texts == ["a", "b"]
    (reject,) = found.rejects
    assert (reject.reason, reject.record, reject.head) == (Reason.TEXT_NOT_A_STRING, 1, b"")
    assert reject.detail == "the text is null, not a string"
    pq.write_table(pa.table({"text": [1, 2]}), path)
    (found,) = read(path)
    assert [(r.record, r.detail, r.head) for r in found.rejects] == [
        (0, "the text is of type int64, not a string", b"1"),
        (1, "the text is of type int64, not a string", b"2"),
    ]


def test_invalid_utf8_costs_one_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([b"a", b"\xff", b"b"], pa.binary())}), path)
    (found,) = read(path)
    assert found.texts == ["a", "b"]
    assert [(r.reason, r.record, r.head) for r in found.rejects] == [(Reason.INVALID_UTF8, 1, b"\xff")]


def invalid(values: list[bytes]) -> Any:
    """Strings that are not UTF-8, which other writers let through."""
    return pa.array(values, pa.binary()).view(pa.string())


def test_lists_of_broken_strings_are_rejected_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.ListArray.from_arrays([0, 1, 2], invalid([b"\xff", b"good"]))}), path)
    (found,) = read(path)
    assert [r.reason for r in found.rejects] == [Reason.CORRUPT_FILE, Reason.TEXT_NOT_A_STRING]


@pytest.mark.parametrize(("told", "said"), [(101, "holds 100 of the 101 rows"), (99, "more than the 99 rows")])
def test_a_row_group_with_other_rows_than_its_footer_tells_of_loses_none_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int, said: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(100)]}), path)
    monkeypatch.setattr(parquet, "_rows", lambda *_: told)
    found = read(path)
    assert said in found[-1].rejects[0].detail
    assert all_texts(found) == [f"row {n}" for n in range(min(told, 100))]
    (reject,) = (r for d in found for r in d.rejects)
    assert reject.loss.rows == (1 if told > 100 else None)  # how many too many there are, nobody looks
    assert sum(d.lines for d in found) == told
    assert sum(d.records for d in found) == min(told, 100) + 1


@pytest.mark.parametrize(
    ("kind", "values", "written"),
    [
        (pa.timestamp("ns"), [0, 2**62 + 1], ["1970-01-01 00:00:00.000000000", "2116-02-20 23:53:38.427387905"]),
        (pa.timestamp("us"), [0, 2**62 + 1], ["1970-01-01 00:00:00.000000", f"<value out of range: {2**62 + 1}>"]),
        (pa.timestamp("ms"), [0, 253402300800000], ["1970-01-01 00:00:00.000", "10000-01-01 00:00:00.000"]),
        (pa.date32(), [0, 2**30], ["1970-01-01", f"<value out of range: {2**30}>"]),
        (pa.time64("ns"), [0, 1], ["00:00:00.000000000", "00:00:00.000000001"]),
        (pa.duration("us"), [0, 2**62 + 1], [0, 2**62 + 1]),
    ],
    ids=["nanoseconds", "microseconds", "milliseconds", "days", "time of day", "duration"],
)
def test_times_as_ids_are_written_whatever_they_are(
    tmp_path: Path, kind: pa.DataType, values: list[int], written: list[object]
) -> None:
    """Python's own types cannot hold all of them."""
    path = tmp_path / "a.parquet"
    times = pa.array(values, pa.int32() if kind == pa.date32() else pa.int64())
    pq.write_table(pa.table({"text": ["a", "b"], "id": times.view(kind)}), path)
    (found,) = read(path, id_field="id")
    assert found.document_ids is not None
    assert [json.loads(i) for i in found.document_ids] == written


def test_an_id_that_is_not_text_is_null(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "id": invalid([b"\xff", b"2"])}), path)
    (found,) = read(path, id_field="id")
    assert (found.texts, found.document_ids) == (["a", "b"], [b"null", b'"2"'])


def test_a_text_of_exactly_the_largest_size_is_a_document_and_a_byte_more_a_reject(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "ü" * 25, "ü" * 25 + "x", "b"]}), path)
    (found,) = read(path, max_document_bytes=50)
    assert (found.texts, found.numbers, found.records) == (["a", "ü" * 25, "b"], [0, 1, 3], 4)
    (reject,) = found.rejects
    assert (reject.reason, reject.record, reject.offset) == (Reason.TOO_LARGE, 2, 2)
    assert reject.detail == "the text has 51 bytes, more than --max-document-bytes 50"


def test_row_group_ranges_cover_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [f"document {n}" for n in range(100)]
    pq.write_table(pa.table({"text": values}), path, row_group_size=9)
    groups = pq.read_metadata(path).num_row_groups
    for cut in range(groups + 1):
        assert all_texts(read(path, Part(0, 0, cut)) + read(path, Part(0, cut, groups))) == values


@pytest.mark.parametrize("offset", [0, 4, 9, 11, 99])
def test_reading_goes_on_at_a_row(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "a.parquet"
    values = [f"document {n}" for n in range(100)]
    pq.write_table(pa.table({"text": values}), path, row_group_size=9)
    assert all_texts(read(path, offset=offset)) == values[offset:]


def test_blocks_of_a_resumed_file_tell_their_true_row_so_that_it_can_be_resumed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [f"document {n}" for n in range(30)]
    pq.write_table(pa.table({"text": values}), path, row_group_size=12)
    reader = ParquetReader(opened(path.read_bytes()), WHOLE, ReadOptions())
    for offset in range(30):
        blocks = list(reader.blocks(offset))
        assert blocks[0].offset == offset
        for block in blocks:
            assert block.parse().texts[0] == values[block.offset]
            assert all_texts(read(path, offset=block.offset)) == values[block.offset :]


def test_rejects_of_a_resumed_file_tell_their_true_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b", None, "c", None]}), path)
    (found,) = read(path, offset=1)
    assert [(r.record, r.offset) for r in found.rejects] == [(1, 2), (3, 4)]


def test_a_missing_column_rejects_its_rows_and_names_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["a", "b"], "n": [1, 2]}), path)
    (found,) = read(path)
    (reject,) = found.rejects
    assert (reject.reason, reject.records, found.records) == (Reason.NO_TEXT_FIELD, 2, 2)
    assert "body, n" in reject.detail
    assert found.document_ids is None
    (found,) = read(path, text_field="n.body", id_field="id")  # which is not a struct
    assert ([r.reason for r in found.rejects], found.document_ids) == ([Reason.NO_TEXT_FIELD], [])


def test_nested_text_and_ids_are_reached_by_dots(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows: list[dict[str, Any]] = [{"doc": {"body": "a", "id": 7}}, {"doc": {"body": "b", "id": None}}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    (found,) = read(path, text_field="doc.body", id_field="doc.id")
    assert (found.texts, found.document_ids) == (["a", "b"], [b"7", b"null"])


def test_a_file_without_a_footer_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"] * 100}), path)
    path.write_bytes(path.read_bytes()[:-20])
    (found,) = read(path)
    assert [(r.reason, r.record, r.offset, r.records) for r in found.rejects] == [(Reason.CORRUPT_FILE, 0, 0, 1)]
    assert (found.records, found.lines) == (1, 0)


def test_a_corrupt_row_group_is_rejected_with_its_rows_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [f"{n} " * 50 for n in range(300)]
    pq.write_table(pa.table({"text": values}), path, row_group_size=100, compression="zstd", use_dictionary=False)
    column = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    end = column.data_page_offset + column.total_compressed_size
    data[end - 60 : end - 20] = b"\xa5" * 40
    path.write_bytes(data)
    found = read(path)
    assert all_texts(found) == values[:100] + values[200:]
    assert sum(d.records for d in found) == 300
    assert [(r.reason, r.records) for d in found for r in d.rejects] == [(Reason.CORRUPT_FILE, 100)]


def test_a_dictionary_of_large_texts_comes_in_small_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 500_000] * 200}), path)
    assert path.stat().st_size < 100_000
    found = read(path)
    assert max(sum(map(len, d.texts)) for d in found) <= 3 << 20
    assert all_texts(found) == ["x" * 500_000] * 200


def test_a_column_may_have_a_dot_or_a_namesake(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"meta.text": ["a"], "meta": [{"id": 1}]}), path)
    assert all_texts(read(path, text_field="meta.text")) == ["a"]
    (found,) = read(path, text_field="meta.text", id_field="meta.absent")
    assert found.document_ids == [b"null"]
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]), path)
    assert all_texts(read(path)) == ["a"]


def test_large_texts_come_in_small_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 300_000] * 40 + ["y"] * 4000}), path)
    found = read(path)
    assert max(sum(map(len, d.texts)) for d in found) <= 3 << 20
    assert all_texts(found) == ["x" * 300_000] * 40 + ["y"] * 4000
    assert numbers(found) == list(range(4040))
    resumed = read(path, offset=25)
    assert all_texts(resumed) == ["x" * 300_000] * 15 + ["y"] * 4000
    assert all(documents.lines for documents in resumed)


def test_row_groups_that_cannot_be_counted_are_one(tmp_path: Path) -> None:
    files = {"a.parquet": parquet_file(["a", "b", "c"], row_group_size=1), "broken.parquet": b"PAR1 broken"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for inputs in (LocalStorage(tmp_path), MemoryStorage(files)):
        assert count_row_groups(inputs, "a.parquet") == 3
        assert count_row_groups(inputs, "broken.parquet") == 1
        assert count_row_groups(inputs, "absent.parquet") == 1


def test_blocks_stand_for_the_bytes_of_the_file() -> None:
    """By which progress is shown."""
    data = parquet_file([f"document {n}" for n in range(30)], row_group_size=10)
    group = len(data) // 3

    def consumed(data: bytes, offset: int | None = None, **options: Any) -> list[int]:
        return [block.consumed for block in ParquetReader(opened(data), WHOLE, ReadOptions(**options)).blocks(offset)]

    assert consumed(data) == [group] * 3
    assert consumed(data, 14) == [group * 6 // 10, group]
    assert consumed(data, text_field="absent") == [group] * 3
    assert consumed(b"PAR1 broken") == [11]


def test_a_file_that_is_replaced_or_removed_is_read_as_it_was_opened(tmp_path: Path) -> None:
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    values = [f"document {n}" for n in range(30)]
    path.write_bytes(parquet_file(values, row_group_size=10))
    with opened_file(path) as replaced, opened_file(path) as removed:
        other.write_bytes(parquet_file(["another"] * 30))
        other.replace(path)
        assert all_texts(read_source(replaced)) == values
        blocks = ParquetReader(removed, WHOLE, ReadOptions()).blocks(None)
        first = next(blocks).parse().texts
        path.unlink()
        assert first + all_texts([block.parse() for block in blocks]) == values
    storage = MemoryStorage({"a.parquet": parquet_file(values)})
    with storage.open("a.parquet") as source:
        storage.remove(["a.parquet"])
        assert all_texts(read_source(source)) == values


def test_whoever_opened_a_file_closes_it(tmp_path: Path) -> None:
    """Here it is read three times."""
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_file(["a", "b"]))
    with opened_file(path) as file, opened(path.read_bytes()) as memory:
        for source in (file, memory):
            assert [all_texts(read_source(source)) for _ in range(3)] == [["a", "b"]] * 3
            assert not source.closed


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_file([f"document {n}" for n in range(30)], row_group_size=10))
    before = os.listdir("/proc/self/fd")
    with opened_file(path) as file:
        blocks = ParquetReader(file, WHOLE, ReadOptions()).blocks(None)
        next(blocks)
        blocks.close()  # type: ignore[attr-defined]
        read_source(file)
    count_row_groups(LocalStorage(tmp_path), "a.parquet")
    path.write_bytes(b"PAR1 broken")
    with opened_file(path) as file:
        read_source(file)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_source_that_fails_at_any_read_is_an_error_and_not_a_damaged_file() -> None:
    """In the footer, and in the rows."""
    storage = MemoryStorage({"a.parquet": parquet_file(["a", "b"])})
    asked: list[str] = []
    storage.watch = lambda operation, _: asked.append(operation)
    assert all_texts(read_source(storage.open("a.parquet"))) == ["a", "b"]
    reads = asked.count("read")
    assert reads > 1
    for good in range(reads):
        asked.clear()

        def watch(operation: str, _: str, good: int = good) -> None:
            if operation == "read" and asked.count("read") == good:
                raise OSError(errno.EIO, "Input/output error")
            asked.append(operation)

        storage.watch = watch
        with pytest.raises(OSError, match="Input/output error") as raised:
            read_source(storage.open("a.parquet"))
        assert raised.value.errno == errno.EIO


def test_a_disk_that_fails_under_arrow_is_an_error_and_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_file([f"document {n}" for n in range(30)], row_group_size=10))
    mishaps.break_parquet("a.parquet", 1, monkeypatch.setattr)
    with opened_file(path) as file:
        blocks = ParquetReader(file, WHOLE, ReadOptions()).blocks(None)
        assert len(next(blocks).parse().texts) == 10
        with pytest.raises(OSError, match="Input/output error"):
            next(blocks)


def test_a_page_that_does_not_match_its_checksum_is_damage(tmp_path: Path) -> None:
    """Bytes of a text that is not compressed can change into other text: nothing else would tell."""
    path = tmp_path / "a.parquet"
    values = [f"row {n:03d}" for n in range(30)]
    options: dict[str, Any] = {"row_group_size": 10, "compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"text": values}), path, write_page_checksum=True, write_statistics=False, **options)
    data = path.read_bytes()
    assert data.count(b"row 015") == 1
    path.write_bytes(data.replace(b"row 015", b"row 999"))
    found = read(path)
    assert all_texts(found) == values[:10] + values[20:]
    (reject,) = [r for d in found for r in d.rejects]
    assert (reject.reason, reject.records) == (Reason.CORRUPT_FILE, 10)
    assert "CRC" in reject.detail


def test_json_as_parquet_knows_it_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    column: Any = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', "[]"]))
    pq.write_table(pa.table({"text": column}), path)
    assert pq.read_schema(path).field("text").type == pa.json_()
    (found,) = read(path)
    assert (found.texts, found.rejects) == (['{"a": 1}', "[]"], [])
