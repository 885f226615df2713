"""Reading back: rows as a sequence, whatever chunks they lie in."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from tests.conftest import EOS, PAD, Run, SmallUnits, documents, jsonl, texts
from tokenmill.errors import InputError, OutputError


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
        said = f"^there is no row {index}: the output has {len(rows)} rows, 0 to {len(rows) - 1}$"
        with pytest.raises(IndexError, match=said):
            rows[index]
        with pytest.raises(IndexError, match=said):
            rows[[0, index]]
        with pytest.raises(IndexError, match=said):
            rows.boundaries(index)


def test_an_output_without_rows_is_an_empty_sequence(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(b"")
    run(seq_len=4)
    rows = tokenmill.open(tmp_path / "out")
    assert (len(rows), list(rows), rows[:].shape, list(rows.documents())) == (0, [], (0, 4), [])
    with pytest.raises(IndexError, match=r"^there is no row 0: the output has no rows$"):
        rows[0]
    assert rows[[]].shape == (0, 4)
    assert repr(rows) == f"<tokenmill.Rows of '{tmp_path / 'out'}': 0 rows of 4 tokens, uint16>"


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
    assert rows.shape == every.shape == rows[:].shape


@pytest.mark.parametrize(
    "which",
    [
        [0],
        [3, 1, -1, 3],
        [],
        range(6, 9),
        np.array([8, 0], np.uint8),
        np.array([], np.int64),
        np.arange(73) % 3 == 0,
        np.zeros(73, bool),
    ],
    ids=["one", "some", "none", "range", "bytes", "no numbers", "truth values", "none of them"],
)
def test_rows_are_chosen_by_lists_and_arrays(output: Path, which: Any) -> None:
    rows = tokenmill.open(output)
    every = np.concatenate([np.load(p) for p in sorted((output / "chunks").glob("*[0-9].npy"))])
    assert len(every) == 73
    wanted = every[np.asarray(which, None if len(which) else np.int64)] if len(which) != 73 else every[which]
    assert np.array_equal(rows[which], wanted)
    assert rows[which].shape == wanted.shape
    assert rows[which].dtype == rows.dtype


@pytest.mark.parametrize("which", ["0", (0, 1), [1.0], [[1]], None, 1.0, np.array([True, False])], ids=repr)
def test_what_is_no_number_of_a_row_is_refused(output: Path, which: Any) -> None:
    with pytest.raises(TypeError, match="rows are chosen by a number, a slice or a list of numbers, not by "):
        tokenmill.open(output)[which]


def test_rows_say_what_they_are(output: Path) -> None:
    assert repr(tokenmill.open(output)) == f"<tokenmill.Rows of '{output}': 73 rows of 4 tokens, uint16>"


def test_boundaries_are_where_documents_begin_and_the_last_one_ends(inputs: Path, tmp_path: Path, run: Run) -> None:
    """Rows of 4 in chunks of 2, with | for EOS: aaa| bbbb | bbbb bbb| | c|dd d|e| | f|"""
    (inputs / "a.jsonl").write_bytes(texts("aaa", "b" * 11, "c", "ddd", "e", "f"))
    run(seq_len=4, sequences_per_chunk=2)
    rows = tokenmill.open(tmp_path / "out")
    expected = [[0, 4], [0, 4], [0, 4], [0, 4], [0, 2, 4], [0, 2, 4], [0, 2]]
    assert [rows.boundaries(n).tolist() for n in range(len(rows))] == expected
    assert rows.boundaries(-1).tolist() == [0, 2]
    assert rows.boundaries(np.int64(4)).dtype == np.int32
    pickle.loads(pickle.dumps(rows)).boundaries(0)


def test_boundaries_cut_every_row_into_its_documents(output: Path) -> None:
    rows = tokenmill.open(output)
    pieces = []
    for number, row in enumerate(rows):
        b = rows.boundaries(number)
        pieces += [row[start:end].tolist() for start, end in pairwise(b.tolist())]
        assert (row[b[-1] :] == PAD).all()
    joined = [token for piece in pieces for token in piece]
    assert joined == [token for d in rows.documents() for token in d.tokens.tolist()]
    assert all(EOS not in piece[:-1] for piece in pieces)


def test_documents_have_their_own_ids(inputs: Path, tmp_path: Path, run: Run, small_units: SmallUnits) -> None:
    small_units(10)
    values = ["x", 17, None, {"a": [1]}, "é", "9" * 5000]
    (inputs / "a.jsonl").write_bytes(jsonl(*({"text": "t" * 5, "id": value} for value in values)))
    (inputs / "b.jsonl").write_bytes(b'{"text": "b", "id": ' + b"9" * 5000 + b"}\n")
    run(seq_len=4, sequences_per_chunk=1, id_field="id")
    rows = tokenmill.open(tmp_path / "out")
    assert [d.id for d in rows.documents()] == [*values, "9" * 5000]
    (tmp_path / "out" / "chunks" / "00000-0001.ids.jsonl").write_bytes(b'"x"\n"y"\n"z"\n')
    with pytest.raises(OutputError, match=r"00000-0001\.ids\.jsonl is damaged: it must have \d+ lines"):
        list(rows.documents())
    (tmp_path / "out" / "chunks" / "00000-0001.ids.jsonl").unlink()
    with pytest.raises(OutputError, match=r"00000-0001\.ids\.jsonl cannot be read: No such file"):
        list(rows.documents())


def test_documents_of_a_job_without_ids_have_none(output: Path) -> None:
    assert {d.id for d in tokenmill.open(output).documents()} == {None}


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
    with pytest.raises(InputError, match="is not a tokenmill output"):
        tokenmill.open(tmp_path)
    (output / "manifest.json").unlink()
    with pytest.raises(OutputError, match=r"is not complete: it has no manifest\.json\. Run the job again"):
        tokenmill.open(output)
