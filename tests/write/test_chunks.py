"""Stage 5 by hand: arrays and chunks, byte for byte, whatever the buffer and wherever they were interrupted."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, PackedRows
from tokenmill.storage.local import sync_directory, write_atomically
from tokenmill.write import npy
from tokenmill.write.chunks import EMPTY, ChunkWriter, Partial
from tokenmill.write.npy import BUFFER_BYTES, NpyWriter, closed_on_failure, npy_header

U2 = np.dtype("<u2")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer of 5 tokens."""
    monkeypatch.setattr(npy, "BUFFER_BYTES", 10)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the files that were forced to disk, -1 for directories."""
    sizes: list[int] = []
    original = os.fsync

    def fsync(handle: int) -> None:
        original(handle)
        status = os.fstat(handle)
        sizes.append(-1 if os.path.isdir(f"/proc/self/fd/{handle}") else status.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    return sizes


def checksum(array: Any) -> str:
    return xxhash.xxh3_128_hexdigest(array.tobytes())


# Arrays


def test_the_header_is_that_of_numpy_and_its_length_never_changes() -> None:
    for shape in ((0,), (7,), (0, 4), (3, 4), (1 << 40, 2048)):
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer, {"descr": np.lib.format.dtype_to_descr(U2), "fortran_order": False, "shape": shape}
        )
        assert npy_header(U2, shape) == buffer.getvalue()
        assert len(npy_header(U2, shape)) == 128
    assert len(npy_header(SIDECAR_DTYPE, (0,))) == len(npy_header(SIDECAR_DTYPE, (10**12,)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("sizes", [[0], [4], [5], [6], [1, 4], [4, 1, 5], [3, 3], [5, 5], [17], [2, 9, 0, 1]], ids=str)
def test_an_array_is_written_whatever_pieces_it_comes_in(tmp_path: Path, sizes: list[int]) -> None:
    path = tmp_path / "a.npy"
    data = np.arange(100, 100 + sum(sizes), dtype=U2)
    writer = NpyWriter(path, U2)
    for piece in np.split(data, np.cumsum(sizes)[:-1]):
        writer.append(piece)
    assert writer.count == len(data)
    assert writer.close() == checksum(data)
    found = np.load(path)
    assert found.dtype == U2
    assert found.tolist() == data.tolist()
    np.save(tmp_path / "numpy.npy", data)
    assert path.read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_an_array_of_rows_says_how_many_there_are(tmp_path: Path) -> None:
    writer = NpyWriter(tmp_path / "a.npy", U2, 4)
    writer.append(np.arange(12, dtype=U2))
    writer.close()
    assert np.load(tmp_path / "a.npy").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_an_array_says_nothing_of_its_length_before_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    writer = NpyWriter(path, U2)
    assert path.read_bytes() == npy_header(U2, (0,))
    writer.append(np.arange(3, dtype=U2))
    assert path.read_bytes() == npy_header(U2, (0,))  # it is in the buffer
    assert writer.sync() == 3
    assert path.read_bytes() == npy_header(U2, (0,)) + np.arange(3, dtype=U2).tobytes()
    writer.close()
    assert path.read_bytes() == npy_header(U2, (3,)) + np.arange(3, dtype=U2).tobytes()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("done", [1, 4, 5, 6, 11])
@pytest.mark.parametrize("behind", [b"", b"garbage that was written and never counted"], ids=["clean", "with more"])
def test_an_array_goes_on_behind_the_items_that_count(tmp_path: Path, done: int, behind: bytes) -> None:
    path = tmp_path / "a.npy"
    data = np.arange(15, dtype=U2)
    first = NpyWriter(path, U2, 3)
    first.append(data[:done])
    assert first.sync() == done
    first.abort()
    with path.open("ab") as file:
        file.write(behind)
    second = NpyWriter(path, U2, 3, done)
    assert second.count == done
    second.append(data[done:])
    assert second.close() == checksum(data)
    assert np.load(path).tolist() == data.reshape(5, 3).tolist()
    assert path.stat().st_size == 128 + data.nbytes


def test_an_array_that_begins_anew_forgets_what_the_file_held(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"x" * 1000)
    NpyWriter(path, U2).close()
    assert path.read_bytes() == npy_header(U2, (0,))


def test_an_array_is_forced_to_disk_whole(tmp_path: Path, synced: list[int]) -> None:
    writer = NpyWriter(tmp_path / "a.npy", U2)
    writer.append(np.arange(3, dtype=U2))
    writer.sync()
    assert synced == [128 + 6]
    writer.append(np.arange(2, dtype=U2))
    writer.close()
    assert synced == [128 + 6, 128 + 10]


def test_aborting_leaves_what_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    writer = NpyWriter(path, U2)
    writer.append(np.arange(3, dtype=U2))
    writer.sync()
    writer.append(np.arange(3, dtype=U2))
    writer.abort()
    assert path.stat().st_size == 128 + 6
    with pytest.raises(ValueError, match="closed"):
        writer.sync()


@pytest.mark.usefixtures("small")
def test_an_item_larger_than_the_buffer_is_written_too(tmp_path: Path) -> None:
    writer = NpyWriter(tmp_path / "a.npy", SIDECAR_DTYPE)
    docs = np.array([(1, 2, 3), (4, 5, 6)], SIDECAR_DTYPE)
    writer.append(docs)
    writer.close()
    assert np.load(tmp_path / "a.npy").tolist() == [(1, 2, 3), (4, 5, 6)]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes as many bytes as it likes: here three, and now and then none."""

    class Slow(io.FileIO):
        calls = 0

        def write(self, data: Any, /) -> int:
            self.calls += 1
            return 0 if self.calls % 3 == 0 else super().write(memoryview(data)[:3])

    monkeypatch.setattr(Path, "open", lambda self, _mode, **_options: Slow(self, "w"))
    writer = NpyWriter(tmp_path / "a.npy", U2)
    writer.append(np.arange(50, dtype=U2))
    writer.close()
    monkeypatch.undo()
    assert np.load(tmp_path / "a.npy").tolist() == list(range(50))


