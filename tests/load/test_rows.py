"""Reading back: rows as a sequence, whatever chunks they lie in."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from tests.conftest import EOS, Run, SmallUnits, documents, texts
from tokenmill.errors import OutputError


@pytest.fixture
def output(inputs: Path, tmp_path: Path, run: Run) -> Path:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text number {n}" for n in range(20))))
    run(seq_len=4, sequences_per_chunk=7)
    return tmp_path / "out"


def test_rows_are_a_read_only_sequence(output: Path) -> None:
    rows = tokenmill.open(output)
    every = np.concatenate([np.load(p) for p in sorted((output / "chunks").glob("*[0-9].npy"))])
    assert len(rows) == len(every) > 14
    assert all(np.array_equal(a, b) for a, b in zip(rows, every, strict=True))
    assert np.array_equal(rows[-1], every[-1])
    assert np.array_equal(rows[np.int64(3)], every[3])
    with pytest.raises(ValueError, match="read-only"):
        rows[0][0] = 1
    assert np.array_equal(rows[-len(rows)], every[0])
    for index in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError, match=f"^row {index} of {len(rows)}$"):
            rows[index]


def test_an_output_without_rows_is_an_empty_sequence(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(b"")
    run(seq_len=4)
    rows = tokenmill.open(tmp_path / "out")
    assert (len(rows), list(rows), rows[:].shape, list(rows.documents())) == (0, [], (0, 4), [])
    with pytest.raises(IndexError, match=r"^row 0 of 0$"):
        rows[0]


@pytest.mark.parametrize(
    "which",
    [
        slice(0, 3),
        slice(0, 7),
        slice(0, 8),
        slice(5, 9),
        slice(7, 14),
        slice(None),
        slice(None, None, 3),
        slice(1, 7, 2),
        slice(1, 6, 2),
        slice(9, 2, -2),
        slice(2, 0, -1),
        slice(6, None, -1),
        slice(6, 0, -3),
        slice(13, 6, -2),
        slice(3, 2, -1),
        slice(7, 6, -1),
        slice(4, 4),
        slice(-3, None),
        slice(100, None),
    ],
    ids=str,
)
def test_slices_are_two_dimensional_in_a_chunk_and_across_them(output: Path, which: slice) -> None:
    rows = tokenmill.open(output)
    every = np.concatenate([np.load(p) for p in sorted((output / "chunks").glob("*[0-9].npy"))])
    assert np.array_equal(rows[which], every[which])
    assert rows[which].shape == every[which].shape
    assert rows[which].dtype == rows.dtype


def test_a_slice_inside_a_chunk_is_no_copy(output: Path) -> None:
    rows = tokenmill.open(output)
    assert np.shares_memory(rows[1:6:2], rows[3])
    assert not rows[1:6].flags.writeable


def test_rows_know_their_chunk(output: Path) -> None:
    rows = tokenmill.open(output)
    assert [rows.locate(n) for n in (0, 6, 7, 13, 14)] == [(0, 0), (0, 6), (1, 0), (1, 6), (2, 0)]
    assert [rows.first_row(n) for n in (0, 1, 2)] == [0, 7, 14]
    assert rows.seq_len == 4


def test_rows_are_mapped_only_when_they_are_touched(output: Path) -> None:
    (output / "chunks" / "00000-0001.npy").rename(output / "chunks" / "gone")
    rows = tokenmill.open(output)
    assert rows[6].shape == (4,)
    with pytest.raises(OutputError, match=r"00000-0001\.npy cannot be read"):
        rows[7]
    assert rows[14].shape == (4,)


def test_rows_pickle_for_worker_processes(output: Path) -> None:
    rows = tokenmill.open(output)
    first = rows[0].tolist()
    assert rows.manifest["chunks"]
    copy = pickle.loads(pickle.dumps(rows))
    assert copy[0].tolist() == first
    assert len(copy) == len(rows)
    # Neither what is mapped nor the manifest goes along: both may be large.
    assert pickle.dumps(rows) == pickle.dumps(tokenmill.open(output))
    assert rows[0].tolist() == first


def test_documents_are_put_together_across_chunks(output: Path) -> None:
    assert documents(output) == [f"text number {n}".encode() for n in range(20)]


def test_documents_may_end_with_a_chunk_and_go_through_whole_ones(inputs: Path, tmp_path: Path, run: Run) -> None:
    """Chunks of 8 tokens: one that fills a chunk, one over three chunks that ends with the last, one behind it."""
    values = ["a" * 7, "b" * 23, "c", "d" * 20, "e"]
    (inputs / "a.jsonl").write_bytes(texts(*values))
    run(seq_len=4, sequences_per_chunk=2)
    found = list(tokenmill.open(tmp_path / "out").documents())
    assert [d.tokens.tolist() for d in found] == [[*v.encode(), EOS] for v in values]
    assert [(d.file, d.record) for d in found] == [("a.jsonl", n) for n in range(1, 6)]


def test_documents_of_several_units_keep_their_files_apart(
    inputs: Path, tmp_path: Path, run: Run, small_units: SmallUnits
) -> None:
    small_units(10)
    (inputs / "a.jsonl").write_bytes(texts("a", "aa"))
    (inputs / "b.jsonl").write_bytes(b"\n" + texts("b", "bb"))
    run(seq_len=4, sequences_per_chunk=1)
    rows = tokenmill.open(tmp_path / "out")
    assert len(rows.manifest["units"]) > 2
    assert [(d.file, d.record) for d in rows.documents()] == [
        ("a.jsonl", 1),
        ("a.jsonl", 2),
        ("b.jsonl", 2),
        ("b.jsonl", 3),
    ]
    assert documents(tmp_path / "out") == [b"a", b"aa", b"b", b"bb"]


def test_a_directory_without_a_complete_job_is_refused(output: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"Is this a tokenmill output\?"):
        tokenmill.open(tmp_path)
    (output / "manifest.json").unlink()
    with pytest.raises(OutputError, match="not complete: run it again"):
        tokenmill.open(output)
