"""Stage 4 by hand: tiny arrays in, rows and ends of documents out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pack import Packer, Piece, frame
from tokenmill.records import SIDECAR_DTYPE, TokenBatch

U2 = np.dtype("<u2")


def batch(*documents: list[int]) -> TokenBatch:
    offsets = np.cumsum([0, *map(len, documents)])
    return TokenBatch(np.array([i for d in documents for i in d], np.uint32), offsets.astype(np.int64))


def sources(count: int, first: int = 0) -> np.ndarray:
    docs = np.zeros(count, SIDECAR_DTYPE)
    docs["record"] = np.arange(first, first + count)
    return docs


def pack(packer: Packer, *documents: list[int]) -> list[Piece]:
    return list(packer.add(batch(*documents), sources(len(documents)), []))


def summary(pieces: list[Piece]) -> list[tuple[list[int], list[int], bool]]:
    return [(p.tokens.tolist(), p.docs["end"].tolist(), p.full) for p in pieces]


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
    assert (last.tokens.tolist(), last.docs["end"].tolist(), last.padding) == ([7, 7, 0, 99], [3], 1)


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
    pieces = packer.add(batch([1], [2, 2], [3]), sources(3), [b"a", b"b", b"c"])
    assert [p.ids for p in pieces] == [[b"a"], [], [b"b"]]
    (last,) = packer.pad(9)
    assert last.ids == [b"c"]


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
    pieces = [p for b in batches for p in packer.add(batch(*b), sources(len(b)), [])] + list(packer.pad(999))
    for piece in pieces:
        tokens, ends = chunks[-1]
        tokens += piece.tokens.tolist()
        ends += piece.docs["end"].tolist()
        assert len(piece.tokens) % seq_len == 0
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
def test_a_resumed_packer_passes_over_what_is_in_chunks_already(
    documents: list[list[int]], seq_len: int, rows: int, data: st.DataObject
) -> None:
    def new(skip: int = 0) -> Packer:
        return Packer(seq_len=seq_len, rows_per_chunk=rows, dtype=U2, eos=0, skip=skip)

    packer = new()
    whole = summary(pack(packer, *documents))
    full = sum(1 for _, _, is_full in whole if is_full)
    whole += summary(list(packer.pad(999)))
    done = data.draw(st.integers(0, full))
    resumed = new(skip=done * seq_len * rows)
    split = data.draw(st.integers(0, len(documents)))
    rest = summary(pack(resumed, *documents[:split]) + pack(resumed, *documents[split:]) + list(resumed.pad(999)))
    assert [t for tokens, _, _ in rest for t in tokens] == [t for tokens, _, _ in whole[done:] for t in tokens]
    assert [e for _, ends, _ in rest for e in ends] == [e for _, ends, _ in whole[done:] for e in ends]
