"""What a file is taken for: by its first bytes, by its name where they leave it open, and why it may be no input."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import random
import struct
from pathlib import Path

import pytest
from backports import zstd

from tests.conftest import texts
from tests.support.sources import arrow_bytes, opened, parquet_file
from tokenmill.read.sniff import inspect_file
from tokenmill.read.source import fingerprint_of
from tokenmill.records import Codec, Format, InputFile, Inspected
from tokenmill.storage.local import LocalStorage
from tokenmill.storage.memory import MemoryStorage

LINE = texts("a")
PARQUET = parquet_file(["a"])
STREAM, FEATHER = (arrow_bytes([{"text": ["a"]}], kind) for kind in ("stream", "file"))
NOISE = random.Random(1).randbytes(200_000)


def named_only(value: object) -> str:
    """Ids of parameters that are the same in every process: names, not contents."""
    return "" if isinstance(value, bytes) else str(value)


def inspect(name: str, data: bytes) -> Inspected:
    return inspect_file(MemoryStorage({name: data}), name)


@pytest.mark.parametrize(
    ("name", "data", "format_", "codec"),
    [
        ("a.jsonl", LINE, Format.JSONL, Codec.PLAIN),
        ("a.JSONL", LINE, Format.JSONL, Codec.PLAIN),
        ("a.ndjson", b"broken\n", Format.JSONL, Codec.PLAIN),
        ("a.jsonlines", b"broken\n", Format.JSONL, Codec.PLAIN),
        ("a.json", LINE, Format.JSONL, Codec.PLAIN),
        ("a.jsonl.gz", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP),
        ("a.json.gz", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP),
        ("a.jsonl.zst", zstd.compress(LINE), Format.JSONL, Codec.ZSTD),
        ("a.jsonl.zstd", zstd.compress(LINE), Format.JSONL, Codec.ZSTD),
        ("a.jsonl.bz2", bz2.compress(LINE), Format.JSONL, Codec.BZIP2),
        ("a.jsonl.xz", lzma.compress(LINE), Format.JSONL, Codec.XZ),
        ("a.gz", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP),
        ("a.txt", b"plain text", Format.TEXT, Codec.PLAIN),
        ("a.text", b"plain text", Format.TEXT, Codec.PLAIN),
        ("a.txt.gz", gzip.compress(b"plain text", mtime=0), Format.TEXT, Codec.GZIP),
        ("a.parquet", PARQUET, Format.PARQUET, Codec.PLAIN),
        ("a.pq", PARQUET, Format.PARQUET, Codec.PLAIN),
        ("a", PARQUET, Format.PARQUET, Codec.PLAIN),
        ("a.arrow", FEATHER, Format.ARROW, Codec.PLAIN),
        ("a.arrow", STREAM, Format.ARROW, Codec.PLAIN),
        ("a.arrows", STREAM, Format.ARROW, Codec.PLAIN),
        ("a.feather", FEATHER, Format.ARROW, Codec.PLAIN),
        ("a", FEATHER, Format.ARROW, Codec.PLAIN),
        ("a", STREAM, Format.ARROW, Codec.PLAIN),
        ("cut.arrow", STREAM[:3], Format.ARROW, Codec.PLAIN),
        ("empty.arrow", b"", Format.ARROW, Codec.PLAIN),
        ("broken.jsonl", b"broken\n", Format.JSONL, Codec.PLAIN),
        ("broken.jsonl.gz", gzip.compress(LINE)[:10], Format.JSONL, Codec.GZIP),
        ("broken.parquet", b"broken", Format.PARQUET, Codec.PLAIN),
        ("empty.jsonl", b"", Format.JSONL, Codec.PLAIN),
        ("empty.json", b"", Format.JSONL, Codec.PLAIN),
        ("begins-broken.json", b"broken\n" + LINE, Format.JSONL, Codec.PLAIN),
        ("begins-blank.json", b"\n \n" + LINE, Format.JSONL, Codec.PLAIN),
        ("marked.json", b"\xef\xbb\xbf" + LINE, Format.JSONL, Codec.PLAIN),
        ("no-suffix", LINE, Format.JSONL, Codec.PLAIN),
        ("no-newline", LINE.rstrip(b"\n"), Format.JSONL, Codec.PLAIN),
        ("large.json.bz2", bz2.compress(LINE * 100_000), Format.JSONL, Codec.BZIP2),
        ("long-line.json.zst", zstd.compress(texts(NOISE.hex())), Format.JSONL, Codec.ZSTD),
        ("empty.jsonl.gz", b"", Format.JSONL, Codec.GZIP),
        ("long-line.json", b'{ "text": "' + b"x" * 100_000, Format.JSONL, Codec.PLAIN),
        ("long-line.jsonl", b'{"text": "' + b"x" * 100_000, Format.JSONL, Codec.PLAIN),
        ("a.dat", b"broken\n" + LINE, Format.JSONL, Codec.PLAIN),
    ],
    ids=named_only,
)
def test_a_file_is_what_its_first_bytes_say(name: str, data: bytes, format_: Format, codec: Codec) -> None:
    fingerprint = fingerprint_of(opened(data))
    file = InputFile(name=name, size=len(data), fingerprint=fingerprint, format=format_, codec=codec)
    assert inspect(name, data) == Inspected(file)


@pytest.mark.parametrize("kind", range(16))
def test_zstd_may_begin_with_any_kind_of_skippable_frame(kind: int) -> None:
    """As tools for seeking and signing write it."""
    frame = struct.pack("<II", 0x184D2A50 + kind, 5) + b"?" * 5
    found = inspect("a.jsonl.zst", frame + zstd.compress(LINE))
    assert found.file is not None
    assert (found.file.format, found.file.codec, found.remark) == (Format.JSONL, Codec.ZSTD, None)


@pytest.mark.parametrize(
    ("name", "data", "format_", "codec", "said"),
    [
        ("a.jsonl.zst", LINE, Format.JSONL, Codec.PLAIN, "the name says zstd, the content is plain"),
        ("a.jsonl", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP, "the name says plain, the content is gzip"),
        ("a.jsonl.gz", zstd.compress(LINE), Format.JSONL, Codec.ZSTD, "the name says gzip, the content is zstd"),
        ("a.txt", LINE, Format.JSONL, Codec.PLAIN, "the name says text, the content is jsonl"),
        ("a.jsonl", PARQUET, Format.PARQUET, Codec.PLAIN, "the name says jsonl, the content is parquet"),
        ("a.parquet", FEATHER, Format.ARROW, Codec.PLAIN, "the name says parquet, the content is arrow"),
        ("a.txt", STREAM, Format.ARROW, Codec.PLAIN, "the name says text, the content is arrow"),
        ("a.arrow", LINE, Format.JSONL, Codec.PLAIN, "the name says arrow, the content is jsonl"),
    ],
    ids=named_only,
)
def test_a_name_that_says_otherwise_is_reported(
    name: str, data: bytes, format_: Format, codec: Codec, said: str
) -> None:
    found = inspect(name, data)
    assert found.file is not None
    assert (found.file.format, found.file.codec, found.remark) == (format_, codec, said)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("README.md", b"# read me", "not JSON Lines, Parquet, Arrow or .txt"),
        ("empty", b"", "empty"),
        ("app.log", b'started\n{"text": "a"}\nended\n', "not JSON Lines, Parquet, Arrow or .txt"),
        ("blank.log", b" " * 2_000_000, "not JSON Lines, Parquet, Arrow or .txt"),
        ("settings.conf", b'{\n  "features": {}\n}\n', "JSON, but not one object per line"),
        ("erased.bin", b"\xff" * 4096, "not JSON Lines, Parquet, Arrow or .txt"),
        ("ended.bin", b"\xff\xff\xff\xff\0\0\0\0", "not JSON Lines, Parquet, Arrow or .txt"),
        ("odd.bin", b"\xff\xff\xff\xff\x09\0\0\0" + b"\0" * 99, "not JSON Lines, Parquet, Arrow or .txt"),
        ("Makefile", b"all:\n\tcc x.c\n", "not JSON Lines, Parquet, Arrow or .txt"),
        ("config", b"[core]\nbare = false\n", "JSON, but not one object per line"),
        ("database", b"SQLite format 3\0\n" + NOISE, "binary, in no format that is supported"),
    ],
    ids=named_only,
)
def test_a_file_of_another_kind_is_not_an_input(name: str, data: bytes, why: str) -> None:
    assert inspect(name, data) == Inspected(None, why)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "sub/A.CSV"])
def test_a_table_of_text_looks_like_data_and_the_way_out_is_named(name: str) -> None:
    data = b"id,text\n1,one\n"
    content = gzip.compress(data) if name.endswith("gz") else data
    said = "CSV: convert it to JSON Lines or Parquet"
    assert inspect(name, content) == Inspected(None, said, looks_like_data=True)
    assert inspect("a.csv", b"") == Inspected(None, "empty")
    records = inspect("a.csv", LINE)
    assert records.file is not None  # records are, whatever they are called


LONG = texts("x" * 1000)


@pytest.mark.parametrize(
    "data",
    [LINE, LINE * 2, b"\xef\xbb\xbf" + LINE + b"\n\n" + LINE.strip(), LONG * 100, LONG * 3000],
    ids=["a record", "two", "marked", "more than 64 KiB", "more than is looked at"],
)
def test_a_text_file_of_nothing_but_records_is_json_lines_and_the_remark_says_so(data: bytes) -> None:
    for name, content in (("a.txt", data), ("a.txt.gz", gzip.compress(data))):
        found = inspect(name, content)
        assert found.file is not None
        assert (found.file.format, found.remark) == (Format.JSONL, "the name says text, the content is jsonl")


@pytest.mark.parametrize(
    "data",
    [
        LINE + b"As you see, a record.\n",
        b"A record:\n" + LINE * 99,
        LONG * 100 + b"and so on",
        LONG * 100 + b"and so on\n" + LONG,
        LINE + b'{"text": "a',
        b'{"text": "a',
        b"{}\n[]\n",
        b'[\n{"text": "a"}\n]\n',
        b"",
        b"\n\n",
    ],
)
def test_a_text_file_with_anything_else_in_it_is_one_document(data: bytes) -> None:
    for name, content in (("a.txt", data), ("a.text.gz", gzip.compress(data))):
        found = inspect(name, content)
        assert found.file is not None
        assert (found.file.format, found.remark) == (Format.TEXT, None)


def test_something_that_is_not_a_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would wait for whoever writes to it."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("pipe.jsonl", "folder.jsonl"):
        assert inspect_file(LocalStorage(tmp_path), name) == Inspected(None, "not a regular file")


# files that cannot be read


def unread(name: str, format_: Format, codec: Codec, problem: str) -> Inspected:
    return Inspected(InputFile(name=name, size=0, fingerprint="", format=format_, codec=codec, problem=problem))


@pytest.mark.parametrize(
    ("name", "format_", "codec"),
    [
        ("a.jsonl", Format.JSONL, Codec.PLAIN),
        ("a.txt", Format.TEXT, Codec.PLAIN),
        ("a.parquet", Format.PARQUET, Codec.PLAIN),
        ("a.arrow", Format.ARROW, Codec.PLAIN),
        ("a.json", Format.JSONL, Codec.PLAIN),
        ("a.json.gz", Format.JSONL, Codec.GZIP),
        ("a.zst", Format.JSONL, Codec.ZSTD),
        ("part-00000", Format.JSONL, Codec.PLAIN),
    ],
)
def test_a_file_that_cannot_be_read_is_what_its_name_says(
    tmp_path: Path, name: str, format_: Format, codec: Codec
) -> None:
    (tmp_path / name).symlink_to(tmp_path / "nowhere")
    found = inspect_file(LocalStorage(tmp_path), name)
    assert found == unread(name, format_, codec, "No such file or directory")


@pytest.mark.parametrize("name", ["README.md", "no-suffix", "a.log"])
def test_a_file_that_cannot_be_read_and_is_not_named_like_an_input_is_not_one(name: str) -> None:
    found = inspect_file(MemoryStorage(), name)
    assert found == Inspected(None, "cannot be read, and it is not named like an input: No such file or directory")


def test_a_link_that_leads_to_itself_or_below_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINE)
    (tmp_path / "itself.jsonl").symlink_to(tmp_path / "itself.jsonl")
    (tmp_path / "below.txt").symlink_to(tmp_path / "a.jsonl" / "x")
    inputs = LocalStorage(tmp_path)
    assert inspect_file(inputs, "itself.jsonl") == unread(
        "itself.jsonl", Format.JSONL, Codec.PLAIN, "Too many levels of symbolic links"
    )
    assert inspect_file(inputs, "below.txt") == unread("below.txt", Format.TEXT, Codec.PLAIN, "Not a directory")


@pytest.mark.parametrize(
    ("error", "problem"),
    [(OSError(errno.EIO, "Input/output error"), "Input/output error"), (OSError("odd"), "odd")],
    ids=["of the system", "of a library"],
)
@pytest.mark.parametrize("fails", ["stat", "open", "read"])
def test_a_look_at_a_file_that_fails_is_its_problem(fails: str, error: OSError, problem: str) -> None:
    def watch(operation: str, _: str) -> None:
        if operation == fails:
            raise error

    found = inspect_file(MemoryStorage({"a.jsonl": LINE}, watch), "a.jsonl")
    assert found == unread("a.jsonl", Format.JSONL, Codec.PLAIN, problem)
