"""Added tokens, special or not: where fastokens finds others than Hugging Face tokenizers does, it is not used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import tiny_tokenizer_json
from tokenmill.config import EncoderChoice, SpecialTokens
from tokenmill.encode import Tokenizer, build_encoder
from tokenmill.encode.added import added_token_texts
from tokenmill.encode.encoder import HuggingFaceEncoder
from tokenmill.encode.resolve import read_tokenizer
from tokenmill.errors import TokenizerError

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def tiny_with(tokens: dict[str, set[str]], **changes: Any) -> Tokenizer:
    """The tiny tokenizer with more added tokens: content -> the flags that it has."""
    model = tiny_tokenizer_json(**changes)
    for number, (content, flags) in enumerate(tokens.items(), 259):
        model["added_tokens"].append({"id": number, "content": content, **{f: f in flags for f in FLAGS}})
    return read_tokenizer("t", json.dumps(model).encode(), eos=None, bos=None)


@pytest.mark.parametrize("mode", [SpecialTokens.PLAIN, SpecialTokens.MATCH])
@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param({"    ": {"normalized"}, "<mask>": {"lstrip"}}, id="white space before a token"),
        pytest.param({"    ": {"normalized"}, "<mask>": {"rstrip"}}, id="white space behind a token"),
        pytest.param({"abcxyZ": {"normalized"}, "xyZq": set()}, id="overlap"),
        pytest.param({"xyZ": set(), "abcxyZq": {"normalized"}}, id="one inside the other"),
        pytest.param({"Zorkle": {"single_word", "normalized"}, "Wumpus": set()}, id="next to each other"),
    ],
)
def test_fastokens_is_not_used_where_it_finds_other_added_tokens(
    tokens: dict[str, set[str]], mode: SpecialTokens, caplog: pytest.LogCaptureFixture
) -> None:
    """Version 0.3.5 looks for all of them at once, Hugging Face for those first that are not normalized."""
    assert build_encoder(tiny_with(tokens), EncoderChoice.AUTO, mode).name == "huggingface"
    assert "fastokens and the reference disagree on" in caplog.text


def test_special_tokens_that_stay_text_show_by_what_they_hide() -> None:
    """In "<x<|bos|>>" Hugging Face finds <|bos|>, and fastokens "<x<", which leaves ">>" to be found."""
    found = tiny_with({"<x<": {"normalized", "special"}, ">>": set()})
    assert build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN).name == "huggingface"


@pytest.mark.parametrize("token", ["<mask>", "Word", "   "])
def test_fastokens_is_used_for_added_tokens_that_it_finds(token: str) -> None:
    found = tiny_with({token: set(), "|||x|||": set()})
    assert build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN).name == "fastokens"


ADDED = st.dictionaries(
    st.text("ab<> é", min_size=2, max_size=5), st.sets(st.sampled_from(FLAGS)), min_size=1, max_size=4
)


@given(ADDED, st.data(), st.sampled_from([None, {"type": "NFC"}]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_the_added_tokens_the_ids_are_those_of_the_reference(
    tokens: dict[str, set[str]], data: st.DataObject, normalizer: object, plain: bool
) -> None:
    found = tiny_with(tokens, normalizer=normalizer)
    try:
        encoder = build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN if plain else SpecialTokens.MATCH)
    except TokenizerError:
        return
    pieces = st.sampled_from([*tokens, *(token[:-1] for token in tokens), "a", " ", "\n", "e\u0301", "<|bos|>"])
    texts = data.draw(st.lists(st.lists(pieces, max_size=6).map("".join), min_size=20, max_size=40))
    got, expected = encoder.encode(texts), HuggingFaceEncoder(found, plain=plain).encode(texts)
    assert got.token_ids.tolist() == expected.token_ids.tolist()
    assert got.offsets.tolist() == expected.offsets.tolist()


def test_of_thousands_of_added_tokens_each_is_tried_and_few_with_each_other() -> None:
    tokens = {f"<unused{n}>": (n % 2,) for n in range(5000)}
    texts = list(added_token_texts(tokens))
    assert len(texts) < 8000
    together = "\n".join(texts)
    assert all(token in together for token in tokens)
    assert {"<unused0><unused1>", "<unused1><unused0>", "<unused0><unused0>"} <= set(texts)


def test_every_kind_of_added_token_overlaps_with_every_other() -> None:
    tokens = {"ab>": (0,), "<ab": (1,), **{f"<{n}ab": (2,) for n in range(100)}}
    texts = set(added_token_texts(tokens))
    assert {"<ab>", "<0ab>"} <= texts
    assert "<99ab>" not in texts
    assert list(added_token_texts({"": (0,)})) == []