def test_a_file_that_fails_as_it_is_begun_is_closed() -> None:
    closed: list[str] = []
    with pytest.raises(KeyboardInterrupt), closed_on_failure(lambda: closed.append("a"), lambda: closed.append("b")):
        raise KeyboardInterrupt
    assert closed == ["a", "b"]
    with closed_on_failure(lambda: closed.append("c")):
        pass
    assert closed == ["a", "b"]


def test_an_array_that_finds_no_room_for_its_header_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a.npy").symlink_to("/dev/full")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No space left on device"):
        NpyWriter(tmp_path / "a.npy", U2)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_header_that_changes_its_length_is_never_written_over_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = NpyWriter(tmp_path / "a.npy", U2)
    writer.append(np.arange(3, dtype=U2))
    monkeypatch.setattr(npy, "npy_header", lambda *_: b"longer" * 100)
    with pytest.raises(AssertionError, match=r"^the \.npy header changed its length$"):
        writer.close()
    writer.abort()
    assert (tmp_path / "a.npy").read_bytes() == npy_header(U2, (0,)) + np.arange(3, dtype=U2).tobytes()


def test_the_buffer_is_as_large_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    writer = NpyWriter(path, U2)
    writer.append(np.zeros(BUFFER_BYTES // 2 - 1, U2))
    assert path.stat().st_size == 128
    writer.append(np.zeros(2, U2))
    assert path.stat().st_size == 128 + BUFFER_BYTES
    writer.abort()


# Chunks


def piece(tokens: list[int], ends: list[int], ids: list[bytes] | None = None, padding: int = 0) -> PackedRows:
    docs = np.zeros(len(ends), SIDECAR_DTYPE)
    docs["end"] = ends
    docs["record"] = range(len(ends))
    return PackedRows(np.array(tokens, U2), docs, ids or [], False, padding)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "chunks").mkdir()
    (tmp_path / "tmp").mkdir()
    return tmp_path / "chunks", tmp_path / "tmp"


def chunk_writer(folders: tuple[Path, Path], *, ids: bool = False, begun: Partial = EMPTY) -> ChunkWriter:
    return ChunkWriter("00007-0000", *folders, U2, 4, ids, begun)


def test_a_chunk_is_written_under_a_temporary_name_and_moved_when_it_is_whole(folders: tuple[Path, Path]) -> None:
    chunks, temporary = folders
    writer = chunk_writer(folders, ids=True)
    writer.append(piece([1, 2, 3, 4], [2], [b'"a"']))
    writer.append(piece([5, 6, 7, 8], []))
    writer.append(piece([9, 10, 99, 99], [9, 10], [b"1", b"2"], padding=2))
    assert list(chunks.iterdir()) == []
    assert len(list(temporary.iterdir())) == 3
    rows = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 99, 99]], U2)
    docs = np.array([(2, 0, 0), (9, 0, 0), (10, 1, 0)], SIDECAR_DTYPE)
    assert writer.close() == ChunkEntry(
        name="00007-0000",
        rows=3,
        tokens=10,
        documents=3,
        xxh3=checksum(rows),
        docs_xxh3=checksum(docs),
        ids_xxh3=xxhash.xxh3_128_hexdigest(b'"a"\n1\n2\n'),
    )
    assert list(temporary.iterdir()) == []
    assert sorted(p.name for p in chunks.iterdir()) == ["00007-0000.docs.npy", "00007-0000.ids.jsonl", "00007-0000.npy"]
    assert np.array_equal(np.load(chunks / "00007-0000.npy"), rows)
    assert np.array_equal(np.load(chunks / "00007-0000.docs.npy"), docs)
    assert (chunks / "00007-0000.ids.jsonl").read_bytes() == b'"a"\n1\n2\n'


