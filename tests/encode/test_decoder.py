"""The way back: token ids become text, and where a character is spread over several tokens, these together."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOS, EOS, ids, tiny_tokenizer_json
from tokenmill.encode.decoder import Decoder, TokenText
from tokenmill.errors import TokenizerError

TINY = Decoder(json.dumps(tiny_tokenizer_json()).encode(), "tokenizer.json")
"""Byte b is token b."""


def test_each_token_gives_its_text() -> None:
    assert TINY.texts(ids("a b")) == [TokenText("a", [97]), TokenText(" ", [32]), TokenText("b", [98])]
    assert TINY.texts([]) == []


def test_tokens_that_share_a_character_are_given_together() -> None:
    found = TINY.texts(ids("aé日b"))
    assert found == [TokenText("a", [97]), TokenText("é", ids("é")), TokenText("日", ids("日")), TokenText("b", [98])]


def test_special_tokens_are_shown() -> None:
    assert TINY.texts([BOS, 97, EOS]) == [
        TokenText("<|bos|>", [BOS]),
        TokenText("a", [97]),
        TokenText("<|endoftext|>", [EOS]),
    ]
    assert TINY.token(EOS) == "<|endoftext|>"


def test_a_character_that_is_cut_off_is_a_replacement_for_the_tokens_there_are() -> None:
    """As at the end of a row."""
    assert TINY.texts(ids("aé")[:-1]) == [TokenText("a", [97]), TokenText("\ufffd", ids("é")[:1])]
    assert TINY.texts(ids("日")[:2]) == [TokenText("\ufffd", ids("日")[:2])]


def test_a_row_may_begin_inside_a_character() -> None:
    found = TINY.texts([*ids("é")[1:], *ids("ab")])
    assert [i for t in found for i in t.token_ids] == [*ids("é")[1:], *ids("ab")]
    assert "".join(t.text for t in found).endswith("ab")


def test_one_token_is_decoded_by_itself() -> None:
    assert TINY.token(97) == "a"
    assert TINY.token(ids("é")[0]) == "<C3>"  # half of a character


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_decoder_remembers_nothing(first: str, second: str) -> None:
    """Any text comes back, whatever was decoded before, and every token once."""
    for text in (first, second):
        found = TINY.texts(ids(text))
        assert "".join(t.text for t in found) == text
        assert [i for t in found for i in t.token_ids] == ids(text)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"model": {"type": "NoSuchThing"}}'])
def test_a_tokenizer_that_cannot_be_loaded_is_named(data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"^out/tokenizer\.json cannot be loaded: .+"):
        Decoder(data, "out/tokenizer.json")
