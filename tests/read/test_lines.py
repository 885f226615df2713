"""Blocks of whole lines: from pieces, from ranges of a file, in lent buffers; and lines of the largest size."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backports import zstd

from tests.conftest import texts
from tokenmill.config import Config
from tokenmill.read import lines
from tokenmill.read.decompress import BrokenStreamError
from tokenmill.read.jsonl import JsonlParser, JsonlReader
from tokenmill.read.lines import cut_lines, line_start, lines_in_range, skip_bytes
from tokenmill.read.ring import BUFFER_BYTES, Ring
from tokenmill.records import Block, Codec, Documents, Part, Reason

BLOCK, BUFFER = 16, 32


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 and buffers of 32 bytes."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", BLOCK)
    monkeypatch.setattr("tokenmill.read.ring.BUFFER_BYTES", BUFFER)


def reader_of(path: Path, part: Part, ring: Ring | None, limit: int = 1000) -> JsonlReader:
    config = Config(inputs=("in",), output=Path("out"), max_document_bytes=limit)
    return JsonlReader(path, Codec.PLAIN, part, config, ring)


# Where parts begin and end


@pytest.mark.parametrize(("start", "first"), [(0, 0), (1, 3), (2, 3), (3, 3), (4, 6), (6, 6), (7, 7), (99, 98)])
def test_a_line_belongs_to_the_part_that_its_first_byte_lies_in(start: int, first: int) -> None:
    assert line_start(io.BytesIO(b"ab\ncd\ne"), Part(0, start)) == first


@pytest.mark.usefixtures("small")
def test_the_first_line_of_a_part_may_begin_blocks_behind_its_start() -> None:
    data = b"x" * 50 + b"\nrest"
    assert line_start(io.BytesIO(data), Part(0, 5)) == 51
    assert line_start(io.BytesIO(data[:50]), Part(0, 5)) == 50


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        (0, b""),
        (1, b"ab\n"),
        (3, b"ab\n"),
        (4, b"ab\ncd\n"),
        (6, b"ab\ncd\n"),
        (7, b"ab\ncd\n" + b"x" * 40 + b"\n"),
        (47, b"ab\ncd\n" + b"x" * 40 + b"\n"),
        (48, b"ab\ncd\n" + b"x" * 40 + b"\nend"),
        (None, b"ab\ncd\n" + b"x" * 40 + b"\nend"),
    ],
)
def test_the_lines_of_a_range_end_behind_the_line_that_begins_in_it(end: int | None, wanted: bytes) -> None:
    data = b"ab\ncd\n" + b"x" * 40 + b"\nend"
    assert b"".join(lines_in_range(io.BytesIO(data), 0, end)) == wanted


def test_pieces_are_passed_over_up_to_a_byte() -> None:
    pieces = [b"abc", b"de", b"fgh"]
    assert [b"".join(skip_bytes(pieces, n)) for n in (0, 1, 3, 4, 5, 8)] == [
        b"abcdefgh",
        b"bcdefgh",
        b"defgh",
        b"efgh",
        b"fgh",
        b"",
    ]
    assert next(skip_bytes(pieces, 0)) is pieces[0]  # without a copy


# Lent buffers


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a mark"])
def test_a_buffer_that_comes_back_and_is_filled_with_other_lines_changes_none(tmp_path: Path, bom: bytes) -> None:
    """As the threads of an engine do it: one gives a buffer back while the next line is not read yet."""
    path = tmp_path / "a.jsonl"
    data = b"".join(b"line %d\n" % n for n in range(40))
    path.write_bytes(bom + data)
    ring = Ring()
    found = b""
    for block in reader_of(path, Part(0), ring).blocks(None):
        assert block.offset == len(bom) + len(found)
        assert block.consumed == len(block.data)
        found += bytes(block.data)
        assert block.release is not None
        block.release()
        view, _ = ring.lend()
        view[:] = b"?" * len(view)
    assert found == data


@pytest.mark.usefixtures("small")
def test_a_line_longer_than_a_buffer_is_read_in_the_ordinary_way_and_so_is_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data = b"one\n" + b"x" * (BUFFER + 1) + b"\ntwo\n"
    path.write_bytes(data)
    blocks = [(b.offset, bytes(b.data)) for b in reader_of(path, Part(0), Ring()).blocks(None)]
    assert b"".join(d for _, d in blocks) == data
    assert blocks[0] == (0, b"one\n")
    assert blocks[1][0] == 4


@pytest.mark.usefixtures("small")
def test_a_line_that_just_fits_a_buffer_is_lent(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * (BUFFER - 1) + b"\ny\n")
    first, second = reader_of(path, Part(0), Ring()).blocks(None)
    assert isinstance(first.data, memoryview)
    assert (bytes(first.data), bytes(second.data)) == (b"x" * (BUFFER - 1) + b"\n", b"y\n")


def test_a_ring_gives_a_buffer_again_once_it_is_back_and_another_before() -> None:
    ring = Ring()
    one, give_back = ring.lend()
    other, _ = ring.lend()
    assert one.obj is not other.obj
    assert len(one) == BUFFER_BYTES
    give_back()
    assert ring.lend()[0].obj is one.obj


def test_a_ring_joins_pieces_and_keeps_no_buffer_that_was_made_for_a_long_line() -> None:
    ring = Ring()
    view, give_back = ring.join([b"ab", b"", b"c"])
    assert bytes(view) == b"abc"
    assert len(view.obj) == BUFFER_BYTES  # type: ignore[arg-type]
    give_back()
    long = b"x" * (BUFFER_BYTES + 1)
    large, give_large_back = ring.join([long])
    assert bytes(large) == long
    give_large_back()
    assert ring.lend()[0].obj is view.obj
    assert len(ring.join([b"x" * BUFFER_BYTES])[0].obj) == BUFFER_BYTES  # type: ignore[arg-type]


# A record of the largest size, and one of a byte more

LIMIT = 60
LARGEST = texts("x" * (LIMIT - len('{"text": ""}'))).rstrip(b"\n")
LARGER = LARGEST.replace(b"xx", b"xxx", 1)
assert (len(LARGEST), len(LARGER)) == (LIMIT, LIMIT + 1)

CODECS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.PLAIN: bytes,
    Codec.GZIP: gzip.compress,
    Codec.ZSTD: zstd.compress,
    Codec.BZIP2: bz2.compress,
    Codec.XZ: lzma.compress,
}


@pytest.mark.parametrize("lent", [False, True], ids=["own", "lent"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "not ended"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with others"])
def test_a_line_of_exactly_the_largest_size_is_a_document_and_a_byte_more_a_reject(
    tmp_path: Path, lent: bool, codec: Codec, ended: bool, alone: bool
) -> None:
    before = b"" if alone else texts("a", "b")
    config = Config(inputs=("in",), output=Path("out"), max_document_bytes=LIMIT)
    path = tmp_path / "a.jsonl"

    def read(line: bytes) -> Iterator[Documents]:
        path.write_bytes(CODECS[codec](before + line + (b"\n" if ended else b"")))
        reader = JsonlReader(path, codec, Part(0), config, Ring() if lent else None)
        return (reader.parse(block) for block in reader.blocks(None))

    found = list(read(LARGEST))
    assert [len(t) for d in found for t in d.texts][-1:] == [LIMIT - len('{"text": ""}')]
    assert [r for d in found for r in d.rejects] == []
    found = list(read(LARGER))
    assert [t for d in found for t in d.texts] == ([] if alone else ["a", "b"])
    (reject,) = [r for d in found for r in d.rejects]
    assert (reject.reason, reject.offset, reject.head) == (Reason.TOO_LARGE, len(before), LARGER)
    assert reject.detail == "the record has 61 bytes, more than --max-document-bytes 60"
    assert sum(d.lines for d in found) == (1 if alone else 3)
    assert sum(d.records for d in found) == (1 if alone else 3)


def test_the_size_of_a_line_counts_on_the_fast_path_and_line_by_line() -> None:
    parser = JsonlParser("text", None, LIMIT)
    for line, rejected in ((LARGEST, 0), (LARGER, 1)):
        fast = parser(Block(offset=0, data=line, consumed=0))
        slow = parser.parse_lines(line + b"\n", 0)
        assert (len(fast.rejects), len(slow.rejects)) == (rejected, rejected)
        assert (len(fast.texts), len(slow.texts)) == (1 - rejected, 1 - rejected)
    assert parser(Block(offset=0, data=LARGEST, consumed=0)).numbers == range(1)  # which only the fast path gives


@pytest.mark.parametrize("size", [1, 7, LIMIT, LIMIT + 1, 500])
def test_a_line_is_as_large_however_it_arrives(size: int) -> None:
    parser = JsonlParser("text", None, LIMIT)
    for line, rejected in ((LARGEST, 0), (LARGER, 1)):
        data = line + b"\n"
        blocks = cut_lines([data[i : i + size] for i in range(0, len(data), size)], 0, LIMIT)
        assert [len(d.rejects) for d in map(parser, blocks)] == [rejected]


def test_a_line_that_may_still_be_of_the_largest_size_is_held() -> None:
    (held,) = cut_lines([LARGEST], 0, LIMIT)
    (over,) = cut_lines([LARGER], 0, LIMIT)
    assert (held.data, held.broken) == (LARGEST, None)
    assert over.data == b""
    assert over.broken is not None


def test_white_space_over_the_largest_size_is_a_record_and_within_it_is_none() -> None:
    parser = JsonlParser("text", None, 4)
    found = parser.parse_lines(b"    \n     \n", 0)
    assert (found.records, found.lines, [r.record for r in found.rejects]) == (1, 2, [1])


# What the cutter tells beside the lines


def test_blocks_tell_where_they_begin_and_what_was_consumed_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 4)
    consumed = iter([10, 13, 20, 21])
    found = list(cut_lines([b"a\n", b"b\nc", b"\nd\ne", b"f"], 7, 100, lambda: next(consumed)))
    assert [(b.offset, bytes(b.data), b.consumed) for b in found] == [
        (7, b"a\nb\n", 3),
        (11, b"c\nd\n", 7),
        (15, b"ef", 1),
    ]


def test_a_byte_order_mark_is_taken_off_at_the_start_of_the_file_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert [(b.offset, b.data) for b in cut_lines([mark + b"a\n", mark + b"b"], 0, 100)] == [
        (3, b"a\n"),
        (5, mark + b"b"),
    ]
    assert [(b.offset, b.data) for b in cut_lines([mark + b"a\n"], 4, 100)] == [(4, mark + b"a\n")]
    assert [(b.offset, b.data) for b in cut_lines([b"a", mark + b"b"], 0, 100)] == [(0, b"a" + mark + b"b")]


@pytest.mark.parametrize("lent", [False, True], ids=["own", "lent"])
def test_a_break_is_told_behind_the_lines_before_it(lent: bool) -> None:
    def source() -> Iterator[bytes]:
        yield b"one\ntw"
        raise BrokenStreamError(Reason.TRUNCATED_FILE, "cut off")

    whole, broken = cut_lines(source(), 100, 50, ring=Ring() if lent else None)
    assert (whole.offset, bytes(whole.data), whole.broken) == (100, b"one\n", None)
    assert (whole.release is not None) == lent
    assert broken.broken is not None
    assert (broken.offset, broken.data) == (104, b"tw")
    assert (broken.broken.offset, broken.broken.record, broken.broken.head) == (106, 0, b"tw")
    assert (broken.broken.reason, broken.broken.detail) == (Reason.TRUNCATED_FILE, "cut off")


def test_a_line_over_the_limit_before_a_break_is_a_reject_of_its_own() -> None:
    def source() -> Iterator[bytes]:
        yield b"one\n" + b"x" * 11
        yield b"xx"
        raise BrokenStreamError(Reason.CORRUPT_FILE, "wrong")

    whole, large, broken = cut_lines(source(), 0, 10)
    assert whole.data == b"one\n"
    assert large.broken is not None
    assert broken.broken is not None
    assert (large.offset, large.data, large.broken.reason, large.broken.head) == (4, b"", Reason.TOO_LARGE, b"x" * 13)
    assert "13 bytes" in large.broken.detail
    assert (broken.offset, broken.broken.offset, broken.broken.reason) == (17, 17, Reason.CORRUPT_FILE)


def test_the_head_of_a_line_over_the_limit_is_its_first_bytes_however_it_arrives() -> None:
    line = bytes(range(32, 127)) * 3
    for size in (1, 50, 159, 160, 161, 285):
        pieces = [line[i : i + size] for i in range(0, len(line), size)]
        large, after = cut_lines([*pieces, b"\nnext\n"], 0, 100)
        assert large.broken is not None
        assert (large.broken.head, large.broken.offset) == (line[:160], 0)
        assert f"the record has {len(line)} bytes" in large.broken.detail
        assert (after.offset, after.data) == (len(line) + 1, b"next\n")
