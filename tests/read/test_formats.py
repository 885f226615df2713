"""Each format: which reader it has, how much text a file stands for, and where it can be cut."""

from __future__ import annotations

import gzip
import subprocess

import pytest

from tests.conftest import texts
from tests.support.processes import python
from tests.support.sources import arrow_bytes, opened, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.read.block import ReadingWay
from tokenmill.read.formats import cuts, open_reader, text_bytes
from tokenmill.read.jsonl import LinesBlock
from tokenmill.read.ring import Ring
from tokenmill.records import Codec, Format, InputFile, Part
from tokenmill.storage.memory import MemoryStorage


def file(size: int, codec: Codec = Codec.PLAIN, format_: Format = Format.JSONL) -> InputFile:
    return InputFile(name="a", size=size, fingerprint="f", format=format_, codec=codec)


@pytest.mark.parametrize(
    ("format_", "reader"),
    [
        (Format.JSONL, "JsonlReader"),
        (Format.PARQUET, "ParquetReader"),
        (Format.ARROW, "ArrowReader"),
        (Format.TEXT, "TextReader"),
    ],
)
def test_readers_are_chosen_by_format(format_: Format, reader: str) -> None:
    found = open_reader(opened(b""), file(0, format_=format_), Part(0), ReadOptions())
    assert type(found).__name__ == reader


def test_a_reader_reads_its_part_with_its_options_into_the_ring() -> None:
    data = texts("a", "bb", "ccc")
    options = ReadOptions(id_field="id", max_document_bytes=len(texts("bb")) - 1)
    (block,) = open_reader(opened(data), file(len(data)), Part(0, 1), options, ReadingWay(ring=Ring())).blocks(None)
    assert isinstance(block, LinesBlock)
    assert isinstance(block.lines.data, memoryview)
    found = block.parse()
    assert (found.texts, found.document_ids, len(found.rejects)) == (["bb"], [b"null"], 1)


@pytest.mark.parametrize("format_", [Format.JSONL, Format.TEXT])
def test_a_reader_decompresses_what_is_compressed(format_: Format) -> None:
    data = gzip.compress(texts("a"))
    (block,) = open_reader(opened(data), file(len(data), Codec.GZIP, format_), Part(0), ReadOptions()).blocks(None)
    assert block.parse().texts == (["a"] if format_ is Format.JSONL else [texts("a").decode()])


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_pyarrow_is_loaded_for_tables_only(name: str) -> None:
    """It takes 60 MB and 0.2 s."""
    program = (
        "import sys, tokenmill.read.corpus as c, tokenmill.storage.memory as m\n"
        "from tokenmill.config import ReadOptions\n"
        f"corpus = c.Corpus(m.MemoryStorage({{'a.jsonl': b'{{}}\\n', {name!r}: b'ARROW1'}}), ReadOptions())\n"
        f"for name in ('a.jsonl', {name!r}):\n"
        "    corpus.inspect(name)\n"
        "    print('pyarrow' in sys.modules)\n"
    )
    done = subprocess.run(python("-c", program), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_how_much_text_a_file_stands_for_is_part_of_the_format() -> None:
    """Other weights are other units, and other units other bytes: these numbers stay as they are."""
    assert {codec: text_bytes(file(1000, codec)) for codec in Codec} == {
        Codec.PLAIN: 1000,
        Codec.GZIP: 3000,
        Codec.ZSTD: 3000,
        Codec.BZIP2: 4000,
        Codec.XZ: 4000,
    }
    assert text_bytes(file(1000, Codec.GZIP, Format.TEXT)) == 3000
    assert text_bytes(file(1000, format_=Format.PARQUET)) == 2000
    assert text_bytes(file(1000, format_=Format.ARROW)) == 1000


NOTHING = MemoryStorage()


@pytest.mark.parametrize(
    ("size", "wanted", "expected"),
    [(100, 2, [0, 50, 100]), (100, 3, [0, 33, 66, 100]), (10, 4, [0, 2, 5, 7, 10])],
    ids=["two", "three", "four"],
)
def test_plain_json_lines_are_cut_anywhere_and_without_a_look(size: int, wanted: int, expected: list[int]) -> None:
    """A line belongs to the part that its first byte lies in."""
    assert cuts(NOTHING, file(size), wanted) == expected


def test_what_is_compressed_and_what_is_one_document_stays_whole() -> None:
    for codec in set(Codec) - {Codec.PLAIN}:
        assert cuts(NOTHING, file(1 << 30, codec), 4) == []
    assert cuts(NOTHING, file(1 << 30, format_=Format.TEXT), 4) == []


@pytest.mark.parametrize(
    ("groups", "wanted", "expected"),
    [
        (1, 5, [0, 1]),
        (2, 2, [0, 1, 2]),
        (2, 5, [0, 1, 2]),
        (10, 3, [0, 3, 6, 10]),
        (10, 10, list(range(11))),
    ],
)
def test_parquet_is_cut_between_row_groups(groups: int, wanted: int, expected: list[int]) -> None:
    data = parquet_file([str(n) for n in range(groups)], row_group_size=1)
    assert cuts(MemoryStorage({"a": data}), file(len(data), format_=Format.PARQUET), wanted) == expected


@pytest.mark.parametrize(("kind", "expected"), [("file", [0, 3, 6, 10]), ("stream", [0, 1])])
def test_an_arrow_file_is_cut_between_record_batches_and_a_stream_is_not(kind: str, expected: list[int]) -> None:
    data = arrow_bytes([{"text": [str(n)]} for n in range(10)], kind)
    assert cuts(MemoryStorage({"a": data}), file(len(data), format_=Format.ARROW), 3) == expected


@pytest.mark.parametrize("files", [{"a": b"PAR1 broken"}, {}], ids=["broken", "gone"])
def test_parquet_whose_row_groups_cannot_be_counted_stays_whole(files: dict[str, bytes]) -> None:
    assert cuts(MemoryStorage(files), file(1 << 30, format_=Format.PARQUET), 4) == [0, 1]
