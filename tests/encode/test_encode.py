"""Stage 3: both encoders agree, special tokens stay text, and a tokenizer that cannot be used says why."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import BOS, EOS, PAD, ids, tiny_tokenizer_json
from tests.support.tokenizers import replaced, word_level_json, write
from tokenmill.config import ContentOptions, EncoderChoice, Eos, SpecialTokens
from tokenmill.encode import Encoder, Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.encode.encoder import KNOWN, FastokensEncoder, HuggingFaceEncoder, check_ids, digest_of
from tokenmill.encode.resolve import read_tokenizer
from tokenmill.encode.torture import torture_set
from tokenmill.errors import TokenizerError
from tokenmill.records import TokenBatch

# A further tokenizer.json to hold both encoders against, e.g. one with another kind of pre-tokenizer.
EXTRA = os.environ.get("TOKENMILL_TEST_TOKENIZER", "")
TOKENIZERS = ["gpt-neox-20b", *filter(None, [EXTRA])]


def resolve(tokenizer: str = "gpt-neox-20b", **options: Any) -> Tokenizer:
    return resolve_tokenizer(ContentOptions(tokenizer=tokenizer, **options))


def encoded(encoder: Encoder, *values: str) -> list[list[int]]:
    batch = encoder.encode(values)
    bounds = batch.offsets.tolist()
    return [batch.token_ids[a:b].tolist() for a, b in pairwise(bounds)]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("plain", [True, False])
def test_both_encoders_agree_on_the_torture_set(name: str, plain: bool) -> None:
    tokenizer = resolve(name)
    values = torture_set(tokenizer)
    fast, reference = (k(tokenizer, plain=plain) for k in (FastokensEncoder, HuggingFaceEncoder))
    assert encoded(fast, *values) == encoded(reference, *values)


@pytest.fixture(scope="module")
def neox_pair() -> tuple[Encoder, Encoder]:
    tokenizer = resolve()
    return FastokensEncoder(tokenizer, plain=True), HuggingFaceEncoder(tokenizer, plain=True)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_both_encoders_agree_on_any_text(neox_pair: tuple[Encoder, Encoder], values: list[str]) -> None:
    fast, reference = neox_pair
    assert encoded(fast, *values) == encoded(reference, *values)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", [FastokensEncoder, HuggingFaceEncoder])
def test_no_literal_gives_the_id_of_a_special_token_in_plain_mode(name: str, kind: Any) -> None:
    tokenizer = resolve(name)
    batch = kind(tokenizer, plain=True).encode(torture_set(tokenizer))
    assert not np.isin(batch.token_ids, list(tokenizer.special.values())).any()


def test_the_default_is_the_bundled_neox_tokenizer() -> None:
    found = resolve()
    assert (found.name, found.vocab_size, found.eos_token, found.eos_id) == ("gpt-neox-20b", 50277, "<|endoftext|>", 0)
    assert found.pad_id == 1
    assert found.dtype == np.uint16
    assert resolve("EleutherAI/gpt-neox-20b") == found


def test_a_file_and_a_directory_with_one_are_the_same_tokenizer(tmp_path: Path) -> None:
    write(tmp_path / "tokenizer.json", tiny_tokenizer_json())
    by_file, by_directory = resolve(str(tmp_path / "tokenizer.json")), resolve(str(tmp_path))
    assert by_file == by_directory
    assert (by_file.eos_id, by_file.pad_id, by_file.vocab_size) == (EOS, PAD, 259)


def test_a_tokenizer_that_an_output_holds_is_read_as_the_one_it_was(tiny_tokenizer: str) -> None:
    """By its bytes and the tokens that were resolved, without what lay beside it."""
    found = resolve(tiny_tokenizer, eos_token="<|padding|>", bos_token="<|bos|>")
    assert read_tokenizer("tiny", found.data, eos=found.eos_token, bos=found.bos_token) == found
    without = resolve(tiny_tokenizer, eos_token=Eos.OFF)
    assert read_tokenizer("tiny", found.data, eos=Eos.OFF, bos=None) == without
    with pytest.raises(TokenizerError, match="here"):
        read_tokenizer("here", b"{}", eos=None, bos=None)


@pytest.mark.parametrize(("size", "dtype"), [(65_536, "<u2"), (65_537, "<u4")])
def test_16_bits_are_enough_for_65536_tokens_and_not_for_one_more(tmp_path: Path, size: int, dtype: str) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"][2]["id"] = size - 1
    found = resolve(write(tmp_path / "t.json", model))
    assert (found.vocab_size, found.dtype) == (size, np.dtype(dtype))


def test_without_a_padding_token_rows_are_filled_with_eos(tmp_path: Path) -> None:
    model = tiny_tokenizer_json()
    del model["added_tokens"][1]
    path = write(tmp_path / "t.json", model)
    assert resolve(path).pad_id == EOS
    assert resolve(path, eos_token="<|bos|>").pad_id == BOS
    assert resolve(path, eos_token=Eos.OFF).pad_id == 0  # with neither of them, something must fill the row


def test_an_id_that_the_vocabulary_does_not_have_is_never_written(tiny_tokenizer: str) -> None:
    found = resolve(tiny_tokenizer)
    last = found.vocab_size - 1
    check_ids(TokenBatch(np.array([0, last], np.uint32), np.array([0, 2])), found)
    check_ids(TokenBatch(np.array([], np.uint32), np.array([0, 0])), found)
    with pytest.raises(TokenizerError, match="gave id 259, but its vocabulary ends at 258"):
        check_ids(TokenBatch(np.array([0, last + 1, 7], np.uint32), np.array([0, 3])), found)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not json", "is not a tokenizer.json"),
        (b"seq-len = 3", r"bad\.json is not a tokenizer\.json of Hugging Face tokenizers: it is not JSON$"),
        (b"[]", "is not a tokenizer.json"),
        (b'{"model": {}}', "is not a tokenizer.json"),
        (b'{"model": {"vocab": {}}}', "empty vocabulary"),
        (b'{"model": {"vocab": {"a": -1}}}', "not 32-bit numbers"),
        (b'{"model": {"vocab": {"a": 99999999999}}}', "not 32-bit numbers"),
        (b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": "x"}]}', "is not a tokenizer.json"),
        (b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": "x", "content": "b"}]}', "no content or id"),
        (b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": 2}]}', "no content or id"),
        (b'{"model": {"vocab": {"a": 0, "b": 1, "c": 1}}}', "gives the id 1 to more than one token"),
        (b'{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 0, "content": "b"}]}', "gives the id 0"),
    ],
)
def test_a_broken_tokenizer_file_is_a_clear_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=said):
        resolve(str(path))


def test_a_tokenizer_that_does_not_load_is_a_clear_error(tmp_path: Path) -> None:
    model = tiny_tokenizer_json(pre_tokenizer={"type": "NoSuchThing"})
    found = resolve(write(tmp_path / "bad.json", model))
    with pytest.raises(TokenizerError, match="cannot be loaded"):
        build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN)


def test_match_gives_the_special_token(tiny_tokenizer: str) -> None:
    found = resolve(tiny_tokenizer)
    for choice in (EncoderChoice.FASTOKENS, EncoderChoice.HUGGINGFACE):
        encoder = build_encoder(found, choice, SpecialTokens.MATCH)
        assert encoded(encoder, "a<|endoftext|>b") == [[*ids("a"), EOS, *ids("b")]]


def test_what_fastokens_refuses_or_gets_wrong_goes_to_the_reference_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = resolve(write(tmp_path / "words.json", word_level_json()))
    encoder = build_encoder(found, EncoderChoice.AUTO, SpecialTokens.REJECT)
    assert encoder.name == "huggingface"
    assert "Using Hugging Face tokenizers" in caplog.text
    with pytest.raises(TokenizerError, match="--encoder auto"):
        build_encoder(found, EncoderChoice.FASTOKENS, SpecialTokens.REJECT)


def test_known_disagreement_of_fastokens_is_caught(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a pre-tokenizer fastokens 0.3.5 loads the file and gives other ids."""
    found = resolve(write(tmp_path / "t.json", json.loads(resolve().json) | {"pre_tokenizer": None}))
    assert build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN).name == "huggingface"
    assert "fastokens and the reference disagree on 'Net income rose" in caplog.text


