"""Damaged Arrow: all that is whole is read, what is lost is counted, and nothing ends the process."""

from __future__ import annotations

import errno
import gzip
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.read.test_arrow import BOTH, VALUES, all_texts, batches, numbers, read, rejects
from tests.support.sources import arrow_bytes, opened_file
from tokenmill.config import ReadOptions
from tokenmill.read.arrow import ArrowReader
from tokenmill.records import Loss, Part, Reason
from tokenmill.storage.memory import MemoryStorage

WHOLE = Part(0)
END_MARKER = b"\xff\xff\xff\xff\0\0\0\0"


def places(data: bytes) -> list[int]:
    """Where the record batches of a stream begin, and where the last one ends."""
    file = pa.BufferReader(data)
    reader = pa.ipc.open_stream(file)
    return [file.tell(), *(file.tell() for _ in reader)]


STREAM = arrow_bytes(batches())
FILE = arrow_bytes(batches(), "file")
STARTS = places(STREAM)


# cut off


def test_a_stream_that_is_cut_off_anywhere_gives_every_whole_record_batch() -> None:
    for size in range(1, len(STREAM)):
        found = read(STREAM[:size])
        whole = 10 * max(0, sum(end <= size for end in STARTS) - 1)
        assert all_texts(found) == VALUES[:whole]
        (reject,) = [r for d in found for r in d.rejects]
        assert reject.reason is Reason.TRUNCATED_FILE
        assert reject.offset == whole


def test_a_file_that_is_cut_off_anywhere_gives_every_whole_record_batch() -> None:
    """Its footer is gone, but it is a stream for all that comes before it."""
    ends = [8 + end for end in places(FILE[8:])]
    for size in range(1, len(FILE), 7):
        found = read(FILE[:size])
        whole = 10 * max(0, sum(end <= size for end in ends) - 1)
        assert all_texts(found) == VALUES[:whole]
        assert [reason for reason, _ in rejects(found)] == [Reason.TRUNCATED_FILE]


def test_the_rows_of_a_record_batch_that_is_cut_off_are_counted() -> None:
    for data, cut in ((STREAM, STARTS[4] - 1), (FILE, STARTS[4] + 7)):
        found = read(data[:cut])
        assert rejects(found) == [(Reason.TRUNCATED_FILE, 10)]
        assert sum(d.lines for d in found) == sum(d.records for d in found) == 40


def test_a_stream_without_an_end_marker_is_cut_off_even_if_its_record_batches_are_whole() -> None:
    """A writer that did not finish: there may have been more."""
    assert STREAM.endswith(END_MARKER)
    found = read(STREAM.removesuffix(END_MARKER))
    assert all_texts(found) == VALUES
    assert rejects(found) == [(Reason.TRUNCATED_FILE, 1)]
    assert "end marker" in found[-1].rejects[0].detail


def test_an_empty_file_is_a_truncated_one() -> None:
    assert rejects(read(b"")) == [(Reason.TRUNCATED_FILE, 1)]


def test_a_file_with_a_damaged_footer_gives_everything_and_says_so() -> None:
    data = bytearray(FILE)
    data[-10:-6] = struct.pack("<i", 7)  # the size of the footer
    found = read(bytes(data))
    assert all_texts(found) == VALUES
    assert rejects(found) == [(Reason.CORRUPT_FILE, 1)]
    assert "The record batches before it were read" in found[-1].rejects[0].detail


def test_a_file_behind_another_is_not_lost_without_a_word() -> None:
    """The footer is that of the second, and what it says is true of the first."""
    for data in (FILE + FILE, FILE + STREAM, STREAM + FILE):
        found = read(data)
        assert all_texts(found) == VALUES
        assert [records for _, records in rejects(found)] == [1]
    (first, second) = read(FILE + FILE, Part(0, 0, 3)), read(FILE + FILE, Part(0, 3, 5))
    assert (rejects(first), rejects(second)) == ([], [(Reason.CORRUPT_FILE, 1)])


@pytest.mark.parametrize("data", [b"\0" * 500, b"FEA1" + b"\0" * 99, gzip.compress(STREAM), b"some text, or other"])
def test_what_is_not_arrow_at_all_is_not_called_cut_off(data: bytes) -> None:
    assert rejects(read(data)) == [(Reason.CORRUPT_FILE, 1)]


