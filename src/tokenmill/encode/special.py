"""Finds special tokens: written literally in texts, and in the ids that texts became.

The literals cost one memchr per text. The ids are what counts: a normalizer may turn other text into a special token,
and some models know the literals of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile

import numpy as np

from tokenmill.records import TokenBatch

# Characters of special tokens that are rare in prose, rarest first. A text without the character cannot hold the
# token, and looking for one character runs at memory speed.
_RARE = "|｜▁[]<>_"


class SpecialTokenFinder:
    """Counts literal special tokens: SpecialTokenFinder(["</s>"]).count(["a", "b</s></s>"]) -> {1: ("</s>", 2)}."""

    def __init__(self, special: Iterable[str]) -> None:
        by_sign: dict[str, list[str]] = {}
        for token in filter(None, special):
            sign = next((c for c in _RARE if c in token), token[:1])
            by_sign.setdefault(sign, []).append(token)
        self._by_sign = [(sign, _beginning(tokens), tokens) for sign, tokens in by_sign.items()]

    def count(self, texts: Sequence[str]) -> dict[int, tuple[str, int]]:
        """Index of text -> the first token found in it, and how many there are of any."""
        found: dict[int, tuple[str, int]] = {}
        for sign, beginning, tokens in self._by_sign:
            for index, text in enumerate(texts):
                # Tables and programs are full of the sign, but not of what all tokens with it begin with.
                if sign in text and beginning in text:
                    for token in tokens:
                        if count := text.count(token):
                            first, before = found.get(index, (token, 0))
                            found[index] = (first, before + count)
        return found


class ForgeryFinder:
    """Finds documents with a special token among their ids: EOS and BOS are added later, so no text may give one."""

    def __init__(self, reserved: Mapping[int, str], vocab_size: int) -> None:
        self._reserved = reserved
        self._ids = np.array(sorted(reserved), np.uint32)
        # Special tokens stand at one end of a vocabulary, or at both. The widest gap between them has nearly all other
        # ids: if a batch stays inside it, which takes a tenth of the time of a search, there is nothing to search for.
        self._below, self._above = max(pairwise([-1, *sorted(reserved), vocab_size]), key=lambda gap: gap[1] - gap[0])
        self._any_below, self._any_above = self._below >= 0, self._above < vocab_size

    def find(self, batch: TokenBatch) -> dict[int, str]:
        """Index of document -> the first special token among its ids."""
        ids = batch.token_ids
        if not len(ids) or not (
            (self._any_below and ids.min() <= self._below) or (self._any_above and ids.max() >= self._above)
        ):
            return {}
        hits = np.flatnonzero(np.isin(ids, self._ids))
        documents, first = np.unique(np.searchsorted(batch.offsets, hits, side="right") - 1, return_index=True)
        tokens = (self._reserved[i] for i in ids[hits[first]].tolist())
        return dict(zip(documents.tolist(), tokens, strict=True))


def _beginning(tokens: list[str]) -> str:
    """What all of them begin with: ["<|a|>", "<|b|>"] -> "<|"."""
    same = takewhile(lambda column: len(set(column)) == 1, zip(*tokens, strict=False))
    return "".join(column[0] for column in same)
