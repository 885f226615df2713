"""Blocks: parsed quickly or plainly with one result, and each record's place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conftest import texts
from tests.support.sources import opened, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.read.block import Block, ReadingWay
from tokenmill.read.formats import open_reader
from tokenmill.read.jsonl import BrokenLinesBlock, JsonlReader, LinesBlock
from tokenmill.read.ring import Ring
from tokenmill.read.rows import BrokenRowsBlock, RowsBlock
from tokenmill.read.text import TextBlock
from tokenmill.records import Codec, Documents, Format, InputFile, Part

LIMIT = 30


def blocks(data: bytes, format_: Format) -> Iterator[Block]:
    file = InputFile(name="a", size=len(data), fingerprint="f", format=format_, codec=Codec.PLAIN)
    return open_reader(opened(data), file, Part(0), ReadOptions(max_document_bytes=LIMIT)).blocks(None)


@dataclass(frozen=True, slots=True)
class Simple(Block):
    """What a block is if it says nothing more of itself."""

    text: str

    def parse(self) -> Documents:
        return Documents(texts=[self.text], numbers=[0], document_ids=None, records=1, lines=1)


def test_a_block_that_says_nothing_more_counts_its_records_from_its_offset() -> None:
    block = Simple(100, 7, "a")
    assert (block.offset, block.consumed) == (100, 7)
    assert block.parse_plainly() == block.parse()
    assert block.offsets_of([0, 3]) == [100, 103]
    block.release()
    assert block.parse().texts == ["a"]


def test_a_block_must_say_what_it_holds() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Block(0, 0)  # type: ignore[abstract]


def test_every_kind_of_block_is_parsed_plainly_with_the_same_result() -> None:
    found = [
        *blocks(texts("a", "", "b") + b"broken\n" + texts("c"), Format.JSONL),
        *blocks(texts("x" * LIMIT).rstrip(b"\n"), Format.JSONL),
        *blocks(b"some text", Format.TEXT),
        *blocks(parquet_file(["a", None, ""]), Format.PARQUET),
        *blocks(b"PAR1 broken", Format.PARQUET),
    ]
    assert list(map(type, found)) == [LinesBlock, BrokenLinesBlock, TextBlock, RowsBlock, BrokenRowsBlock]
    for block in found:
        quick, plain = block.parse(), block.parse_plainly()
        assert list(quick.numbers) == list(plain.numbers)
        quick.numbers = plain.numbers
        assert quick == plain


def test_lines_are_parsed_plainly_line_by_line() -> None:
    """Which is how verify checks the quick way: the quick one gives a range of numbers."""
    (block,) = blocks(texts("a", "b"), Format.JSONL)
    assert isinstance(block.parse().numbers, range)
    assert isinstance(block.parse_plainly().numbers, list)


@pytest.mark.parametrize("lent", [False, True], ids=["own", "lent"])
def test_the_place_of_a_line_is_its_first_byte(lent: bool) -> None:
    data = b"\xef\xbb\xbf" + texts("a") + b"\n" + texts("ü").rstrip(b"\n") + b"\r\n" + texts("b")
    reader = JsonlReader(opened(data), Codec.PLAIN, Part(0), ReadOptions(), ReadingWay(ring=Ring() if lent else None))
    (block,) = reader.blocks(None)
    assert block.offsets_of(range(4)) == [
        data.index(b'{"text": "a"'),
        data.index(b"\n\n") + 1,
        data.index(b'{"text": "\\u00fc"'),
        data.index(b'{"text": "b"'),
    ]


def test_the_place_of_a_row_is_its_number() -> None:
    (block,) = blocks(parquet_file(["a", "b", "c"]), Format.PARQUET)
    assert block.offsets_of(range(3)) == [0, 1, 2]


def test_a_block_gives_its_buffer_back_and_one_with_memory_of_its_own_has_none_to_give() -> None:
    ring = Ring()
    (lent,) = JsonlReader(opened(texts("a")), Codec.PLAIN, Part(0), ReadOptions(), ReadingWay(ring=ring)).blocks(None)
    assert isinstance(lent, LinesBlock)
    assert isinstance(lent.lines.data, memoryview)
    buffer = lent.lines.data.obj
    assert ring.lend()[0].obj is not buffer
    lent.release()
    assert ring.lend()[0].obj is buffer
    (own,) = blocks(texts("a"), Format.JSONL)
    assert isinstance(own, LinesBlock)
    assert own.lines.release is None
    own.release()
    assert own.parse().texts == ["a"]