# one stream behind another


def test_streams_one_behind_another_are_all_read() -> None:
    found = read(STREAM + arrow_bytes([{"text": ["more"]}]) + STREAM)
    assert all_texts(found) == [*VALUES, "more", *VALUES]
    assert numbers(found) == list(range(101))


def test_a_later_stream_may_lack_the_column() -> None:
    found = read(STREAM + arrow_bytes([{"body": ["a", "b"]}]) + STREAM)
    assert all_texts(found) == VALUES * 2
    assert rejects(found) == [(Reason.NO_TEXT_FIELD, 2)]


@pytest.mark.parametrize("rest", [b"\0", b"foreign bytes", b"\0" * 4096, b"ARROW1\0\0", b"\xff" * 64])
def test_foreign_bytes_behind_a_stream_are_reported(rest: bytes) -> None:
    found = read(STREAM + rest)
    assert all_texts(found) == VALUES
    ((reason, records),) = rejects(found)
    assert reason in (Reason.CORRUPT_FILE, Reason.TRUNCATED_FILE)
    assert records == 1
    assert f"byte {len(STREAM)}" in found[-1].rejects[0].detail


# damaged inside


@BOTH
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_record_batch_that_cannot_be_decompressed_costs_its_rows_and_leaves_the_others(
    kind: str, compression: str
) -> None:
    data = bytearray(arrow_bytes(batches(["some text " * 50 + v for v in VALUES]), kind, compression))
    where = places(bytes(data[8:] if kind == "file" else data))
    end = where[3] + (8 if kind == "file" else 0)
    data[end - 60 : end - 20] = b"\xa5" * 40
    found = read(bytes(data))
    assert numbers(found) == [*range(20), *range(30, 50)]
    assert rejects(found) == [(Reason.CORRUPT_FILE, 10)]


