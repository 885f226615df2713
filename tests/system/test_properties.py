"""For any bytes: nothing crashes, everything is accounted for, and good lines survive what stands between them.

`benchmarks/fuzz.py` tries the same on millions of inputs.
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.compression import COMPRESS
from tests.support.fuzzing import (
    OPTIONS,
    check_arrow,
    check_compressed,
    check_damaged,
    check_lines,
    check_parquet,
    check_text,
)
from tests.support.sources import arrow_bytes, opened
from tokenmill.read.block import ReadingWay
from tokenmill.read.jsonl import JsonlReader, LinesBlock
from tokenmill.read.lines import BOM
from tokenmill.read.ring import Ring
from tokenmill.records import Codec, Part

FEW = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

noise = st.binary(max_size=200).map(lambda b: b.replace(b"\n", b" "))
almost = st.sampled_from(
    [b"{", b'{"text": "a', b'{"text": 1}', b"[]", b"null", b'{"text": "\\ud800"}', b'{"text": "\xff"}', b"\xef\xbb\xbf"]
)


@FEW
@given(st.lists(noise | almost, max_size=12))
def test_good_lines_survive_any_neighbours(lines: list[bytes]) -> None:
    check_lines(lines)


@FEW
@given(st.binary(max_size=600), st.sampled_from(list(Codec)))
def test_any_bytes_through_any_decompressor(data: bytes, codec: Codec) -> None:
    check_compressed(data, codec)


@FEW
@given(
    st.binary(max_size=300) | st.integers(0, 99).map(lambda n: b"the same again " * n),
    st.sampled_from(list(COMPRESS)),
    st.integers(0, 400),
    st.integers(0, 255),
    st.booleans(),
)
def test_damaged_compressed_files_give_all_before_the_damage(
    data: bytes, codec: Codec, place: int, value: int, small: bool
) -> None:
    """With small pieces too, so that the damage lies before, in and behind any of them."""
    compressed = COMPRESS[codec](data)
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr("tokenmill.read.decompress.INPUT_BYTES", 16)
            patch.setattr("tokenmill.read.decompress.OUTPUT_BYTES", 8)
        check_damaged(data, compressed, place % len(compressed), value, codec)


@FEW
@given(st.lists(st.binary(max_size=60), max_size=12), st.integers(1, 300), st.booleans())
def test_lines_that_are_lent_or_mapped_are_those_read_in_the_ordinary_way(
    lines: list[bytes], cut: int, bom: bool
) -> None:
    """With tiny blocks and buffers, so that lines begin, end and do not fit everywhere; in two parts, cut anywhere."""
    source = opened(b"\xef\xbb\xbf" * bom + b"\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenmill.read.lines.BLOCK_BYTES", 16)
        patch.setattr("tokenmill.read.ring.BUFFER_BYTES", 32)
        patch.setattr("tokenmill.read.lines.MAP_BYTES", 40)
        patch.setattr("tokenmill.read.lines.SEARCH_BYTES", 3)
        every = b""
        for part in (Part(0, 0, cut), Part(0, cut, None)):
            lent = JsonlReader(source, Codec.PLAIN, part, OPTIONS, ReadingWay(ring=Ring()))
            mapped = JsonlReader(source, Codec.PLAIN, part, OPTIONS, ReadingWay(mapped=True))
            ordinary = JsonlReader(source, Codec.PLAIN, part, OPTIONS)
            assert read_whole(lent) == read_whole(mapped) == read_whole(ordinary)
            every += read_whole(lent)[0]
        text = b"\n".join(lines)
        assert every == (text if bom else text.removeprefix(BOM))  # of two marks only one is taken off


def read_whole(reader: JsonlReader) -> tuple[bytes, int]:
    """What it gives, and where that begins."""
    data, first = b"", -1
    for block in reader.blocks(None):
        assert first < 0 or block.offset == first + len(data)
        first = block.offset if first < 0 else first
        assert isinstance(block, LinesBlock)
        data += bytes(block.lines.data)
        block.release()
    return data, first


@FEW
@given(st.binary(max_size=400))
def test_any_bytes_as_a_text_file(tmp_path: Path, data: bytes) -> None:
    check_text(tmp_path / "a.txt", data)


TEXTS = [f"row {n} " + "word " * (n % 5) for n in range(40)]
ARROW = [
    arrow_bytes(
        [{"id": list(range(i, i + 10)), "text": column[i : i + 10]} for i in range(0, 40, 10)], kind, compression
    )
    for kind in ("file", "stream")
    for compression in (None, "lz4", "zstd")
    for column in (pa.array(TEXTS), pa.array(TEXTS).cast(pa.string_view()))
]


@settings(FEW, max_examples=200)
@given(st.sampled_from(ARROW), st.integers(0, 100_000), st.binary(min_size=1, max_size=8))
@example(ARROW[0], ARROW[0].index(bytes([10, 0, 0, 0, 0, 0, 0, 0])), b"\xff\xff\xff\xff\xff\xff\xff\x7f")
def test_damaged_arrow(tmp_path: Path, whole: bytes, place: int, damage: bytes) -> None:
    data = bytearray(whole)
    place %= len(data)
    data[place : place + len(damage)] = damage
    check_arrow(tmp_path / "a.arrow", bytes(data))
    check_arrow(tmp_path / "a.arrow", whole[:place])


@settings(FEW, max_examples=100)
@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8))
@example(1128, b"\xc9\xce\x75")  # pyarrow's metadata of a column would end the process
def test_damaged_parquet(tmp_path: Path, place: int, damage: bytes) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(50)]}), buffer, row_group_size=10)
    data = bytearray(buffer.getvalue())
    place %= len(data)
    data[place : place + len(damage)] = damage
    check_parquet(tmp_path / "a.parquet", bytes(data))
