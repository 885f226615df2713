"""Arrays as `.npy` files, byte for byte: whatever pieces they come in, wherever they were interrupted, and mapped."""

from __future__ import annotations

import io
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.write.conftest import checksum, draft_bytes
from tokenmill.records import SIDECAR_DTYPE
from tokenmill.storage.base import Storage, closed_on_failure
from tokenmill.storage.memory import MemoryStorage
from tokenmill.write import npy
from tokenmill.write.npy import BUFFER_BYTES, NpyWriter, hash_rest, map_array, npy_header, npy_size

U2 = np.dtype("<u2")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer of 5 tokens."""
    monkeypatch.setattr(npy, "BUFFER_BYTES", 10)


def saved(array: npt.NDArray[Any]) -> bytes:
    """The file that numpy itself makes of an array."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


# the header


def test_the_header_is_that_of_numpy_and_its_length_never_changes() -> None:
    for shape in ((0,), (7,), (0, 4), (3, 4), (1 << 40, 2048)):
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer, {"descr": np.lib.format.dtype_to_descr(U2), "fortran_order": False, "shape": shape}
        )
        assert npy_header(U2, shape) == buffer.getvalue()
        assert len(npy_header(U2, shape)) == 128
    assert len(npy_header(SIDECAR_DTYPE, (0,))) == len(npy_header(SIDECAR_DTYPE, (10**12,)))


@pytest.mark.parametrize("array", [np.zeros((3, 4), U2), np.zeros(0, U2), np.zeros(5, SIDECAR_DTYPE)], ids=str)
def test_the_size_of_a_file_is_known_before_it_is_written(array: npt.NDArray[Any]) -> None:
    assert npy_size(array.dtype, array.shape) == len(saved(array))


def test_so_many_bytes_of_a_draft_stand_for_so_many_items() -> None:
    assert NpyWriter.size_of(U2, 4, 12) == 128 + 24
    assert NpyWriter.size_of(U2, None, 1) == 128 + 2
    assert NpyWriter.size_of(SIDECAR_DTYPE, None, 3) == len(npy_header(SIDECAR_DTYPE, (0,))) + 60
    assert NpyWriter.size_of(U2, 4, 0) == 0  # not even a header: it begins again


# writing


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("sizes", [[0], [4], [5], [6], [1, 4], [4, 1, 5], [3, 3], [5, 5], [17], [2, 9, 0, 1]], ids=str)
def test_an_array_is_written_whatever_pieces_it_comes_in(storage: Storage, sizes: list[int]) -> None:
    data = np.arange(100, 100 + sum(sizes), dtype=U2)
    writer = NpyWriter(storage.draft("a.npy"), U2)
    for piece in np.split(data, np.cumsum(sizes)[:-1]):
        writer.append(piece)
    assert writer.count == len(data)
    assert writer.complete() == checksum(data.tobytes())
    storage.publish_drafts([writer.draft])
    assert storage.read("a.npy") == saved(data)


def test_an_array_of_rows_says_how_many_there_are(storage: Storage) -> None:
    writer = NpyWriter(storage.draft("a.npy"), U2, 4)
    writer.append(np.arange(12, dtype=U2))
    writer.complete()
    storage.publish_drafts([writer.draft])
    assert storage.read("a.npy") == saved(np.arange(12, dtype=U2).reshape(3, 4))


def test_an_array_says_nothing_of_its_length_before_it_is_complete(storage: Storage) -> None:
    data = np.arange(3, dtype=U2)
    writer = NpyWriter(storage.draft("a.npy"), U2)
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (0,))
    writer.append(data)
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (0,))  # it is in the buffer
    writer.flush()
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (0,)) + data.tobytes()
    writer.flush()
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (0,)) + data.tobytes()
    writer.complete()
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (3,)) + data.tobytes()
    writer.draft.close()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("done", [1, 4, 5, 6, 11])
@pytest.mark.parametrize("behind", [b"", b"garbage that was written and never counted"], ids=["clean", "with more"])
def test_an_array_goes_on_behind_the_items_that_count(storage: Storage, done: int, behind: bytes) -> None:
    data = np.arange(15, dtype=U2)
    first = NpyWriter(storage.draft("a.npy"), U2, 3)
    first.append(data[:done])
    first.flush()
    assert first.count == done
    first.draft.write(behind)
    first.draft.close()
    second = NpyWriter(storage.draft("a.npy", NpyWriter.size_of(U2, 3, done)), U2, 3, done)
    assert second.count == done
    second.append(data[done:])
    assert second.complete() == checksum(data.tobytes())
    storage.publish_drafts([second.draft])
    assert storage.read("a.npy") == saved(data.reshape(5, 3))


def test_an_array_that_starts_over_forgets_what_the_draft_held(storage: Storage) -> None:
    before = storage.draft("a.npy")
    before.write(b"x" * 1000)
    before.close()
    writer = NpyWriter(storage.draft("a.npy"), U2)
    assert writer.complete() == checksum(b"")
    writer.draft.close()
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (0,))


