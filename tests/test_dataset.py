"""Reading back: rows as a sequence, whatever chunks they lie in."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from tests.conftest import Run, documents, texts
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
    for index in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError):
            rows[index]


@pytest.mark.parametrize(
    "which",
    [slice(0, 3), slice(5, 9), slice(None), slice(None, None, 3), slice(9, 2, -2), slice(4, 4), slice(-3, None)],
)
def test_slices_are_two_dimensional_also_across_chunks(output: Path, which: slice) -> None:
    rows = tokenmill.open(output)
    every = np.stack(list(rows))
    assert np.array_equal(rows[which], every[which])
    assert rows[which].dtype == rows.dtype


def test_rows_pickle_for_worker_processes(output: Path) -> None:
    rows = tokenmill.open(output)
    first = rows[0].tolist()
    copy = pickle.loads(pickle.dumps(rows))
    assert copy[0].tolist() == first
    assert len(pickle.dumps(rows)) < 20_000


def test_documents_are_put_together_across_chunks(output: Path) -> None:
    assert documents(output) == [f"text number {n}".encode() for n in range(20)]


def test_a_directory_without_a_complete_job_is_refused(output: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="Is this an output of tokenmill"):
        tokenmill.open(tmp_path)
    (output / "manifest.json").unlink()
    with pytest.raises(OutputError, match="not complete: run it again"):
        tokenmill.open(output)
