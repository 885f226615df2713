"""Blocks of whole lines: from pieces, from ranges of a file, in lent buffers; and lines of the largest size."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterator

import pytest
from backports import zstd

from tests.conftest import texts
from tests.support.sources import opened, parse_found
from tokenmill.config import ReadOptions
from tokenmill.read import lines
from tokenmill.read.block import ReadingWay
from tokenmill.read.decompress import BrokenStreamError
from tokenmill.read.jsonl import JsonlParser, JsonlReader, LinesBlock
from tokenmill.read.lines import Break, Lines, cut_lines, line_start, lines_in_range, skip_bytes
from tokenmill.read.ring import Ring
from tokenmill.records import Codec, Documents, Part, Reason

BLOCK, BUFFER = 16, 32


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 and buffers of 32 bytes."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", BLOCK)
    monkeypatch.setattr("tokenmill.read.ring.BUFFER_BYTES", BUFFER)


def lent_lines(data: bytes, ring: Ring) -> Iterator[Lines]:
    """The lines of a file, in buffers of the ring where they fit."""
    reader = JsonlReader(
        opened(data), Codec.PLAIN, Part(0), ReadOptions(max_document_bytes=1000), ReadingWay(ring=ring)
    )
    for block in reader.blocks(None):
        assert isinstance(block, LinesBlock)
        assert (block.offset, block.consumed) == (block.lines.offset, block.lines.consumed)
        yield block.lines


def lines_of(found: Lines | Break) -> tuple[int, bytes]:
    """Where lines begin, and what they are."""
    assert isinstance(found, Lines)
    return found.offset, bytes(found.data)


# Where parts begin and end


@pytest.mark.parametrize(("start", "first"), [(0, 0), (1, 3), (2, 3), (3, 3), (4, 6), (6, 6), (7, 7), (99, 98)])
def test_a_line_belongs_to_the_part_that_its_first_byte_lies_in(start: int, first: int) -> None:
    assert line_start(opened(b"ab\ncd\ne"), Part(0, start)) == first


@pytest.mark.usefixtures("small")
def test_the_first_line_of_a_part_may_begin_blocks_behind_its_start() -> None:
    data = b"x" * 50 + b"\nrest"
    assert line_start(opened(data), Part(0, 5)) == 51
    assert line_start(opened(data[:50]), Part(0, 5)) == 50


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
    assert b"".join(lines_in_range(opened(data), 0, end)) == wanted
    assert b"".join(lines_in_range(opened(data), 3, end)) == wanted[3:]


@pytest.mark.usefixtures("small")
def test_a_range_may_end_with_a_line_whose_end_begins_a_block() -> None:
    data = b"x" * BLOCK + b"\n" + b"another\n" * BLOCK
    assert b"".join(lines_in_range(opened(data), 0, BLOCK + 1)) == data[: BLOCK + 1]


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
def test_a_buffer_that_comes_back_and_is_filled_with_other_lines_changes_none(bom: bytes) -> None:
    """As the threads of an engine do it: one gives a buffer back while the next line is not read yet."""
    data = b"".join(b"line %d\n" % n for n in range(40))
    ring = Ring()
    found = b""
    for lent in lent_lines(bom + data, ring):
        assert lent.offset == len(bom) + len(found)
        assert lent.consumed == len(lent.data)
        found += bytes(lent.data)
        assert lent.release is not None
        lent.release()
        view, _ = ring.lend()
        view[:] = b"?" * len(view)
    assert found == data


@pytest.mark.usefixtures("small")
def test_a_line_longer_than_a_buffer_is_read_in_the_ordinary_way_and_so_is_what_follows() -> None:
    data = b"one\n" + b"x" * (BUFFER + 1) + b"\ntwo\n"
    blocks = [lines_of(lent) for lent in lent_lines(data, Ring())]
    assert b"".join(d for _, d in blocks) == data
    assert blocks[0] == (0, b"one\n")
    assert blocks[1][0] == 4


@pytest.mark.usefixtures("small")
def test_a_line_that_just_fits_a_buffer_is_lent() -> None:
    first, second = lent_lines(b"x" * (BUFFER - 1) + b"\ny\n", Ring())
    assert isinstance(first.data, memoryview)
    assert (bytes(first.data), bytes(second.data)) == (b"x" * (BUFFER - 1) + b"\n", b"y\n")


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
    lent: bool, codec: Codec, ended: bool, alone: bool
) -> None:
    before = b"" if alone else texts("a", "b")
    options = ReadOptions(max_document_bytes=LIMIT)

    def read(line: bytes) -> Iterator[Documents]:
        source = opened(CODECS[codec](before + line + (b"\n" if ended else b"")))
        reader = JsonlReader(source, codec, Part(0), options, ReadingWay(ring=Ring() if lent else None))
        return (block.parse() for block in reader.blocks(None))

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
        fast = parser.parse(line, 0)
        slow = parser.parse_lines(line + b"\n", 0)
        assert (len(fast.rejects), len(slow.rejects)) == (rejected, rejected)
        assert (len(fast.texts), len(slow.texts)) == (1 - rejected, 1 - rejected)
    assert parser.parse(LARGEST, 0).numbers == range(1)  # which only the fast path gives


@pytest.mark.parametrize("size", [1, 7, LIMIT, LIMIT + 1, 500])
def test_a_line_is_as_large_however_it_arrives(size: int) -> None:
    parser = JsonlParser("text", None, LIMIT)
    for line, rejected in ((LARGEST, 0), (LARGER, 1)):
        data = line + b"\n"
        found = cut_lines([data[i : i + size] for i in range(0, len(data), size)], 0, LIMIT)
        assert [len(parse_found(parser, f).rejects) for f in found] == [rejected]


def test_a_line_that_may_still_be_of_the_largest_size_is_held() -> None:
    (held,) = cut_lines([LARGEST], 0, LIMIT)
    (over,) = cut_lines([LARGER], 0, LIMIT)
    assert lines_of(held) == (0, LARGEST)
    assert isinstance(over, Break)
    assert over.tail == b""


def test_white_space_over_the_largest_size_is_a_record_and_within_it_is_none() -> None:
    parser = JsonlParser("text", None, 4)
    found = parser.parse_lines(b"    \n     \n", 0)
    assert (found.records, found.lines, [r.record for r in found.rejects]) == (1, 2, [1])


# What the cutter tells beside the lines


def test_blocks_tell_where_they_begin_and_what_was_consumed_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 4)
    consumed = iter([10, 13, 20, 21])
    found = list(cut_lines([b"a\n", b"b\nc", b"\nd\ne", b"f"], 7, 100, lambda: next(consumed)))
    assert [(*lines_of(f), f.consumed) for f in found] == [
        (7, b"a\nb\n", 3),
        (11, b"c\nd\n", 7),
        (15, b"ef", 1),
    ]


def test_a_byte_order_mark_is_taken_off_at_the_start_of_the_file_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert [*map(lines_of, cut_lines([mark + b"a\n", mark + b"b"], 0, 100))] == [(3, b"a\n"), (5, mark + b"b")]
    assert [*map(lines_of, cut_lines([mark + b"a\n"], 4, 100))] == [(4, mark + b"a\n")]
    assert [*map(lines_of, cut_lines([b"a", mark + b"b"], 0, 100))] == [(0, b"a" + mark + b"b")]


@pytest.mark.parametrize("lent", [False, True], ids=["own", "lent"])
def test_a_break_is_told_behind_the_lines_before_it(lent: bool) -> None:
    def source() -> Iterator[bytes]:
        yield b"one\ntw"
        raise BrokenStreamError(Reason.TRUNCATED_FILE, "cut off")

    consumed = iter([10, 13, 20])
    whole, broken = cut_lines(source(), 100, 50, lambda: next(consumed), Ring() if lent else None)
    assert isinstance(whole, Lines)
    assert (whole.offset, bytes(whole.data), whole.consumed) == (100, b"one\n", 3)
    assert (whole.release is not None) == lent
    assert isinstance(broken, Break)
    assert (broken.offset, broken.tail, broken.consumed) == (104, b"tw", 7)
    assert (broken.reject.offset, broken.reject.record, broken.reject.head) == (106, 0, b"tw")
    assert (broken.reject.reason, broken.reject.detail) == (Reason.TRUNCATED_FILE, "cut off")


def test_a_line_over_the_limit_before_a_break_is_a_reject_of_its_own() -> None:
    def source() -> Iterator[bytes]:
        yield b"one\n" + b"x" * 11
        yield b"xx"
        raise BrokenStreamError(Reason.CORRUPT_FILE, "wrong")

    whole, large, broken = cut_lines(source(), 0, 10)
    assert lines_of(whole) == (0, b"one\n")
    assert isinstance(large, Break)
    assert isinstance(broken, Break)
    assert (large.offset, large.tail, large.reject.reason, large.reject.head) == (4, b"", Reason.TOO_LARGE, b"x" * 13)
    assert "13 bytes" in large.reject.detail
    assert (broken.offset, broken.reject.offset, broken.reject.reason) == (17, 17, Reason.CORRUPT_FILE)


def test_the_head_of_a_line_over_the_limit_is_its_first_bytes_however_it_arrives() -> None:
    line = bytes(range(32, 127)) * 3
    for size in (1, 50, 159, 160, 161, 285):
        pieces = [line[i : i + size] for i in range(0, len(line), size)]
        large, after = cut_lines([*pieces, b"\nnext\n"], 0, 100)
        assert isinstance(large, Break)
        assert (large.reject.head, large.reject.offset) == (line[:160], 0)
        assert f"the record has {len(line)} bytes" in large.reject.detail
        assert lines_of(after) == (len(line) + 1, b"next\n")