@pytest.mark.usefixtures("small")
def test_an_item_larger_than_the_buffer_is_written_too(storage: Storage) -> None:
    docs = np.array([(1, 2, 3), (4, 5, 6)], SIDECAR_DTYPE)
    writer = NpyWriter(storage.draft("a.npy"), SIDECAR_DTYPE)
    writer.append(docs)
    writer.complete()
    storage.publish_drafts([writer.draft])
    assert storage.read("a.npy") == saved(docs)


def test_a_header_that_changes_its_length_is_never_written_over_the_data(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(storage.draft("a.npy")) as draft:
        writer = NpyWriter(draft, U2)
        writer.append(np.arange(3, dtype=U2))
        monkeypatch.setattr(npy, "npy_header", lambda *_: b"longer" * 100)
        with pytest.raises(AssertionError, match=r"^the \.npy header changed its length$"):
            writer.complete()
    assert draft_bytes(storage, "a.npy") == npy_header(U2, (0,)) + np.arange(3, dtype=U2).tobytes()


def test_the_buffer_is_as_large_as_it_says(storage: Storage) -> None:
    writer = NpyWriter(storage.draft("a.npy"), U2)
    writer.append(np.zeros(BUFFER_BYTES // 2 - 1, U2))
    assert dict(storage.drafts()) == {"a.npy": 128}
    writer.append(np.zeros(2, U2))
    assert dict(storage.drafts()) == {"a.npy": 128 + BUFFER_BYTES}
    writer.draft.close()


def test_a_file_that_fails_as_it_is_begun_is_closed() -> None:
    closed: list[str] = []
    with pytest.raises(KeyboardInterrupt), closed_on_failure(lambda: closed.append("a"), lambda: closed.append("b")):
        raise KeyboardInterrupt
    assert closed == ["a", "b"]
    with closed_on_failure(lambda: closed.append("c")):
        pass
    assert closed == ["a", "b"]


@pytest.mark.usefixtures("small")
def test_a_checksum_is_brought_up_to_the_end_of_a_draft_where_writing_goes_on(storage: Storage) -> None:
    draft = storage.draft("a")
    draft.write(b"head" + b"0123456789" * 3)
    state = xxhash.xxh3_128()
    hash_rest(draft, 4, state)
    assert state.hexdigest() == checksum(b"0123456789" * 3)
    draft.write(b"more")
    draft.close()
    assert draft_bytes(storage, "a") == b"head" + b"0123456789" * 3 + b"more"


# mapping


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=U2).reshape(3, 4),
        np.arange(5, dtype="<u4"),
        np.zeros((0, 4), U2),
        np.zeros(0, SIDECAR_DTYPE),
        np.array([(1, 2, 3), (4, 5, 6)], SIDECAR_DTYPE),
    ],
    ids=["rows", "one row", "no rows", "no documents", "documents"],
)
def test_a_mapped_array_is_the_one_that_was_written(storage: Storage, array: npt.NDArray[Any]) -> None:
    storage.publish("a.npy", [saved(array)])
    found = map_array(storage.map("a.npy"))
    assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())


def test_a_mapped_array_is_not_a_copy_and_cannot_be_written_to() -> None:
    data = bytearray(saved(np.arange(4, dtype=U2)))
    found = map_array(memoryview(data))
    data[-2:] = b"\7\0"
    assert found.tolist() == [0, 1, 2, 7]
    mapped = map_array(MemoryStorage({"a.npy": bytes(data)}).map("a.npy"))
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


ROWS = saved(np.arange(12, dtype=U2).reshape(3, 4))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"not an array",
        ROWS[:100],
        ROWS[:-1],
        ROWS + b"\0",
        ROWS.replace(b"(3, 4)", b"(2, 4)"),
        ROWS.replace(b"(3, 4)", b"(4, 4)"),
        ROWS.replace(b"<u2", b"<u4"),
        ROWS.replace(b"'<u2'", b"'|O' "),
        ROWS.replace(b"(3, 4)", b"(3, 4 "),
        ROWS.replace(b"(3, 4)", b"(3, b)"),
        saved(np.asfortranarray(np.arange(12, dtype=U2).reshape(3, 4))),
        saved(np.array([None, 1], object)),
        b"\x93NUMPY\x02\x00" + ROWS[8:],
        b"\x93NUMPY\x03\x00" + ROWS[8:],
        ROWS[:8] + b"\xff\xff" + ROWS[10:],
    ],
)
def test_what_is_not_an_array_of_ours_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(not an array as tokenmill writes it|its size or layout is not what)"):
        map_array(memoryview(data))


@pytest.mark.filterwarnings("ignore")  # numpy's, of what it finds in such a header
@given(st.integers(0, 127), st.binary(min_size=1, max_size=4))
def test_a_damaged_header_is_refused_or_read_as_one_of_the_same_size(place: int, damage: bytes) -> None:
    data = ROWS[:place] + damage + ROWS[place + len(damage) :]
    try:
        found = map_array(memoryview(data))
    except ValueError:
        return
    assert found.tobytes() == data[len(data) - found.nbytes :]
