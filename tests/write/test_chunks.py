"""Chunks: three files that nobody sees before they are whole, byte for byte, wherever they were interrupted."""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest

from tests.support.power_loss import Disk
from tests.write.conftest import checksum, count_open_files, draft_bytes, published
from tokenmill.records import EMPTY, SIDECAR_DTYPE, ChunkEntry, PackedRows, Partial
from tokenmill.storage.base import Storage
from tokenmill.storage.local import LocalDraft, LocalStorage
from tokenmill.storage.memory import MemoryStorage
from tokenmill.write.chunks import ChunkWriter
from tokenmill.write.npy import DraftChangedError, map_array, npy_header

U2 = np.dtype("<u2")
NAME = "00007-0000"
FILES = [f"{NAME}.npy", f"{NAME}.docs.npy", f"{NAME}.ids.jsonl"]


def rows(tokens: list[int], ends: list[int], ids: list[bytes] | None = None, padding: int = 0) -> PackedRows:
    documents = np.zeros(len(ends), SIDECAR_DTYPE)
    documents["end"] = ends
    documents["record"] = range(len(ends))
    return PackedRows(np.array(tokens, U2), documents, ids or [], False, padding)


def chunk_writer(storage: Storage, *, ids: bool = False, begun: Partial = EMPTY) -> ChunkWriter:
    return ChunkWriter(storage, NAME, dtype=U2, seq_len=4, with_ids=ids, begun=begun)


def array(storage: Storage, suffix: str) -> Any:
    return map_array(storage.map(f"chunks/{NAME}{suffix}")).tolist()


def test_a_chunk_is_seen_by_nobody_before_it_is_whole(storage: Storage) -> None:
    writer = chunk_writer(storage, ids=True)
    writer.append(rows([1, 2, 3, 4], [2], [b'"a"']))
    writer.append(rows([5, 6, 7, 8], []))
    writer.append(rows([9, 10, 99, 99], [9, 10], [b"1", b"2"], padding=2))
    assert published(storage) == {}
    assert sorted(name for name, _ in storage.drafts()) == sorted(FILES)
    tokens = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 99, 99]], U2)
    documents = np.array([(2, 0, 0), (9, 0, 0), (10, 1, 0)], SIDECAR_DTYPE)
    assert writer.close() == ChunkEntry(
        name=NAME,
        rows=3,
        tokens=10,
        documents=3,
        xxh3=checksum(tokens.tobytes()),
        docs_xxh3=checksum(documents.tobytes()),
        ids_xxh3=checksum(b'"a"\n1\n2\n'),
    )
    assert list(storage.drafts()) == []
    assert sorted(published(storage)) == sorted(FILES)
    assert array(storage, ".npy") == tokens.tolist()
    assert array(storage, ".docs.npy") == documents.tolist()
    assert storage.read(f"chunks/{NAME}.ids.jsonl") == b'"a"\n1\n2\n'


def test_a_chunk_without_ids_has_two_files_and_no_checksum_of_ids(storage: Storage) -> None:
    writer = chunk_writer(storage)
    writer.append(rows([1, 2, 3, 4], [4], [b"ignored"]))
    entry = writer.close()
    assert (entry.ids_xxh3, entry.tokens, entry.rows, entry.documents) == (None, 4, 1, 1)
    assert sorted(published(storage)) == sorted(FILES[:2])


def test_a_chunk_in_which_no_document_ends_has_no_ids(storage: Storage) -> None:
    writer = chunk_writer(storage, ids=True)
    writer.append(rows([1, 2, 3, 4], []))
    assert writer.close().ids_xxh3 == checksum(b"")
    assert storage.read(f"chunks/{NAME}.ids.jsonl") == b""


