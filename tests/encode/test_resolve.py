"""What is read from a tokenizer's files: which tokens frame documents, and what is switched off."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BOS, EOS, PAD, ids, tiny_tokenizer_json
from tests.support.tokenizers import added, tokenizer_json, unigram_json, word_level_json, write
from tokenmill.config import ContentOptions, EncoderChoice, Eos, SpecialTokens
from tokenmill.encode import Encoder, Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.errors import TokenizerError


def resolve(tokenizer: str = "gpt-neox-20b", **options: Any) -> Tokenizer:
    return resolve_tokenizer(ContentOptions(tokenizer=tokenizer, **options))


def with_token(token: str, **model: Any) -> dict[str, Any]:
    """The tiny tokenizer with one more token in its vocabulary, 256; its special tokens follow it."""
    found = tiny_tokenizer_json()
    found["model"] |= model
    found["model"]["vocab"][token] = 256
    for entry in found["added_tokens"]:
        entry["id"] += 1
    return found


def encoded(encoder: Encoder, text: str) -> list[int]:
    return list(map(int, encoder.encode([text]).token_ids))


def test_eos_that_cannot_be_told_is_an_error_with_candidates(tmp_path: Path) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"][0]["content"] = "<stop>"
    path = write(tmp_path / "odd.json", model)
    with pytest.raises(TokenizerError, match=r"--eos-token.*<stop>, <\|padding\|>, <\|bos\|>"):
        resolve(path)
    assert resolve(path, eos_token="<stop>").eos_id == EOS
    assert resolve(path, eos_token=Eos.OFF).eos_id is None


def test_a_token_that_is_not_there_is_an_error_with_the_nearest() -> None:
    with pytest.raises(TokenizerError, match=r"did you mean '<\|endoftext\|>'"):
        resolve(eos_token="<|endoftxt|>")


def test_eos_and_bos_can_be_named(tiny_tokenizer: str) -> None:
    found = resolve(tiny_tokenizer, eos_token="<|padding|>", bos_token="<|bos|>")
    assert (found.eos_id, found.bos_id) == (PAD, BOS)


@pytest.mark.parametrize("eos", ["<absent>", "", None, 3, {"content": "<absent>"}, {}])
def test_an_eos_in_the_configuration_that_the_tokenizer_does_not_have_is_not_believed(
    tmp_path: Path, eos: object
) -> None:
    write(tmp_path / "tokenizer_config.json", {"eos_token": eos})
    assert resolve(write(tmp_path / "tokenizer.json", tiny_tokenizer_json())).eos_id == EOS


def test_the_nearest_token_is_a_special_one(tmp_path: Path) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"].append(model["added_tokens"][0] | {"id": 259, "content": "<|endoftx|>", "special": False})
    path = write(tmp_path / "t.json", model)
    with pytest.raises(TokenizerError, match=r"has no special token '<\|endoftxt\|>'; did you mean '<\|endoftext\|>'"):
        resolve(path, eos_token="<|endoftxt|>")


def test_truncation_saved_in_a_tokenizer_is_switched_off(tmp_path: Path) -> None:
    truncation = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    found = resolve(write(tmp_path / "cut.json", tiny_tokenizer_json(truncation=truncation)))
    for choice in (EncoderChoice.FASTOKENS, EncoderChoice.HUGGINGFACE):
        assert encoded(build_encoder(found, choice, SpecialTokens.PLAIN), "abcdef") == ids("abcdef")


def test_an_eos_that_was_not_special_cannot_be_forged_either(tmp_path: Path) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"][0]["special"] = False
    found = resolve(write(tmp_path / "t.json", model), eos_token="<|endoftext|>")
    for choice in (EncoderChoice.FASTOKENS, EncoderChoice.HUGGINGFACE):
        assert encoded(build_encoder(found, choice, SpecialTokens.PLAIN), "<|endoftext|>") == ids("<|endoftext|>")


@pytest.mark.parametrize("flagged", [True, False], ids=["special", "not special"])
def test_eos_named_by_the_configuration_is_used_whether_or_not_it_is_flagged_special(
    tmp_path: Path, flagged: bool
) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"].append(added("<stop>", 259, special=flagged))
    write(tmp_path / "tokenizer_config.json", {"eos_token": "<stop>"})
    found = resolve(write(tmp_path / "tokenizer.json", model))
    assert (found.eos_token, found.eos_id, found.reserved[259]) == ("<stop>", 259, "<stop>")
    assert resolve(str(tmp_path), eos_token="<|bos|>").eos_id == BOS  # what the user says comes first
    for choice in (EncoderChoice.FASTOKENS, EncoderChoice.HUGGINGFACE):
        assert encoded(build_encoder(found, choice, SpecialTokens.PLAIN), "a<stop>") == ids("a<stop>")


@pytest.mark.parametrize("where", ["configuration", "option"])
def test_eos_that_only_the_vocabulary_has_becomes_a_special_token(tmp_path: Path, where: str) -> None:
    """As it does when transformers loads the tokenizer."""
    named = {"eos_token": "<stop>"}
    write(tmp_path / "tokenizer_config.json", named if where == "configuration" else {})
    write(tmp_path / "tokenizer.json", with_token("<stop>"))
    found = resolve(str(tmp_path), **named if where == "option" else {})
    assert (found.eos_id, found.vocab_size, found.special["<stop>"]) == (256, 260, 256)
    for choice in (EncoderChoice.FASTOKENS, EncoderChoice.HUGGINGFACE):
        assert encoded(build_encoder(found, choice, SpecialTokens.PLAIN), "<stop>") == ids("<stop>")
        assert encoded(build_encoder(found, choice, SpecialTokens.MATCH), "a<stop>") == [*ids("a"), 256]


def test_eos_of_a_vocabulary_that_is_a_list_has_its_place_for_an_id(tmp_path: Path) -> None:
    model = unigram_json()
    model["added_tokens"] = []
    found = resolve(write(tmp_path / "t.json", model), eos_token="</s>", bos_token="<unk>")
    assert (found.eos_id, found.bos_id, found.unk_id) == (1, 0, None)
    with pytest.raises(TokenizerError, match="has no special token '<absent>'"):
        resolve(str(tmp_path / "t.json"), eos_token="<absent>")


def test_a_token_that_is_listed_twice_is_special_if_it_is_once(tmp_path: Path) -> None:
    """So the library has it: in plain text it is not looked for, whichever comes last."""
    model = tiny_tokenizer_json()
    model["added_tokens"] += [added("<foo>", 259), added("<foo>", 259, special=False)]
    found = resolve(write(tmp_path / "t.json", model))
    assert found.reserved[259] == "<foo>"
    assert encoded(build_encoder(found, EncoderChoice.HUGGINGFACE, SpecialTokens.PLAIN), "<foo>") == ids("<foo>")


@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_dropout_is_switched_off_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dropout: float
) -> None:
    """With it, the same text would give other ids each time."""
    found = resolve(write(tmp_path / "t.json", with_token("ab", merges=[["a", "b"]], dropout=dropout)))
    assert caplog.messages == [f"tokenizer t: dropout {dropout} would make the output random, so it is switched off"]
    for choice in (EncoderChoice.FASTOKENS, EncoderChoice.HUGGINGFACE):
        encoder = build_encoder(found, choice, SpecialTokens.PLAIN)
        assert encoded(encoder, "ab" * 200) == [256] * 200


@pytest.mark.parametrize("dropout", [0.0, None])
def test_dropout_of_zero_is_not_mentioned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dropout: float | None
) -> None:
    resolve(write(tmp_path / "t.json", with_token("ab", merges=[["a", "b"]], dropout=dropout)))
    assert caplog.messages == []


def test_sampling_of_unigram_is_switched_off_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hugging Face tokenizers 0.23 has it, but does not read it from the file; a later version may."""
    model = unigram_json()
    model["model"]["alpha"] = 0.1
    found = resolve(write(tmp_path / "t.json", model))
    assert caplog.messages == ["tokenizer t: alpha 0.1 would make the output random, so it is switched off"]
    assert json.loads(found.json)["model"]["alpha"] is None


@pytest.mark.parametrize("vocab", [5, "abc", None, True])
def test_a_vocabulary_of_another_type_is_a_clear_error(tmp_path: Path, vocab: object) -> None:
    path = write(tmp_path / "t.json", tokenizer_json({"type": "BPE", "vocab": vocab}, {}))
    with pytest.raises(TokenizerError, match="the vocabulary is neither an object nor an array"):
        resolve(path)


def test_a_pipe_beside_a_tokenizer_is_not_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path / "tokenizer.json", word_level_json())
    os.mkfifo(tmp_path / "tokenizer_config.json")
    assert resolve_tokenizer(ContentOptions(tokenizer=path, eos_token="</s>")).eos_token == "</s>"