def test_a_chunk_without_ids_has_two_files_and_no_checksum_of_ids(folders: tuple[Path, Path]) -> None:
    writer = chunk_writer(folders)
    writer.append(piece([1, 2, 3, 4], [4], [b"ignored"]))
    entry = writer.close()
    assert (entry.ids_xxh3, entry.tokens, entry.rows, entry.documents) == (None, 4, 1, 1)
    assert sorted(p.name for p in folders[0].iterdir()) == ["00007-0000.docs.npy", "00007-0000.npy"]


def test_a_chunk_in_which_no_document_ends_has_no_ids(folders: tuple[Path, Path]) -> None:
    writer = chunk_writer(folders, ids=True)
    writer.append(piece([1, 2, 3, 4], []))
    assert writer.close().ids_xxh3 == xxhash.xxh3_128_hexdigest(b"")
    assert (folders[0] / "00007-0000.ids.jsonl").read_bytes() == b""


@pytest.mark.parametrize("ids", [False, True])
def test_a_chunk_goes_on_where_it_was_forced_to_disk(folders: tuple[Path, Path], ids: bool) -> None:
    pieces = [
        piece([1, 2, 3, 4], [2], [b'"a"']),
        piece([5, 6, 7, 8], [7], [b'"bb"']),
        piece([9, 10, 99, 99], [10], [b'"c"'], padding=2),
    ]
    whole = chunk_writer(folders, ids=ids)
    for each in pieces:
        whole.append(each)
    wanted = whole.close()
    files = {p.name: p.read_bytes() for p in folders[0].iterdir()}
    first = chunk_writer(folders, ids=ids)
    first.append(pieces[0])
    partial = first.sync()
    assert partial == Partial(tokens=4, documents=1, ids_bytes=4 if ids else 0)
    first.append(pieces[1])  # which nobody counted
    first.sync()
    first.abort()
    second = chunk_writer(folders, ids=ids, begun=partial)
    for each in pieces[1:]:
        second.append(each)
    assert second.sync() == Partial(tokens=12, documents=3, ids_bytes=13 if ids else 0)
    assert second.close() == wanted
    assert {p.name: p.read_bytes() for p in folders[0].iterdir()} == files
    assert list(folders[1].iterdir()) == []


def test_a_chunk_goes_on_though_no_document_ended_in_it_yet(folders: tuple[Path, Path]) -> None:
    first = chunk_writer(folders, ids=True)
    first.append(piece([1, 2, 3, 4], []))
    partial = first.sync()
    assert partial == Partial(tokens=4)
    first.abort()
    (folders[1] / "00007-0000.ids.jsonl").write_bytes(b"left over")
    second = chunk_writer(folders, ids=True, begun=partial)
    second.append(piece([5, 6, 7, 8], [8], [b"1"]))
    entry = second.close()
    assert (entry.rows, entry.documents, entry.ids_xxh3) == (2, 1, xxhash.xxh3_128_hexdigest(b"1\n"))
    assert np.load(folders[0] / "00007-0000.npy").tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert (folders[0] / "00007-0000.ids.jsonl").read_bytes() == b"1\n"


