"""Finds special tokens written literally in texts, at the cost of one memchr per text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

# Characters of special tokens that are rare in prose, rarest first. A text without the character cannot hold the
# token, and looking for one character runs at memory speed.
_RARE = "|｜▁[]<>_"


class SpecialTokenFinder:
    """Counts literal special tokens: SpecialTokenFinder(["</s>"]).count(["a", "b</s></s>"]) -> {1: ("</s>", 2)}."""

    def __init__(self, special: Iterable[str]) -> None:
        by_sign: dict[str, list[str]] = {}
        for token in special:
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


def _beginning(tokens: list[str]) -> str:
    """What all of them begin with: ["<|a|>", "<|b|>"] -> "<|"."""
    same = takewhile(lambda column: len(set(column)) == 1, zip(*tokens, strict=False))
    return "".join(column[0] for column in same)
