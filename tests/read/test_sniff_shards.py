"""Shards whose first bytes tell little: what is plausibly data is read, and what is skipped all the same is marked."""

from __future__ import annotations

import bz2
import gzip
import lzma
import time
from collections.abc import Callable

import pytest
from backports import zstd

from tests.conftest import texts
from tokenmill.read.sniff import MOST_COMPRESSED_BYTES, inspect_file
from tokenmill.read.source import EDGE_BYTES
from tokenmill.records import Codec, Format, Inspected
from tokenmill.storage.memory import MemoryStorage

LINE = texts("a")
TAR = b"a.jsonl".ljust(257, b"\0") + b"ustar" + b"\0" * 250 + LINE * 9
LONG = texts("x" * (EDGE_BYTES + 1))
MARK = b"\xef\xbb\xbf"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": zstd.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}

# Content that was skipped because of how it begins.
SHARDS = {
    "a broken line and a long record": b"broken\n" + LONG,
    "a long broken line": b"x" * 100_000 + b"\n" + LINE,
    "many broken lines": b"broken\n" * 1000 + LINE,
    "blanks": b" " * EDGE_BYTES + b"\n" + LINE,
    "blank lines": b"\n" * 200_000 + LINE,
    "a number of 5,000 digits": b'{"n": ' + b"9" * 5000 + b', "text": "a"}\n',
    "deep nesting": b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"\n" + LINE,
    "deep nesting that does not end": b'{"a":' * 10_000 + b"\n",
    "a record without its end": b'{"text": "a',
    "a record over two lines": b'{"text": "a\nb"}\n' + b"x\n" * 9 + LINE,
    "a brace": b"{\n" + LINE,
    "a bracket": b"[\nx\ny\n" + LINE,
    "not UTF-8": b'{"text": "\xe9"}\n' * 3,
    "zeros": b"\0" * 4096 + LINE * 2,
    "quotes of Python": b"{'text': 'a'}\n" * 3,
}


def inspect(name: str, data: bytes) -> Inspected:
    return inspect_file(MemoryStorage({name: data}), name)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", ["a.json", "part-00000", "part-r-00000", "000000_0", "data.00012", "shard"])
@pytest.mark.parametrize("content", SHARDS)
def test_a_shard_is_read_however_it_begins(content: str, name: str, suffix: str) -> None:
    found = inspect(name + suffix, COMPRESS[suffix](SHARDS[content]))
    assert found.file is not None, found.remark
    assert (found.file.format, found.remark) == (Format.JSONL, None)


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
@pytest.mark.parametrize(
    ("whole", "first"),
    [
        (LINE, 0),
        (b"\n" + LINE, 1),
        (LINE, 1),
        (MARK + LINE, 3),
        (MARK + LINE, 1),
        (MARK + LINE, 4),
        (b" " * 99 + LINE, 99),
    ],
    ids=["nothing", "a newline", "a brace", "a mark", "part of a mark", "a mark and a brace", "blanks"],
)
@pytest.mark.parametrize("name", ["a.json", "part-00000", "shard"])
def test_a_first_member_that_says_nothing_is_not_all_that_is_looked_at(
    name: str, whole: bytes, first: int, suffix: str
) -> None:
    compress = COMPRESS[suffix]
    data = compress(whole[:first]) + compress(b"") * 50 + compress(whole[first:])
    found = inspect(name + suffix, data)
    assert found.file is not None, found.remark
    assert found.file.format is Format.JSONL


@pytest.mark.parametrize("name", ["a.json.gz", "part-00000.gz", "shard.gz"])
@pytest.mark.parametrize("size", [0, 10, 14])
def test_a_compressed_shard_that_ends_before_its_first_byte_is_damaged_data(name: str, size: int) -> None:
    data = gzip.compress(LINE)[:size]
    found = inspect(name, data)
    assert found.file is not None
    assert (found.file.format, found.file.codec) == (Format.JSONL, Codec.GZIP)


@pytest.mark.parametrize("name", ["a.json.gz", "part-00000.gz", "shard.gz"])
@pytest.mark.parametrize("content", [b"br", b"broken\nbroken\n", b"{", b'"x"\n'])
def test_a_compressed_shard_that_is_cut_off_before_it_tells_anything_is_damaged_data(name: str, content: bytes) -> None:
    data = gzip.compress(content, mtime=0)[:-8] + gzip.compress(b"".join(texts(str(n)) for n in range(999)))[:40]
    found = inspect(name, data)
    assert found.file is not None, found.remark
    assert found.file.format is Format.JSONL


def test_members_of_a_byte_each_are_looked_at_in_no_time() -> None:
    data = b"".join(gzip.compress(b"\n", 0, mtime=0) for _ in range(EDGE_BYTES)) + gzip.compress(LINE)
    began = time.process_time()
    assert inspect("shard.gz", data).file is not None
    assert time.process_time() - began < 10


def test_an_empty_part_has_no_records_and_is_not_worth_a_word() -> None:
    found = inspect("part-00005", b"")
    assert found.file is not None
    assert (found.file.format, found.remark) == (Format.JSONL, None)


