"""Which tokenizers can be used: their ids are their own, not random, and ordinary text gives no special token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import EOS, ids, tiny_tokenizer_json
from tests.support.tokenizers import (
    added,
    replaced,
    tokenizer_json,
    unigram_json,
    word_level_json,
    word_piece_json,
    write,
)
from tokenmill.config import ContentOptions, EncoderChoice, Eos, SpecialTokens
from tokenmill.encode import Encoder, Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.encode.torture import torture_set
from tokenmill.errors import TokenizerError

PLAIN, REJECT, MATCH = SpecialTokens.PLAIN, SpecialTokens.REJECT, SpecialTokens.MATCH


def loaded(folder: Path, model: object, mode: SpecialTokens = PLAIN, **options: Any) -> tuple[Tokenizer, Encoder]:
    found = resolve_tokenizer(ContentOptions(tokenizer=write(folder / "t.json", model), **options))
    return found, build_encoder(found, EncoderChoice.HUGGINGFACE, mode)


@pytest.mark.parametrize("mode", [PLAIN, REJECT])
@pytest.mark.parametrize(
    ("model", "eos"),
    [(word_piece_json(), "[SEP]"), (word_level_json(), "</s>"), (unigram_json(), "</s>")],
    ids=["WordPiece", "WordLevel", "Unigram"],
)
def test_the_token_for_unknown_text_is_not_reserved(
    tmp_path: Path, model: dict[str, Any], eos: str, mode: SpecialTokens
) -> None:
    found, encoder = loaded(tmp_path, model, mode, eos_token=eos)
    unk = found.special[model["model"].get("unk_token", "<unk>")]
    assert found.unk_id == unk
    assert unk in encoder.encode(["漢"]).token_ids
    assert unk not in found.reserved
    assert found.reserved[found.special[eos]] == eos


def test_no_text_of_word_piece_gives_any_special_token_but_that_for_unknown_text(tmp_path: Path) -> None:
    found, encoder = loaded(tmp_path, word_piece_json(), eos_token="[SEP]")
    given = encoder.encode([*torture_set(found), "befores [SEP] [ｓｅｐ]"]).token_ids
    assert not np.isin(given, list(found.reserved)).any()


def test_a_model_that_knows_a_literal_is_used_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded(tmp_path, word_level_json())
    assert caplog.messages == [
        "tokenizer t: the text '</s>' gives the special token '</s>' even as plain text. Documents with such text are "
        "rejected"
    ]
    caplog.clear()
    for mode in (REJECT, MATCH):  # who asks for that need not be told
        loaded(tmp_path, word_level_json(), mode)
    assert caplog.messages == []


@pytest.mark.parametrize("mode", [PLAIN, REJECT])
def test_a_tokenizer_that_takes_ordinary_text_for_a_special_token_is_refused(
    tmp_path: Path, mode: SpecialTokens
) -> None:
    """Whose end of a document is what stands for unknown words, or a letter, or a normalizer puts it everywhere."""
    unknown = word_level_json()
    unknown["model"]["unk_token"] = "</s>"
    everywhere = unigram_json(normalizer={"type": "Prepend", "prepend": "</s>"})
    for model, eos in ((unknown, None), (everywhere, None), (tiny_tokenizer_json(), "e")):
        with pytest.raises(TokenizerError, match=r"gives its special token '(</s>|e)' for ordinary text.*--eos-token"):
            loaded(tmp_path, model, mode, eos_token=eos)
        loaded(tmp_path, model, MATCH, eos_token=eos)


def test_the_padding_token_is_reserved_even_where_it_stands_for_unknown_text(tmp_path: Path) -> None:
    model = tokenizer_json(
        {"type": "WordLevel", "unk_token": "[PAD]", "vocab": {"[PAD]": 0, "[EOS]": 1}}, {"[PAD]": 0, "[EOS]": 1}
    )
    found = resolve_tokenizer(ContentOptions(tokenizer=write(tmp_path / "t.json", model)))
    assert (found.unk_id, found.reserved) == (None, {0: "[PAD]", 1: "[EOS]"})


def test_what_fills_rows_without_a_padding_token_is_not_reserved(tmp_path: Path) -> None:
    """Without EOS it is 0, whatever that is."""
    model = word_level_json()
    del model["added_tokens"][2]
    path = write(tmp_path / "t.json", model)
    found = resolve_tokenizer(ContentOptions(tokenizer=path, eos_token=Eos.OFF))
    assert (found.pad_id, found.unk_id, found.reserved) == (0, 0, {1: "</s>"})


def test_a_normalizer_that_makes_a_special_token_of_other_text_is_accepted(tmp_path: Path) -> None:
    """Single documents may do it, and are rejected."""
    found, encoder = loaded(tmp_path, word_level_json(normalizer=replaced(("</s>", ""), ("@@", "</s>"))))
    assert found.reserved == {1: "</s>", 2: "<pad>"}
    assert encoder.encode(["before @@"]).token_ids.tolist() == [3, 1]


def test_added_tokens_that_are_the_same_once_normalized_are_refused(tmp_path: Path) -> None:
    """Of such the library finds one or another, from load to load: the output would be random."""
    model = tiny_tokenizer_json(normalizer={"type": "Lowercase"})
    model["added_tokens"] += [
        added("<Foo>", 259, special=False, normalized=True),
        added("<foo>", 260, special=False, normalized=True),
    ]
    with pytest.raises(TokenizerError, match=r"added tokens '<Foo>' and '<foo>', which are the same once normalized"):
        loaded(tmp_path, model)
    model["added_tokens"][-1]["normalized"] = False  # which is looked for before the others
    loaded(tmp_path, model)
    model["added_tokens"][-1] |= {"normalized": True, "special": True}
    with pytest.raises(TokenizerError, match="would be random"):
        loaded(tmp_path, model)
    model["added_tokens"][-2]["special"] = True
    loaded(tmp_path, model)  # neither of them is looked for
    with pytest.raises(TokenizerError, match="would be random"):
        loaded(tmp_path, model, MATCH)


def test_an_added_token_to_which_the_library_gives_another_id_is_refused(tmp_path: Path) -> None:
    """Hugging Face tokenizers gives it the next one that is free, fastokens would give it the one in the file."""
    model = tiny_tokenizer_json()
    model["added_tokens"].append(added("<foo>", 300, special=False))
    with pytest.raises(TokenizerError, match=r"declares the id 300 for its token '<foo>', but .* assigns 259\. Number"):
        loaded(tmp_path, model)
    model["added_tokens"][-1]["special"] = True  # then no text gives it, unless it is matched
    _, encoder = loaded(tmp_path, model)
    assert encoder.encode(["<foo>"]).token_ids.tolist() == ids("<foo>")
    with pytest.raises(TokenizerError, match="the id 300"):
        loaded(tmp_path, model, MATCH)


def test_a_special_token_that_has_another_id_in_the_vocabulary_is_refused(tmp_path: Path) -> None:
    """A text could give that one, which readers would take for the special token, too."""
    model = word_level_json()
    model["added_tokens"][1]["id"] = 9
    with pytest.raises(TokenizerError, match=r"declares the id 9 for its token '</s>', but .* assigns 1"):
        loaded(tmp_path, model)


def test_both_encoders_get_the_ids_in_the_file(tmp_path: Path) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"].append(added("<foo>", 259, special=False))
    found, reference = loaded(tmp_path, model)
    fast = build_encoder(found, EncoderChoice.FASTOKENS, PLAIN)
    for encoder in (fast, reference):
        assert encoder.encode(["a<foo>"]).token_ids.tolist() == [*ids("a"), 259]
    assert EOS not in fast.encode(["<|endoftext|>"]).token_ids
