"""Lines in a file with a checksum: buffered, and continued where they were interrupted."""

from __future__ import annotations

import pytest

from tests.write.conftest import checksum, draft_bytes
from tokenmill.storage.base import Storage
from tokenmill.write.lines import BUFFER_BYTES, LinesWriter


def test_lines_are_written_as_they_come(storage: Storage) -> None:
    writer = LinesWriter(storage.draft("a.jsonl"))
    for lines in (b"one\n", b"two\nthree\n", b"four\n"):
        writer.append(lines)
    assert writer.size == 19
    assert writer.complete() == checksum(b"one\ntwo\nthree\nfour\n")
    storage.publish_drafts([writer.draft])
    assert storage.read("a.jsonl") == b"one\ntwo\nthree\nfour\n"


def test_no_lines_are_an_empty_file(storage: Storage) -> None:
    writer = LinesWriter(storage.draft("a.jsonl"))
    assert (writer.size, writer.complete()) == (0, checksum(b""))
    storage.publish_drafts([writer.draft])
    assert storage.read("a.jsonl") == b""


def test_lines_are_held_until_there_are_many_or_they_are_wanted(storage: Storage) -> None:
    writer = LinesWriter(storage.draft("a.jsonl"))
    most = b"x" * (BUFFER_BYTES - 2) + b"\n"
    writer.append(most)
    assert (draft_bytes(storage, "a.jsonl"), writer.size) == (b"", len(most))
    writer.append(b"\n")
    assert draft_bytes(storage, "a.jsonl") == most + b"\n"
    writer.append(most)
    assert draft_bytes(storage, "a.jsonl") == most + b"\n"
    for _ in range(2):
        writer.flush()
        assert draft_bytes(storage, "a.jsonl") == most + b"\n" + most
    assert writer.complete() == checksum(most + b"\n" + most)
    writer.draft.close()
    assert draft_bytes(storage, "a.jsonl") == most + b"\n" + most


@pytest.mark.parametrize("behind", [b"", b"never counted\n"], ids=["clean", "with more"])
def test_lines_go_on_behind_those_that_count(storage: Storage, behind: bytes) -> None:
    first = LinesWriter(storage.draft("a.jsonl"))
    first.append(b"one\n")
    first.flush()
    size = first.size
    first.append(behind)
    first.flush()
    first.draft.close()
    second = LinesWriter(storage.draft("a.jsonl", size), size)
    assert second.size == 4
    second.append(b"two\n")
    assert (second.size, second.complete()) == (8, checksum(b"one\ntwo\n"))
    storage.publish_drafts([second.draft])
    assert storage.read("a.jsonl") == b"one\ntwo\n"


def test_lines_that_start_over_forget_what_the_draft_held(storage: Storage) -> None:
    before = storage.draft("a.jsonl")
    before.write(b"left over\n")
    before.close()
    writer = LinesWriter(storage.draft("a.jsonl"))
    writer.append(b"one\n")
    assert writer.complete() == checksum(b"one\n")
    writer.draft.close()
    assert draft_bytes(storage, "a.jsonl") == b"one\n"