def test_a_chunk_is_forced_to_disk_before_it_gets_its_name_and_its_name_after(
    folders: tuple[Path, Path], synced: list[int]
) -> None:
    writer = chunk_writer(folders, ids=True)
    writer.append(piece([1, 2, 3, 4], [4], [b"1"]))
    writer.sync()
    sidecar = len(npy_header(SIDECAR_DTYPE, (0,))) + SIDECAR_DTYPE.itemsize
    assert synced == [2, 128 + 8, sidecar, -1]  # and their names in tmp/, once
    synced.clear()
    writer.sync()
    assert synced == [2, 128 + 8, sidecar]
    synced.clear()
    writer.append(piece([5, 6, 7, 8], [8], [b"22"]))
    writer.close()
    assert synced == [128 + 16, sidecar + SIDECAR_DTYPE.itemsize, 5, -1]


def test_an_aborted_chunk_keeps_its_files_for_a_checkpoint(folders: tuple[Path, Path]) -> None:
    writer = chunk_writer(folders, ids=True)
    writer.append(piece([1, 2, 3, 4], [4], [b"1"]))
    writer.abort()
    assert list(folders[0].iterdir()) == []
    assert len(list(folders[1].iterdir())) == 3
    with pytest.raises(ValueError, match="closed"):
        writer.append(piece([1, 2, 3, 4], [4], [b"1"]))


@pytest.mark.parametrize("suffix", [".npy", ".docs.npy", ".ids.jsonl"])
def test_a_chunk_that_cannot_be_begun_leaves_no_file_open(folders: tuple[Path, Path], suffix: str) -> None:
    (folders[1] / f"00007-0000{suffix}").mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(IsADirectoryError):
        chunk_writer(folders, ids=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_ids_that_cannot_be_cut_back_are_an_error_and_no_file_stays_open(folders: tuple[Path, Path]) -> None:
    (folders[1] / "00007-0000.ids.jsonl").symlink_to("/dev/full")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Invalid argument"):
        chunk_writer(folders, ids=True)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_an_aborted_chunk_may_lose_what_there_is_no_room_for(folders: tuple[Path, Path]) -> None:
    writer = chunk_writer(folders, ids=True)
    assert writer._ids is not None
    writer._ids.close()
    writer._ids = ids = open("/dev/full", "wb")  # noqa: SIM115 - it is the chunk's from here on
    writer.append(piece([1, 2, 3, 4], [4], [b"1"]))
    writer.abort()
    assert ids.closed


def test_the_files_of_a_chunk_are_closed_when_it_is(folders: tuple[Path, Path]) -> None:
    before = os.listdir("/proc/self/fd")
    writer = chunk_writer(folders, ids=True)
    writer.append(piece([1, 2, 3, 4], [4], [b"1"]))
    writer.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    aborted = chunk_writer(folders, ids=True)
    aborted.abort()
    assert len(os.listdir("/proc/self/fd")) == len(before)


# Small files


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, synced: list[int]) -> None:
    (tmp_path / "tmp").mkdir()
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def pieces() -> Any:
        yield b"ne"
        assert path.read_bytes() == b"old"
        assert (tmp_path / "tmp" / "a.json").exists()
        yield b"w"

    write_atomically(path, pieces(), tmp_path / "tmp")
    assert path.read_bytes() == b"new"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert synced == [3, -1]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    def pieces() -> Any:
        yield b"ne"
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_atomically(path, pieces(), tmp_path / "tmp")
    assert path.read_bytes() == b"old"


def test_a_directory_is_forced_to_disk_and_closed(tmp_path: Path, synced: list[int]) -> None:
    before = os.listdir("/proc/self/fd")
    sync_directory(tmp_path)
    assert synced == [-1]
    assert len(os.listdir("/proc/self/fd")) == len(before)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "file")
