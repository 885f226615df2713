"""Which tokenizers cannot be used, checked once when one is loaded; what single documents become is checked later.

The questions are put to Hugging Face tokenizers, which is right by definition: does it give the ids in the file, the
same ones each time, and no special token for ordinary text?
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

from tokenmill.config import SpecialTokens
from tokenmill.encode.resolve import Tokenizer
from tokenmill.encode.special import ForgeryFinder
from tokenmill.encode.torture import ORDINARY_TEXTS
from tokenmill.errors import TokenizerError
from tokenmill.records import TokenBatch

log = logging.getLogger("tokenmill")


def admit(tokenizer: Tokenizer, mode: SpecialTokens, library: Any, texts: list[str], batch: TokenBatch) -> None:
    """Refuse a tokenizer that cannot be used; `batch` is what its library made of the torture set, `texts`."""
    plain = mode is not SpecialTokens.MATCH
    _refuse_other_ids(tokenizer, plain, library)
    _refuse_chance(tokenizer, plain, library)
    if plain:
        _look_for_forgery(tokenizer, mode, texts, batch)


def _refuse_other_ids(tokenizer: Tokenizer, plain: bool, library: Any) -> None:
    """The library numbers added tokens itself, e.g. without the gaps that the file has. fastokens goes by the file."""
    for token, declared in tokenizer.added.items():
        # As plain text only the model can give a special token.
        source = library.model if plain and token in tokenizer.special else library
        if (given := source.token_to_id(token)) not in (None, declared):
            raise TokenizerError(
                f"tokenizer {tokenizer.name} declares the id {declared} for its token {token!r}, but Hugging Face "
                f"tokenizers assigns {given}. Number the added tokens after the vocabulary, without gaps"
            )


def _refuse_chance(tokenizer: Tokenizer, plain: bool, library: Any) -> None:
    """Of added tokens that are the same once normalized, the library finds one or another from load to load."""
    normalizer = library.normalizer
    same: defaultdict[str, list[Any]] = defaultdict(list)
    for token in library.get_added_tokens_decoder().values():
        if normalizer is not None and token.normalized:
            same[normalizer.normalize_str(token.content)].append(token)
    for tokens in same.values():
        if len(tokens) > 1 and not (plain and all(t.special for t in tokens)):
            names = " and ".join(sorted(repr(t.content) for t in tokens))
            raise TokenizerError(
                f"tokenizer {tokenizer.name} has the added tokens {names}, which are the same once normalized: which "
                "of them a text gives would be random. Remove all but one"
            )


def _look_for_forgery(tokenizer: Tokenizer, mode: SpecialTokens, texts: list[str], batch: TokenBatch) -> None:
    """Single documents that give a special token are rejected later; here it is about all of them."""
    forged = ForgeryFinder(tokenizer.reserved, tokenizer.vocab_size).find(batch)
    if not forged:
        return
    index, token = next(iter(forged.items()))
    if index < len(ORDINARY_TEXTS):
        raise TokenizerError(
            f"tokenizer {tokenizer.name} gives its special token {token!r} for ordinary text, so nearly every document "
            "would be rejected. Choose another --eos-token or --bos-token, or another tokenizer (or use "
            "--special-tokens-in-text match to keep such tokens)"
        )
    if mode is SpecialTokens.PLAIN:
        log.warning(
            "tokenizer %s: the text %r gives the special token %r even as plain text. Documents with such text are "
            "rejected",
            tokenizer.name,
            texts[index][:40],
            token,
        )