def test_no_more_than_the_beginning_of_a_file_is_read_to_tell_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where members without content, or a frame to be skipped, go on for gigabytes."""
    frame = b"\x50\x2a\x4d\x18" + (100 << 20).to_bytes(4, "little")
    for name, begin, fill in (("a.json.gz", gzip.compress(b""), gzip.compress(b"")), ("a.json.zst", frame, b"\0")):
        data = begin + fill * (2 * MOST_COMPRESSED_BYTES // len(fill))
        inputs = MemoryStorage({name: data})
        read = 0
        source = inputs.open(name)
        monkeypatch.setattr(inputs, "open", lambda _name, source=source: source)
        take = source.read

        def counting(size: int = -1, take: Callable[[int], bytes] = take) -> bytes:
            nonlocal read
            piece = take(size)
            read += len(piece)
            return piece

        monkeypatch.setattr(source, "read", counting)
        found = inspect_file(inputs, name)
        assert found.file is not None
        assert read <= MOST_COMPRESSED_BYTES + 3 * EDGE_BYTES


UTF_16 = "in UTF-16: convert it to UTF-8, e.g. by iconv -f UTF-16 -t UTF-8"
ONE_VALUE = "JSON, but not one object per line"
DOCUMENTS = {
    "an object over lines": b'{\n  "features": {}\n}\n',
    "an array over lines": b' [\n{"text": "a"},\n{"text": "b"}\n]\n',
    "an array in a line": b'[{"text": "a"}]',
    "a long array": b"[\n" + b'  {"text": "a"},\n' * 200_000,
    "a long array in a line": b"[" + b'{"text": "a"},' * 200_000,
    "an array that is cut off": b'[\n {"text": "a"},\n {"te',
    "objects inside": b'{\n"all": [\n{"n": 1},\n{"n": 2},\n{"n": 3}\n]}\n',
    "objects over lines": b'{\n  "text": "a"\n}\n{\n  "text": "b"\n}\n',
    "a first line that goes on": b'{"all": [\n1,\n2],\n"more": 1}',
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["a.json", "part-00000", "shard"])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_json_that_is_not_one_object_per_line_looks_like_data(document: str, name: str, suffix: str) -> None:
    data = COMPRESS[suffix](DOCUMENTS[document])
    assert inspect(name + suffix, data) == Inspected(None, ONE_VALUE, looks_like_data=True)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("numbers.json", b"1\n2\n", ONE_VALUE),
        ("arrays.json", b'["a"]\n["b"]\n', ONE_VALUE),
        ("a.json", LINE.decode().encode("utf-16"), UTF_16),
        ("shard", LINE.decode().encode("utf-16-le"), UTF_16),
        ("part-00000", LINE.decode().encode("utf-16-be"), UTF_16),
        ("a.jsonl", LINE.decode().encode("utf-16"), UTF_16),
        ("a.txt", "a text".encode("utf-16"), UTF_16),
        ("export", b'{"text": "a"},\n{"text": "b"},\n', ONE_VALUE),
        ("a.json", b"\x93NUMPY\x01\0v\0" + b"\n\0\n" * 99, "binary, in no format that is supported"),
        ("part-00000", b"SEQ\x06\x19org.apache.hadoop" + b"\n" + LINE * 9, "not JSON Lines, Parquet, Arrow or .txt"),
        ("database", b"SQLite format 3\0\n" + b"x\0\n" * 9 + LINE, "binary, in no format that is supported"),
        ("shards.tar", TAR, "not JSON Lines, Parquet, Arrow or .txt"),
        ("shards", TAR, "not JSON Lines, Parquet, Arrow or .txt"),
        ("shards.tar.gz", gzip.compress(TAR), "not JSON Lines, Parquet, Arrow or .txt"),
        ("shard.zst", b"(\xb5", "not JSON Lines, Parquet, Arrow or .txt"),
        ("shard.gz", b"\x00\x01\x02" * 99, "binary, in no format that is supported"),
        ("a.jsonl.lz4", b"\x04\x22\x4d\x18" * 9, "compressed in a way that is not supported"),
        ("part-00000.json.snappy", b"\xff\x06\0\0sNaPpY", "compressed in a way that is not supported"),
        ("part-00000.deflate", b"x\x9c\x03\0", "compressed in a way that is not supported"),
        ("a.jsonl.lzma", b"]\0\0\x80\0", "compressed in a way that is not supported"),
        ("part-00000.snappy", b"\xff\x06\0\0sNaPpY", "compressed in a way that is not supported"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
def test_data_that_cannot_be_read_is_known_as_data(name: str, data: bytes, why: str) -> None:
    assert inspect(name, data) == Inspected(None, why, looks_like_data=True)


@pytest.mark.parametrize("name", ["a.json", "part-00000", "data.00012-of-01024.gz", "part-00000-1f3a-c000", "x.c000"])
def test_text_under_a_name_of_data_is_read_and_its_lines_are_for_the_reader_to_reject(name: str) -> None:
    found = inspect(name, b"no JSON at all\n")
    assert found.file is not None
    assert found.file.format is Format.JSONL


@pytest.mark.parametrize("text", [b"BZh is how I sign.", b"BZh91 of us", b"PAR1 is a code word.", b"ARROW1 hit."])
def test_a_text_may_begin_with_any_word(text: bytes) -> None:
    found = inspect("letter.txt", text)
    assert found.file is not None
    assert (found.file.format, found.file.codec, found.remark) == (Format.TEXT, Codec.PLAIN, None)


def test_a_damaged_bzip2_file_is_known_by_its_name() -> None:
    found = inspect("a.jsonl.bz2", b"BZh9 and then nothing of it")
    assert found.file is not None
    assert found.file.codec is Codec.BZIP2
