"""Text files: one document each; of a broken one what came before the break, and a reject for the break."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, documents, rejects
from tests.support.sources import opened
from tokenmill.config import ReadOptions
from tokenmill.read.decompress import OUTPUT_BYTES
from tokenmill.read.text import TextBlock, TextReader
from tokenmill.records import Codec, Documents, Reason


def read(data: bytes, codec: Codec = Codec.PLAIN, **options: Any) -> tuple[TextBlock, Documents]:
    (block,) = TextReader(opened(data), codec, ReadOptions(**options)).blocks(None)
    assert isinstance(block, TextBlock)
    return block, block.parse()


def broken(text: bytes) -> bytes:
    """All of a text, compressed, with a wrong checksum behind it."""
    data = bytearray(gzip.compress(text))
    data[-8] ^= 1
    return bytes(data)


def test_a_text_file_is_one_document() -> None:
    data = "one\r\nbüro\n".encode()
    block, found = read(data)
    assert (block.offset, block.data, block.consumed, block.broken) == (0, data, len(data), None)
    assert found == Documents(texts=["one\r\nbüro\n"], numbers=[0], document_ids=None, records=1, lines=1)


def test_a_text_file_is_read_from_all_its_pieces() -> None:
    text = "0123456789" * (OUTPUT_BYTES // 2)
    assert read(text.encode())[1].texts == [text]
    assert read(gzip.compress(text.encode()), Codec.GZIP)[1].texts == [text]


def test_a_byte_order_mark_is_not_text() -> None:
    assert read(b"\xef\xbb\xbfone")[1].texts == ["one"]
    assert read(b"\xef\xbb\xbf")[1].empty == 1


def test_an_empty_text_file_is_empty() -> None:
    _, found = read(b"")
    assert found == Documents(texts=[], numbers=[], document_ids=None, records=1, lines=1, empty=1)


def test_the_id_of_a_text_file_is_null() -> None:
    assert read(b"one", id_field="id")[1].document_ids == [b"null"]
    assert read(b"", id_field="id")[1].document_ids == []


def test_a_text_file_that_is_not_utf8_is_rejected_with_the_place() -> None:
    data = b"good so far \xff" + b"x" * 200
    _, found = read(data)
    (reject,) = found.rejects
    assert (found.texts, found.numbers, found.records, found.empty) == ([], [], 1, 0)
    assert (reject.reason, reject.detail) == (Reason.INVALID_UTF8, "invalid start byte at byte 12 of the file")
    assert (reject.record, reject.offset, reject.head, reject.records) == (0, 0, data[:160], 1)


def test_a_text_file_that_ends_inside_a_character_is_rejected() -> None:
    _, found = read("büro ü".encode()[:-1])
    assert (found.texts, [r.reason for r in found.rejects]) == ([], [Reason.INVALID_UTF8])


def test_a_broken_text_file_is_a_document_and_a_reject() -> None:
    _, found = read(broken(b"before the break"), Codec.GZIP, id_field="id")
    assert (found.texts, found.numbers, found.document_ids) == (["before the break"], [0], [b"null"])
    (reject,) = found.rejects
    assert (reject.reason, reject.record, reject.records) == (Reason.CORRUPT_FILE, 0, 1)
    assert (reject.offset, reject.head) == (16, b"before the break")
    assert (found.records, found.lines, found.empty) == (2, 1, 0)


def test_a_break_inside_a_character_costs_that_character() -> None:
    _, found = read(broken("büro ü".encode()[:-1]), Codec.GZIP)
    assert (found.texts, [r.reason for r in found.rejects], found.records) == (["büro "], [Reason.CORRUPT_FILE], 2)


def test_invalid_utf8_before_a_break_is_a_reject_beside_that_of_the_break() -> None:
    _, found = read(broken(b"a\xffb"), Codec.GZIP)
    assert [r.reason for r in found.rejects] == [Reason.CORRUPT_FILE, Reason.INVALID_UTF8]
    assert (found.texts, found.numbers, found.records) == ([], [], 2)


def test_a_text_file_of_which_nothing_can_be_read_is_one_reject() -> None:
    _, found = read(gzip.compress(b"text")[:10], Codec.GZIP)
    assert (found.texts, found.numbers, found.empty, found.records, found.lines) == ([], [], 0, 1, 1)
    assert [r.reason for r in found.rejects] == [Reason.TRUNCATED_FILE]


def test_a_broken_text_file_in_a_job_is_counted_and_listed(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.txt.gz").write_bytes(broken(b"before the break"))
    (inputs / "b.txt").write_text("another")
    ledger = run().ledger
    assert documents(tmp_path / "out") == [b"before the break", b"another"]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["file"], reject["line"], reject["offset"]) == ("a.txt.gz", 1, 16)
    assert (reject["reason"], reject["records"], reject["head"]) == ("corrupt_file", 1, "before the break")
    assert ledger.rejects_by_reason == {"corrupt_file": 1}
    assert (ledger.records, ledger.documents, ledger.rejected) == (3, 2, 1)


@pytest.mark.parametrize("codec", [Codec.PLAIN, Codec.GZIP])
def test_a_text_file_of_exactly_the_largest_size_is_a_document(codec: Codec) -> None:
    data = b"0123456789"
    stored = gzip.compress(data) if codec is Codec.GZIP else data
    _, found = read(stored, codec, max_document_bytes=10)
    assert (found.texts, found.rejects) == (["0123456789"], [])
    block, found = read(stored, codec, max_document_bytes=9)
    (reject,) = found.rejects
    assert (found.texts, found.numbers, found.records, found.lines) == ([], [], 1, 1)
    assert (reject.reason, reject.head, reject.offset) == (Reason.TOO_LARGE, data, 0)
    assert reject.detail == "the file has more than --max-document-bytes 9"
    assert (block.data, block.consumed) == (b"", len(stored))


def test_a_text_file_over_the_largest_size_is_not_read_to_its_end() -> None:
    """So that a decompression bomb costs no more than the limit."""
    data = bytearray(gzip.compress(b"x" * 4 * OUTPUT_BYTES))
    data[-8] ^= 1  # which nobody gets to see
    _, found = read(bytes(data), Codec.GZIP, max_document_bytes=OUTPUT_BYTES)
    assert [(r.reason, r.head) for r in found.rejects] == [(Reason.TOO_LARGE, b"x" * 160)]