def test_what_is_known_of_the_bundled_tokenizer_is_what_the_reference_says() -> None:
    """If this fails, the torture set or the tokenizer changed: put the digest that it shows into KNOWN."""
    found = resolve()
    texts = torture_set(found)
    digest = digest_of(texts, HuggingFaceEncoder(found, plain=True).encode(texts))
    assert {xxhash.xxh3_128_hexdigest(found.json.encode()): digest} == KNOWN


@pytest.mark.parametrize("wrong", ["ids", "failure"])
def test_a_fastokens_that_no_longer_gives_what_is_known_is_not_used(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    found = resolve()
    right = FastokensEncoder.encode

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        if wrong == "failure":
            raise RuntimeError("no such thing")
        batch = right(self, texts)
        return TokenBatch(batch.token_ids[::-1], batch.offsets)

    monkeypatch.setattr(FastokensEncoder, "encode", encode)
    assert build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN).name == "huggingface"


def test_the_bundled_tokenizer_is_checked_without_loading_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take as long as fastokens itself."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("the reference was loaded")

    monkeypatch.setattr(HuggingFaceEncoder, "__init__", load)
    found = resolve()
    assert build_encoder(found, EncoderChoice.AUTO, SpecialTokens.PLAIN).name == "fastokens"
    assert encoded(build_encoder(found, EncoderChoice.AUTO, SpecialTokens.REJECT), "<|endoftext|>") != [[0]]


