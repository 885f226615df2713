"""Tokenizers of every kind, small enough to read: their models know the literals of their special tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

UNIGRAM = {"<unk>": 0, "</s>": 1, "<pad>": 2}
WORDS = {"<unk>": 0, "</s>": 1, "<pad>": 2}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:'\"!?%$-/<>@ "


def added(content: str, token_id: int, *, special: bool = True, normalized: bool = False) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": token_id, "content": content, **flags, "normalized": normalized, "special": special}


def tokenizer_json(model: dict[str, Any], special: dict[str, int], **parts: Any) -> dict[str, Any]:
    """A tokenizer around a model."""
    around = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(content, i) for content, i in special.items()],
        **around,
        "model": model,
    } | parts


def unigram_json(**parts: Any) -> dict[str, Any]:
    """Unigram with NFKC, as of T5: a letter is a token; `</s>` is 1, and a piece of the vocabulary."""
    pieces = [[token, 0.0] for token in UNIGRAM] + [[letter, -3.0] for letter in LETTERS]
    model = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    return tokenizer_json(model, UNIGRAM, **{"normalizer": {"type": "NFKC"}} | parts)


def word_level_json(**parts: Any) -> dict[str, Any]:
    """Words between spaces; `</s>` is 1, and a word of the vocabulary."""
    model = {"type": "WordLevel", "unk_token": "<unk>", "vocab": WORDS | {"before": 3, "after": 4}}
    return tokenizer_json(model, WORDS, **{"pre_tokenizer": {"type": "WhitespaceSplit"}} | parts)


def word_piece_json(**parts: Any) -> dict[str, Any]:
    """As of BERT: words are cut at punctuation, so that no text can give `[SEP]`, only `[UNK]`."""
    special = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    vocab = special | {"before": 4, "##s": 5, "[": 6, "]": 7, "sep": 8}
    model: dict[str, Any] = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    normalizer: dict[str, Any] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    normalizer |= {"strip_accents": None, "lowercase": True}
    around = {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    return tokenizer_json(model, special, **around | parts)


def replaced(*pairs: tuple[str, str]) -> dict[str, Any]:
    """A normalizer that replaces one text by another, one pair after the other."""
    steps = [{"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in pairs]
    return {"type": "Sequence", "normalizers": steps}


def write(path: Path, model: object) -> str:
    path.write_text(json.dumps(model))
    return str(path)
