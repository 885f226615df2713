"""Frames of Arrow: rows and places, for where pyarrow gives up."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from tests.read.test_arrow import VALUES, all_texts, read
from tests.read.test_arrow_damage import FILE, STARTS, STREAM, places
from tests.support.sources import opened
from tokenmill.read.ipc import Footer, Frame, footer_of, frame_at


def test_a_frame_tells_the_rows_of_a_record_batch_and_where_it_ends() -> None:
    source = opened(STREAM)
    source.seek(17)
    frames = [frame_at(source, start) for start in STARTS[:-1]]
    assert [(f.rows, f.end) for f in frames if f] == [(10, end) for end in STARTS[1:]]
    assert source.tell() == 17
    assert footer_of(opened(FILE)) == Footer(tuple(8 + start for start in STARTS[:-1]), 8)


@pytest.mark.parametrize("at", [-8, len(STREAM) - 8, len(STREAM) - 3, len(STREAM), 1 << 40])
def test_there_is_no_frame_where_there_is_no_message(at: int) -> None:
    assert frame_at(opened(STREAM), at) is None


def test_a_schema_has_a_frame_without_rows() -> None:
    assert frame_at(opened(STREAM), 0) == Frame(STARTS[0])


def test_a_frame_may_end_beyond_the_file() -> None:
    cut_off = STREAM[: STARTS[1] - 1]
    assert frame_at(opened(cut_off), STARTS[0]) == Frame(STARTS[1], 10)
    metadata = int.from_bytes(STREAM[STARTS[0] + 4 : STARTS[0] + 8], "little")
    assert frame_at(opened(STREAM[: STARTS[0] + 9]), STARTS[0]) == Frame(STARTS[0] + 8 + metadata)


def test_a_file_that_is_cut_off_has_no_footer() -> None:
    for size in (0, 1, 9, 20, len(FILE) - 1):
        assert footer_of(opened(FILE[:size])) is None
    assert footer_of(opened(STREAM)) is None


def test_what_lies_before_a_footer_and_is_not_its_own_is_a_gap() -> None:
    empty = pa.RecordBatch.from_pydict({"text": VALUES}).slice(0, 0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, empty.schema):
        pass
    assert footer_of(opened(sink.getvalue().to_pybytes())) == Footer((), 0)
    found = footer_of(opened(FILE + FILE))
    assert found is not None
    assert found.gap == len(FILE) + 8


def test_a_number_of_rows_that_cannot_be_counts_as_one() -> None:
    metadata = STREAM[STARTS[0] : STARTS[1]]
    for rows, counted in ((0, 1), (-1, 1), (1 << 40, 1), (11, 11)):
        changed = metadata.replace(struct.pack("<q", 10), struct.pack("<q", rows), 1)
        assert frame_at(opened(changed), 0) == Frame(len(metadata), counted)


def test_streams_of_old_versions_have_no_markers() -> None:
    old = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict({"text": VALUES})
    with pa.ipc.new_stream(sink, batch.schema, options=old) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    assert all_texts(read(data)) == VALUES
    frame = frame_at(opened(data), places(data)[0])
    assert frame is not None
    assert (frame.rows, frame.end) == (50, places(data)[1])