def test_what_a_tokenizer_wants_put_around_a_document_is_left_out(tmp_path: Path) -> None:
    """Documents are framed by --bos-token and --eos-token alone; a tokenizer that adds BOS would add it twice."""
    bos = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [BOS], "tokens": ["<|bos|>"]}},
    }
    found = resolve(write(tmp_path / "t.json", tiny_tokenizer_json(post_processor=template)))
    for kind in (FastokensEncoder, HuggingFaceEncoder):
        assert encoded(kind(found, plain=True), "ab", "c") == [ids("ab"), ids("c")]


def test_a_tokenizer_that_cannot_encode_is_a_clear_error(tmp_path: Path) -> None:
    model = word_level_json()
    model["model"]["unk_token"] = "<absent>"
    found = resolve(write(tmp_path / "t.json", model))
    with pytest.raises(TokenizerError, match="tokenizer t cannot encode text: "):
        build_encoder(found, EncoderChoice.AUTO, SpecialTokens.REJECT)


def test_a_panic_of_the_library_is_a_clear_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is not an Exception. Tokenizers 0.23 panics where an added token has no text left once normalized."""
    model = word_level_json(normalizer=replaced(("</s>", "")))
    model["added_tokens"][1]["normalized"] = True
    found = resolve(write(tmp_path / "t.json", model))
    with pytest.raises(TokenizerError, match="tokenizer t cannot encode text: AddedVocabulary bad split"):
        build_encoder(found, EncoderChoice.AUTO, SpecialTokens.MATCH)
    capfd.readouterr()  # Rust has said it, too


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=rf"the directory {tmp_path} has no tokenizer\.json"):
        resolve(str(tmp_path))


def test_a_file_too_large_for_a_tokenizer_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json", tiny_tokenizer_json())
    size = os.path.getsize(path)
    monkeypatch.setattr("tokenmill.encode.resolve.MAX_TOKENIZER_BYTES", size)
    assert resolve(path).eos_id == EOS
    monkeypatch.setattr("tokenmill.encode.resolve.MAX_TOKENIZER_BYTES", size - 1)
    with pytest.raises(TokenizerError, match="is not a tokenizer"):
        resolve(path)


def test_a_tokenizer_that_cannot_be_read_is_named() -> None:
    with pytest.raises(TokenizerError, match="cannot read the tokenizer /proc/self/mem: Input/output error"):
        resolve("/proc/self/mem")


def test_a_vocabulary_with_half_a_surrogate_pair_is_kept(tmp_path: Path) -> None:
    """Only Python's json reads and writes it."""
    model = tiny_tokenizer_json()
    model["model"]["vocab"]["\ud800"] = 259
    found = resolve(write(tmp_path / "t.json", model))
    assert json.loads(found.json)["model"]["vocab"]["\ud800"] == 259
    assert found.vocab_size == 260


def test_a_vocabulary_that_is_a_list_is_numbered_by_place(tmp_path: Path) -> None:
    """As of Unigram: special tokens may stand in it, or be added behind it."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {
        "added_tokens": [{"id": 1, "content": "</s>", **flags}, {"id": 2, "content": "<pad>", **flags}],
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["</s>", 0.0]]},
    }
    found = resolve(write(tmp_path / "t.json", model))
    assert (found.eos_id, found.pad_id, found.vocab_size) == (1, 2, 3)
    model["added_tokens"][1]["id"] = 1  # type: ignore[index]
    assert resolve(write(tmp_path / "t.json", model)).vocab_size == 2


def test_the_highest_id_is_the_highest_32_bit_number(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", {"model": {"vocab": {"a": 0, "b": 2**32 - 1}}})
    assert resolve(path, eos_token=Eos.OFF).vocab_size == 2**32
    path = write(tmp_path / "t.json", {"model": {"vocab": {"a": 0, "b": 2**32}}})
    with pytest.raises(TokenizerError, match="not 32-bit numbers"):
        resolve(path, eos_token=Eos.OFF)