@pytest.mark.parametrize("ids", [False, True])
def test_a_chunk_goes_on_where_it_was_forced_to_disk(storage: Storage, ids: bool) -> None:
    pieces = [
        rows([1, 2, 3, 4], [2], [b'"a"']),
        rows([5, 6, 7, 8], [7], [b'"bb"']),
        rows([9, 10, 99, 99], [10], [b'"c"'], padding=2),
    ]
    whole = chunk_writer(storage, ids=ids)
    for each in pieces:
        whole.append(each)
    expected = whole.close()
    files = published(storage)
    first = chunk_writer(storage, ids=ids)
    first.append(pieces[0])
    partial = first.sync()
    assert partial == Partial(tokens=4, documents=1, ids_bytes=4 if ids else 0, xxh3=partial.xxh3)
    first.append(pieces[1])  # which nobody counted
    first.sync()
    first.abort()
    second = chunk_writer(storage, ids=ids, begun=partial)
    for each in pieces[1:]:
        second.append(each)
    synced = second.sync()
    assert synced == Partial(tokens=12, documents=3, ids_bytes=13 if ids else 0, xxh3=synced.xxh3)
    assert synced.xxh3 != partial.xxh3
    assert second.close() == expected
    assert published(storage) == files
    assert list(storage.drafts()) == []


def test_a_chunk_goes_on_though_no_document_ended_in_it_yet(storage: Storage) -> None:
    first = chunk_writer(storage, ids=True)
    first.append(rows([1, 2, 3, 4], []))
    partial = first.sync()
    assert partial == Partial(tokens=4, xxh3=partial.xxh3)
    first.abort()
    left_over = storage.draft(f"chunks/{NAME}.ids.jsonl")
    left_over.write(b"left over")
    left_over.close()
    second = chunk_writer(storage, ids=True, begun=partial)
    second.append(rows([5, 6, 7, 8], [8], [b"1"]))
    entry = second.close()
    assert (entry.rows, entry.documents, entry.ids_xxh3) == (2, 1, checksum(b"1\n"))
    assert array(storage, ".npy") == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert storage.read(f"chunks/{NAME}.ids.jsonl") == b"1\n"


@pytest.mark.parametrize("name", FILES)
def test_a_chunk_whose_drafts_were_changed_is_not_continued(name: str) -> None:
    storage = MemoryStorage()
    first = chunk_writer(storage, ids=True)
    first.append(rows([1, 2, 3, 4], [4], [b"123"]))
    partial = first.sync()
    first.abort()
    size = dict(storage.drafts())[name]
    draft = storage.draft(f"chunks/{name}", size)
    draft.seek(size - 2)
    draft.write(b"7")
    draft.close()
    with pytest.raises(DraftChangedError, match=NAME):
        chunk_writer(storage, ids=True, begun=partial)


# power losses


