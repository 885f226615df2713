"""Stage 4 by hand: tiny arrays in, rows and ends of documents out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.concat import Packer, Records, frame
from tokenmill.records import SIDECAR_DTYPE, PackedRows, TokenBatch

U2 = np.dtype("<u2")


def batch(*documents: list[int]) -> TokenBatch:
    offsets = np.cumsum([0, *map(len, documents)])
    return TokenBatch(np.array([i for d in documents for i in d], np.uint32), offsets.astype(np.int64))


def numbers(start: int, stop: int) -> Records:
    return np.arange(start, stop, dtype=np.int64)


def pack(packer: Packer, *documents: list[int]) -> list[PackedRows]:
    return list(packer.add(batch(*documents), 0, numbers(0, len(documents)), []))


def summary(pieces: list[PackedRows]) -> list[tuple[list[int], list[int], bool]]:
    return [(p.token_ids.tolist(), p.documents["end"].tolist(), p.full) for p in pieces]


@pytest.mark.parametrize(
    ("eos", "bos", "tokens", "ends"),
    [
        (None, None, [7, 7, 8], [2, 3]),
        (0, None, [7, 7, 0, 8, 0], [3, 5]),
        (None, 1, [1, 7, 7, 1, 8], [3, 5]),
        (0, 1, [1, 7, 7, 0, 1, 8, 0], [4, 7]),
    ],
)
def test_frame_puts_separators_around_documents(
    eos: int | None, bos: int | None, tokens: list[int], ends: list[int]
) -> None:
    framed, framed_ends = frame(batch([7, 7], [8]), U2, eos, bos)
    assert framed.tolist() == tokens
    assert framed_ends.tolist() == ends
    assert framed.dtype == U2


def test_packer_cuts_the_stream_into_rows_and_keeps_the_incomplete_one() -> None:
    packer = Packer(seq_len=4, rows_per_chunk=100, dtype=U2, eos=0)
    assert summary(pack(packer, [7, 7, 7], [8], [9, 9])) == [([7, 7, 7, 0, 8, 0, 9, 9], [4, 6], False)]
    assert packer.carried == 1
    assert summary(pack(packer, [5, 5, 5, 5])) == [([0, 5, 5, 5], [9], False)]
    assert packer.carried == 2


def test_packer_pads_the_last_row_and_keeps_its_documents() -> None:
    packer = Packer(seq_len=4, rows_per_chunk=100, dtype=U2, eos=0)
    assert pack(packer, [7, 7]) == []
    (last,) = packer.pad(99)
    assert (last.token_ids.tolist(), last.documents["end"].tolist(), last.padding) == ([7, 7, 0, 99], [3], 1)


def test_packer_pads_nothing_when_the_last_row_is_full() -> None:
    packer = Packer(seq_len=4, rows_per_chunk=100, dtype=U2, eos=0)
    pack(packer, [7, 7, 7])
    assert list(packer.pad(99)) == []
    assert packer.drop() == (0, 0)


def test_packer_tells_what_dropping_the_last_row_loses() -> None:
    packer = Packer(seq_len=4, rows_per_chunk=100, dtype=U2, eos=0)
    pack(packer, [7, 7, 7, 7], [8])
    assert packer.drop() == (3, 2)


def test_packer_ends_a_chunk_in_the_middle_of_a_document() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=2, dtype=U2, eos=0)
    assert summary(pack(packer, [1], [2, 2, 2, 2, 2], [3])) == [
        ([1, 0, 2, 2], [2], True),
        ([2, 2, 2, 0], [4], True),
        ([3, 0], [2], False),
    ]


def test_packer_puts_a_document_that_ends_with_the_chunk_into_that_chunk() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=1, dtype=U2, eos=0)
    assert summary(pack(packer, [1], [2])) == [([1, 0], [2], True), ([2, 0], [2], True)]


def test_packer_gives_ids_to_the_chunk_in_which_the_document_ends() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=1, dtype=U2, eos=0)
    pieces = packer.add(batch([1], [2, 2], [3]), 0, numbers(0, 3), [b"a", b"b", b"c"])
    assert [p.document_ids for p in pieces] == [[b"a"], [], [b"b"]]
    (last,) = packer.pad(9)
    assert last.document_ids == [b"c"]


@given(
    st.lists(st.lists(st.lists(st.integers(1, 500), min_size=1, max_size=9), max_size=5), max_size=8),
    st.integers(1, 7),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_unpacking_what_was_packed_gives_the_documents_back(
    batches: list[list[list[int]]], seq_len: int, rows: int, eos: bool, bos: bool
) -> None:
    packer = Packer(seq_len=seq_len, rows_per_chunk=rows, dtype=U2, eos=0 if eos else None, bos=501 if bos else None)
    chunks: list[tuple[list[int], list[int]]] = [([], [])]
    pieces: list[PackedRows] = []
    records = 0
    for b in batches:
        ids = [b"%d" % n for n in range(records, records + len(b))]
        pieces += packer.add(batch(*b), 0, numbers(records, records + len(b)), ids)
        records += len(b)
    pieces += packer.pad(999)
    assert [r for p in pieces for r in p.documents["record"].tolist()] == list(range(records))
    assert [i for p in pieces for i in p.document_ids] == [b"%d" % n for n in range(records)]
    assert all(len(p.document_ids) == len(p.documents) for p in pieces)
    assert sum(p.padding for p in pieces) == -sum(len(p.token_ids) - p.padding for p in pieces) % seq_len
    for piece in pieces:
        tokens, ends = chunks[-1]
        tokens += piece.token_ids.tolist()
        ends += piece.documents["end"].tolist()
        assert len(piece.token_ids) % seq_len == 0
        assert len(tokens) <= seq_len * rows
        assert piece.full == (len(tokens) == seq_len * rows)
        if piece.full:
            chunks.append(([], []))
    expected = [([501] if bos else []) + d + ([0] if eos else []) for b in batches for d in b]
    assert unpack(chunks) == expected


def unpack(chunks: list[tuple[list[int], list[int]]]) -> list[list[int]]:
    """The plain way back: documents lie one after another, also across chunks."""
    found = []
    carry: list[int] = []
    for tokens, ends in chunks:
        start = 0
        for end in ends:
            found.append(carry + tokens[start:end])
            carry, start = [], end
        carry += tokens[start:]
    return found


@given(
    st.lists(st.lists(st.integers(1, 500), min_size=1, max_size=9), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.data(),
)
def test_a_resumed_packer_passes_over_what_is_written_already(
    documents: list[list[int]], seq_len: int, rows: int, data: st.DataObject
) -> None:
    """Up to the end of any row, also inside a chunk; and the batches may come otherwise than the first time."""

    def run(packer: Packer, cuts: list[int], chunk: int) -> tuple[list[int], list[tuple[int, int, bytes]]]:
        """All tokens, and where in the unit each document ends, its record and its id."""
        tokens: list[int] = []
        docs: list[tuple[int, int, bytes]] = []
        pieces: list[PackedRows] = []
        for a, b in pairwise([0, *cuts, len(documents)]):
            ids = [b"%d" % n for n in range(a, b)]
            pieces += packer.add(batch(*documents[a:b]), 0, numbers(a, b), ids)
        for piece in [*pieces, *packer.pad(999)]:
            tokens += piece.token_ids.tolist()
            ends = (piece.documents["end"] + chunk * rows * seq_len).tolist()
            docs += zip(ends, piece.documents["record"].tolist(), piece.document_ids, strict=True)
            chunk += piece.full
        return tokens, docs

    def new(done: int) -> Packer:
        used = done % rows * seq_len
        return Packer(seq_len=seq_len, rows_per_chunk=rows, dtype=U2, eos=0, skip=done * seq_len, used=used)

    tokens, docs = run(new(0), [], 0)
    done = data.draw(st.integers(0, sum(len(d) + 1 for d in documents) // seq_len), label="rows that are written")
    cuts = data.draw(st.lists(st.integers(0, len(documents)), max_size=3).map(sorted), label="where batches end")
    resumed = new(done)
    assert resumed.skipping == done * seq_len
    assert run(resumed, cuts, done // rows) == (tokens[done * seq_len :], [d for d in docs if d[0] > done * seq_len])
    assert resumed.skipping == 0


def test_a_packer_tells_what_it_still_passes_over_and_what_it_carries() -> None:
    packer = Packer(seq_len=4, rows_per_chunk=2, dtype=U2, eos=0, skip=12, used=4)
    assert (packer.skipping, packer.carried) == (12, 0)
    assert pack(packer, [1] * 6) == []
    assert (packer.skipping, packer.carried) == (5, 0)
    assert pack(packer, [2] * 4) == []
    assert (packer.skipping, packer.carried) == (0, 0)
    assert summary(pack(packer, [3] * 5)) == [([3, 3, 3, 3], [], True)]
    assert packer.carried == 2
    assert summary(list(packer.pad(9))) == [([3, 0, 9, 9], [2], False)]


def test_a_packer_does_not_keep_the_batch_alive() -> None:
    packer = Packer(seq_len=4, rows_per_chunk=100, dtype=U2)
    (piece,) = packer.add(batch([1] * 101), 0, numbers(0, 1), [b"id"])
    carry = packer._carry
    assert carry.base is None
    assert not np.shares_memory(carry, piece.token_ids)
    assert packer._carry_documents.base is None


def test_a_packer_cannot_pass_over_less_than_nothing() -> None:
    with pytest.raises(AssertionError):
        Packer(seq_len=4, rows_per_chunk=2, dtype=U2, skip=-1)


def test_documents_keep_where_they_come_from() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=2, dtype=U2, eos=0)
    records = np.array([7, 9], np.int64)
    pieces = [*packer.add(batch([1], [2]), 3, records, []), *packer.add(batch([3]), 4, numbers(0, 1), [])]
    assert [p.documents.tolist() for p in pieces] == [[(2, 7, 3), (4, 9, 3)], [(2, 0, 4)]]
    assert all(p.documents.dtype == SIDECAR_DTYPE for p in pieces)
    assert records.tolist() == [7, 9]


def test_rows_that_were_given_out_do_not_change() -> None:
    """The ends of a piece count from the start of its chunk, whatever is packed behind it."""
    packer = Packer(seq_len=2, rows_per_chunk=100, dtype=U2)
    pieces = [*packer.add(batch([1, 1], [2]), 0, numbers(0, 2), []), *packer.add(batch([3]), 0, numbers(2, 3), [])]
    assert [p.documents["end"].tolist() for p in pieces] == [[2], [3, 4]]


def test_a_chunk_that_was_begun_before_takes_no_more_than_it_lacks() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=3, dtype=U2)
    assert summary(pack(packer, [1, 1])) == [([1, 1], [2], False)]
    assert summary(pack(packer, [2] * 8)) == [([2, 2, 2, 2], [], True), ([2, 2, 2, 2], [4], False)]
    resumed = Packer(seq_len=2, rows_per_chunk=3, dtype=U2, used=4)
    assert summary(pack(resumed, [3] * 4)) == [([3, 3], [], True), ([3, 3], [2], False)]


def test_an_empty_batch_gives_nothing_and_changes_nothing() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=2, dtype=U2, eos=0)
    assert pack(packer) == []
    pack(packer, [1, 2])
    assert pack(packer) == []
    assert summary(list(packer.pad(9))) == [([0, 9], [3], True)]


def test_a_padded_row_may_complete_a_chunk() -> None:
    packer = Packer(seq_len=2, rows_per_chunk=1, dtype=U2)
    pack(packer, [1])
    (last,) = packer.pad(9)
    assert (last.token_ids.tolist(), last.full, last.padding) == ([1, 9], True, 1)
    assert last.token_ids.dtype == U2
