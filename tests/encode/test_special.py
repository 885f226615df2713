"""Special tokens are found in texts and among ids, wherever they stand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.encode.special import ForgeryFinder, SpecialTokenFinder
from tokenmill.records import TokenBatch


def test_special_tokens_are_counted_wherever_they_stand() -> None:
    finder = SpecialTokenFinder(["<|endoftext|>", "</s>", "[PAD]", "EOS"])
    values = ["plain", "a<|endoftext|>b<|endoftext|>", "</s> [PAD]", "EOS", "< / s >"]
    found = finder.count(values)
    assert {i: count for i, (_, count) in found.items()} == {1: 2, 2: 2, 3: 1}


def test_special_tokens_with_nothing_in_common_but_a_sign_are_all_found() -> None:
    finder = SpecialTokenFinder(["x<1>", "y<1>"])
    assert finder.count(["y<1>", "x<1>x<1>", "z<1>"]) == {0: ("y<1>", 1), 1: ("x<1>", 2)}


def test_a_special_token_without_text_is_in_no_text() -> None:
    assert SpecialTokenFinder(["", "</s>"]).count(["", "a", "</s>"]) == {2: ("</s>", 1)}


def batch(*documents: list[int]) -> TokenBatch:
    flat = [i for document in documents for i in document]
    return TokenBatch(np.array(flat, np.uint32), np.cumsum([0, *map(len, documents)]).astype(np.int64))


def test_documents_with_the_id_of_a_special_token_are_found_with_the_first_of_them() -> None:
    finder = ForgeryFinder({0: "<s>", 1: "</s>", 99: "<pad>"}, 100)
    assert finder.find(batch([5, 6], [], [7, 1, 0], [98], [99, 99], [], [0])) == {2: "</s>", 4: "<pad>", 6: "<s>"}
    assert finder.find(batch([2, 98], [50])) == {}
    assert finder.find(batch([], [])) == {}
    assert finder.find(batch()) == {}


@pytest.mark.parametrize("reserved", [{}, {0: "a"}, {99: "z"}, {50: "m"}, {0: "a", 99: "z"}])
def test_every_id_is_told_apart_wherever_the_special_tokens_stand(reserved: dict[int, str]) -> None:
    finder = ForgeryFinder(reserved, 100)
    assert finder.find(batch(*([i] for i in range(100)))) == reserved
    assert [i for i in range(100) if finder.find(batch([i]))] == sorted(reserved)


@given(
    st.sets(st.integers(0, 20)),
    st.lists(st.lists(st.integers(0, 20), max_size=6), max_size=6),
)
def test_what_is_found_is_what_a_plain_search_finds(reserved: set[int], documents: list[list[int]]) -> None:
    expected = {
        n: str(next(i for i in document if i in reserved))
        for n, document in enumerate(documents)
        if reserved & set(document)
    }
    finder = ForgeryFinder({i: str(i) for i in reserved}, 21)
    assert finder.find(batch(*documents)) == expected


def test_ids_as_large_as_they_can_be_are_found() -> None:
    finder = ForgeryFinder({2**32 - 1: "</s>"}, 2**32)
    assert finder.find(batch([2**32 - 2], [2**32 - 1])) == {1: "</s>"}