@BOTH
@pytest.mark.parametrize("column", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_an_offset_that_leads_out_of_its_record_batch_costs_the_batch_and_not_the_process(
    kind: str, column: pa.DataType
) -> None:
    data = arrow_bytes(batches(kind=column), kind)
    wide = column == pa.large_string()
    ends = [0]
    for value in VALUES[20:30]:
        ends.append(ends[-1] + len(value))
    offsets = struct.pack(f"<11{'q' if wide else 'i'}", *ends)
    assert data.count(offsets) == 1
    broken = struct.pack(f"<11{'q' if wide else 'i'}", *ends[:5], 1 << 30, *ends[6:])
    found = read(data.replace(offsets, broken))
    assert all_texts(found) == VALUES[:20] + VALUES[30:]
    assert numbers(found) == [*range(20), *range(30, 50)]
    assert rejects(found) == [(Reason.CORRUPT_FILE, 10)]


@BOTH
def test_a_view_that_leads_out_of_its_buffers_costs_the_batch_and_not_the_process(kind: str) -> None:
    long = [f"{n} is longer than what a view holds by itself" for n in range(4)]
    data = arrow_bytes([{"text": pa.array(long).cast(pa.string_view())}], kind)
    view = struct.pack("<i4s", len(long[2]), b"2 is")
    assert data.count(view) == 1
    found = read(data.replace(view, struct.pack("<i4s", 1 << 30, b"2 is")))
    assert (all_texts(found), rejects(found)) == ([], [(Reason.CORRUPT_FILE, 4)])


@BOTH
def test_an_index_beyond_the_dictionary_costs_one_row(kind: str) -> None:
    words: Any = pa.DictionaryArray.from_arrays(pa.array([0, 101, 1]), pa.array(["a", "b"]), safe=False)
    found = read(arrow_bytes([{"text": words}], kind))
    assert all_texts(found) == ["a", "b"]
    assert rejects(found) == [(Reason.CORRUPT_FILE, 1)]


def test_a_struct_whose_child_is_too_short_costs_the_batch_and_not_the_process() -> None:
    batch = pa.RecordBatch.from_pydict({"doc": pa.array([{"text": v} for v in VALUES])})
    data = arrow_bytes([batch])
    start = places(data)[0]
    node = struct.pack("<qq", 50, 0)  # rows and nulls: of the struct, and of what is in it
    second = data.index(node, data.index(node, start) + 1)
    found = read(data[:second] + struct.pack("<qq", 3, 0) + data[second + 16 :], text_field="doc.text")
    assert (all_texts(found), rejects(found)) == ([], [(Reason.CORRUPT_FILE, 50)])


@BOTH
def test_a_record_batch_that_says_it_is_larger_than_the_file_is_not_asked_for(kind: str) -> None:
    """Or there would be as many gigabytes of memory for it, or none to be had: which one depends on the machine."""
    data = arrow_bytes(batches(), kind)
    skipped = 8 if kind == "file" else 0
    start, end = (skipped + place for place in places(data[skipped:])[2:4])
    body = end - start - 8 - int.from_bytes(data[start + 4 : start + 8], "little")
    place = data.index(struct.pack("<q", body), start)
    found = read(data[:place] + struct.pack("<q", 1 << 44) + data[place + 8 :])
    whole = VALUES[:20] + (VALUES[30:] if kind == "file" else [])
    assert all_texts(found) == whole
    (reject,) = [r for d in found for r in d.rejects]
    assert (reject.records, reject.offset) == (10, 20)
    assert f"of a file of {len(data)} bytes" in reject.detail


def test_a_footer_may_point_anywhere() -> None:
    place = struct.pack("<q", 8 + STARTS[2])
    assert FILE.count(place) == 1
    for wrong in (-1, -(1 << 62), 0, 3, len(FILE), 1 << 62):
        found = read(FILE.replace(place, struct.pack("<q", wrong)))
        assert all_texts(found) == VALUES[:20] + VALUES[30:]
        assert [reason for reason, _ in rejects(found)] == [Reason.CORRUPT_FILE]


def test_views_may_have_an_odd_number_of_bytes() -> None:
    data = arrow_bytes([{"text": pa.array(VALUES[:4]).cast(pa.string_view())}])
    buffer = struct.pack("<qq", 0, 4 * 16)
    assert data.count(buffer) == 1
    assert all_texts(read(data.replace(buffer, struct.pack("<qq", 0, 4 * 16 + 3)))) == VALUES[:4]


# unreadable is not damaged


@BOTH
def test_a_source_that_fails_at_any_read_is_an_error_and_not_a_damaged_file(kind: str) -> None:
    data = arrow_bytes(batches(), kind)
    good = 0
    while True:
        left = good

        def watch(operation: str, _: str) -> None:
            nonlocal left
            if operation == "read":
                left -= 1
                if left < 0:
                    raise OSError(errno.EIO, "Input/output error")

        source = MemoryStorage({"a": data}, watch).open("a")
        try:
            found = [b.parse() for b in ArrowReader(source, WHOLE, ReadOptions()).blocks(None)]
        except OSError as error:
            assert error.errno == errno.EIO
            good += 1
            continue
        break
    assert good > 5
    assert all_texts(found) == VALUES


def test_a_file_that_is_replaced_is_read_as_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(FILE)
    with opened_file(path) as file:
        path.rename(tmp_path / "b.arrow")
        path.write_bytes(arrow_bytes([{"text": ["other"]}], "file"))
        blocks = ArrowReader(file, WHOLE, ReadOptions()).blocks(None)
        assert [t for b in blocks for t in b.parse().texts] == VALUES


# how much is missing


def losses(data: bytes) -> list[Loss]:
    return [r.loss for d in read(data) for r in d.rejects]


def test_what_is_lost_behind_a_break_is_told_in_rows_and_bytes() -> None:
    cut = STARTS[4] - 1
    assert losses(STREAM[:cut]) == [Loss(rows=10, unread_bytes=cut - STARTS[3])]
    assert losses(STREAM[: STARTS[3] + 2]) == [Loss(unread_bytes=2)]
    assert losses(STREAM.removesuffix(END_MARKER)) == [Loss(rows=0)]
    assert losses(STREAM + b"what is this") == [Loss(unread_bytes=12)]


def test_a_footer_that_cannot_be_read_costs_no_rows() -> None:
    assert losses(FILE[:-3]) == [Loss(rows=0)]