def after_power_loss(storage: MemoryStorage) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What is published, and the drafts."""
    found = storage.after_power_loss()
    return found.files(), {name: draft_bytes(found, name) for name, _ in found.drafts()}


def test_an_incomplete_chunk_that_was_forced_to_disk_survives_a_power_loss_up_to_there() -> None:
    storage = MemoryStorage()
    writer = chunk_writer(storage, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    assert after_power_loss(storage) == ({}, {})
    partial = writer.sync()
    sidecar = npy_header(SIDECAR_DTYPE, (0,)) + np.array([(4, 0, 0)], SIDECAR_DTYPE).tobytes()
    synced = dict(
        zip(FILES, [npy_header(U2, (0, 4)) + np.arange(1, 5, dtype=U2).tobytes(), sidecar, b"1\n"], strict=True)
    )
    assert after_power_loss(storage) == ({}, synced)
    writer.append(rows([5, 6, 7, 8], [8], [b"22"]))
    assert after_power_loss(storage) == ({}, synced)
    again = storage.after_power_loss()
    resumed = chunk_writer(again, ids=True, begun=partial)
    resumed.append(rows([5, 6, 7, 8], [8], [b"22"]))
    assert resumed.close() == writer.close()
    assert again.files() == storage.files()


def test_a_chunk_that_is_closed_survives_a_power_loss_whole() -> None:
    storage = MemoryStorage()
    writer = chunk_writer(storage, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    writer.close()
    files, _ = after_power_loss(storage)
    assert files == storage.files()
    assert len(files) == 3


def test_a_chunk_is_published_when_all_of_it_is_written_with_its_rows_first() -> None:
    """Whoever finds the last file finds the others, too."""
    asked: list[tuple[str, str]] = []
    storage = MemoryStorage(watch=lambda operation, name: asked.append((operation, name)))
    writer = chunk_writer(storage, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    writer.sync()
    assert [name for operation, name in asked if operation == "sync_draft"] == [f"chunks/{name}" for name in FILES]
    writer.close()
    assert asked[-3:] == [("publish_draft", f"chunks/{name}") for name in FILES]
    assert [operation for operation, _ in asked].count("publish_draft") == 3


def test_a_power_loss_at_any_step_leaves_none_or_all_of_each_file_of_a_chunk(
    disk: LocalStorage, tmp_path: Path
) -> None:
    with closing(Disk(tmp_path)) as power, power.watched():
        writer = chunk_writer(disk, ids=True)
        writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
        writer.sync()
        assert power.saved().below("tmp") == {name: draft_bytes(disk, name) for name in FILES}
        writer.append(rows([5, 6, 7, 8], [8], [b"22"]))
        writer.close()
        whole = published(disk)
        assert power.saved().below("chunks") == whole
    found = [remains.below("chunks") for remains in power.remains]
    assert {} in found
    assert all(data == whole[name] for files in found for name, data in files.items())


# failures


def test_an_aborted_chunk_keeps_its_drafts_for_a_checkpoint(storage: Storage) -> None:
    writer = chunk_writer(storage, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    writer.abort()
    assert published(storage) == {}
    assert sorted(name for name, _ in storage.drafts()) == sorted(FILES)


def test_an_aborted_chunk_takes_no_more(disk: LocalStorage) -> None:
    writer = chunk_writer(disk, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    writer.sync()
    before = dict(disk.drafts())
    writer.append(rows([5, 6, 7, 8], [8], [b"2"]))
    writer.abort()
    assert dict(disk.drafts()) == before
    for use in (writer.sync, writer.close):
        with pytest.raises(ValueError, match="closed"):
            use()


@pytest.mark.parametrize("name", FILES)
def test_a_chunk_that_cannot_be_begun_leaves_no_file_open(disk: LocalStorage, tmp_path: Path, name: str) -> None:
    (tmp_path / "tmp" / name).mkdir()
    before = count_open_files()
    with pytest.raises(IsADirectoryError):
        chunk_writer(disk, ids=True)
    assert count_open_files() == before


def no_room_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the disk be full for one file."""
    right = LocalDraft.write

    def write(self: LocalDraft, data: bytes | memoryview) -> None:
        if self.path.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        right(self, data)

    monkeypatch.setattr(LocalDraft, "write", write)


@pytest.mark.parametrize("name", FILES[:2])
def test_a_chunk_that_finds_no_room_for_a_header_leaves_no_file_open(
    disk: LocalStorage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    no_room_for(name, monkeypatch)
    before = count_open_files()
    with pytest.raises(OSError, match="No space left on device"):
        chunk_writer(disk, ids=True)
    assert count_open_files() == before


@pytest.mark.parametrize("good_reads", [0, 2, 4])
def test_a_chunk_that_cannot_be_continued_leaves_no_file_open(
    disk: LocalStorage, monkeypatch: pytest.MonkeyPatch, good_reads: int
) -> None:
    """Of each file two pieces are read, the second one empty: so the rows fail, the sidecar, or the ids."""
    first = chunk_writer(disk, ids=True)
    first.append(rows([1, 2, 3, 4], [4], [b"1"]))
    partial = first.sync()
    first.abort()
    original, left = LocalDraft.read, good_reads

    def read(self: LocalDraft, size: int) -> bytes:
        nonlocal left
        left -= 1
        return original(self, size) if left >= 0 else fail()

    def fail() -> Never:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalDraft, "read", read)
    before = count_open_files()
    with pytest.raises(OSError, match="Input/output error"):
        chunk_writer(disk, ids=True, begun=partial)
    assert count_open_files() == before


def test_a_chunk_that_finds_no_room_is_aborted_all_the_same(
    disk: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room_for(FILES[2], monkeypatch)
    before = count_open_files()
    writer = chunk_writer(disk, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    with pytest.raises(OSError, match="No space left on device"):
        writer.sync()
    writer.abort()
    assert count_open_files() == before


def test_the_files_of_a_chunk_are_closed_when_it_is(disk: LocalStorage) -> None:
    before = count_open_files()
    writer = chunk_writer(disk, ids=True)
    writer.append(rows([1, 2, 3, 4], [4], [b"1"]))
    writer.close()
    assert count_open_files() == before
    aborted = chunk_writer(disk, ids=True)
    aborted.abort()
    assert count_open_files() == before
