"""Footers of Parquet: whether they belong to the file in front of them, with no verdict where nobody can tell."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.sources import opened, parquet_file
from tokenmill.read.footer import MAX_UNKNOWN_BYTES, bytes_of_another_file

TEXTS = [f"row {n}" for n in range(100)]
FILE = parquet_file(TEXTS)


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int(struct.unpack("<I", data[-8:-4])[0])


def with_before_the_footer(data: bytes, more: bytes) -> bytes:
    start = footer_start(data)
    return data[:start] + more + data[start:]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"write_page_index": True},
    {"row_group_size": 7, "write_page_index": True},
    {"use_dictionary": False, "compression": "none"},
    {"data_page_version": "2.0", "write_page_checksum": True},
    {"version": "1.0", "write_statistics": False},
    {"store_schema": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_file_is_its_own_and_two_are_told_apart_to_the_byte(options: dict[str, Any]) -> None:
    data = parquet_file(TEXTS, **options)
    source = opened(data)
    source.seek(17)
    assert bytes_of_another_file(source) == 0
    assert source.tell() == 17
    assert bytes_of_another_file(opened(FILE + data)) == len(FILE)
    assert bytes_of_another_file(opened(data + data + FILE)) == 2 * len(data)


def test_columns_of_every_type_are_passed_over() -> None:
    row = {"text": "a", "n": 1, "f": 0.5, "ok": True, "l": [1, 2], "s": {"x": b"y", "d": None}}
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([row] * 20, metadata={"key": "value" * 100})
    pq.write_table(table, sink, row_group_size=1, write_page_index=True, sorting_columns=[pq.SortingColumn(0)])
    data = sink.getvalue().to_pybytes()
    assert bytes_of_another_file(opened(data)) == 0
    assert bytes_of_another_file(opened(FILE + data)) == len(FILE)


def test_a_file_without_rows_behind_another_is_noticed() -> None:
    empty = parquet_file([])
    assert bytes_of_another_file(opened(empty)) == 0
    assert bytes_of_another_file(opened(FILE + empty)) == len(FILE)
    assert bytes_of_another_file(opened(empty + FILE)) == len(empty)


@pytest.mark.parametrize("size", [1, 100, MAX_UNKNOWN_BYTES, 1 << 20])
def test_what_a_writer_put_before_its_footer_is_not_another_file(size: int) -> None:
    """Copies of metadata, Bloom filters whose length is not told, indexes of somebody's own."""
    assert bytes_of_another_file(opened(with_before_the_footer(FILE, b"?" * size))) == 0
    assert bytes_of_another_file(opened(with_before_the_footer(FILE, b"PAR1" * (size // 4)))) == 0


@pytest.mark.parametrize("size", [1, 100, MAX_UNKNOWN_BYTES - 4])
def test_another_file_is_noticed_even_if_something_unknown_lies_before_the_footer(size: int) -> None:
    assert bytes_of_another_file(opened(FILE + with_before_the_footer(FILE, b"?" * size))) == len(FILE)


def test_of_garbage_there_is_no_verdict() -> None:
    """Whatever the bytes of a footer, nothing is raised, and a file that is its own is not called two."""
    draw, start = random.Random(5), footer_start(FILE)
    for _ in range(3000):
        data = bytearray(FILE)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(start, len(data))] = draw.randrange(256)
        assert bytes_of_another_file(opened(bytes(data))) == 0
    for size in range(len(FILE)):
        assert bytes_of_another_file(opened(FILE[:size])) == 0
        assert bytes_of_another_file(opened(FILE[size:])) == 0
    deep = b"\x1c" * 100_000
    assert bytes_of_another_file(opened(FILE + deep + struct.pack("<I", len(deep)) + b"PAR1")) == 0
