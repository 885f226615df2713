"""Texts with the added tokens of a tokenizer: alone, at edges of words and white space, next to and inside each other.

Hugging Face tokenizers looks for added tokens in two passes: in the text those that are not `normalized`, then the
others in what remains, once that is normalized. `lstrip` and `rstrip` take white space, `single_word` wants edges. And
a special token that is to stay text still hides what overlaps it. Another library that does this in a single pass
gives other ids only where two tokens meet.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest

# A tokenizer may have thousands of added tokens, but few kinds of them: those of one kind are treated alike.
MAX_THOROUGH = 64  # no mutant: only speed depends on it
"""Tokens of a kind that are tried in every way; of the others, each in one."""
MAX_NEIGHBOURS = 24  # no mutant: only speed depends on it
"""Tokens that are tried next to each other, of as many kinds as there are."""
MAX_OVERLAPS = 16  # no mutant: only speed depends on it
"""Overlaps that are tried of any two or three kinds."""
MAX_OVERLAPS_SEEN = 50_000  # no mutant: only speed depends on it
MAX_OVERLAP_LENGTH = 64  # no mutant: only memory depends on it

_Kind = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class _Overlap:
    tokens: tuple[str, ...]
    text: str

    def followed_by(self, pair: _Overlap) -> _Overlap:
        """With the second token of a pair, the first of which is the last one here."""
        return _Overlap((*self.tokens, pair.tokens[1]), self.text + pair.text[len(self.tokens[-1]) :])


def added_token_texts(flags: Mapping[str, Hashable]) -> Iterator[str]:
    """Texts for added tokens, given as content -> the flags that decide how it is found."""
    kinds: dict[str, _Kind] = {token: (flag, *_edges(token)) for token, flag in flags.items() if token}
    seen: Counter[_Kind] = Counter()
    for token, kind in kinds.items():
        seen[kind] += 1
        if seen[kind] <= MAX_THOROUGH:
            yield from _alone(token)
            yield from _at_edges(token)
        else:
            yield f"{token} a{token}"
    for a, b in product(_neighbours(kinds), repeat=2):
        yield from (a + b, f"x{a}{b}y {a} {b}  {a}\n{b}")
    yield from _overlaps(kinds)


def _edges(token: str) -> tuple[str, str]:
    first, last = ("word" if c.isalnum() or c == "_" else "space" if c.isspace() else "" for c in token[:1] + token[-1])
    return first, last


def _alone(token: str) -> Iterator[str]:
    """Alone, twice, split, in a sentence and inside a word."""
    half = len(token) // 2
    yield token
    yield token + token
    yield f"before {token} after"
    yield f"a{token}b\n{token}\n"
    yield f" {token} "
    yield token[:half] + " " + token[half:]
    yield token[:half] + token + token[half:]
    yield f"{token}e\u0301 \u00e9"


def _at_edges(token: str) -> Iterator[str]:
    """Beside words and white space of every kind; cut short; in other forms that may be the same once normalized."""
    yield f"fill     {token}     here"
    yield f"\u3000{token}\u00a0x \t\n{token}\r\n\t{token}"
    yield f"1{token}.{token}_\u00e9{token} {token}漢{token}e\u0301"
    yield f"e\u0301 {token}"
    yield f"{token[:-1]} {token[1:]}{token[:-1]}"
    for other in (unicodedata.normalize("NFD", token), token.swapcase(), unicodedata.normalize("NFKC", token)):
        if other != token:
            yield f"{other} x{other}"


def _neighbours(kinds: Mapping[str, _Kind]) -> list[str]:
    """A token of each kind, then a second one of each."""
    by_kind: defaultdict[_Kind, list[str]] = defaultdict(list)
    for token, kind in kinds.items():
        by_kind[kind].append(token)
    in_turn = chain.from_iterable(zip_longest(*(tokens[:2] for tokens in by_kind.values())))
    return [token for token in in_turn if token is not None][:MAX_NEIGHBOURS]


def _overlaps(kinds: Mapping[str, _Kind]) -> Iterator[str]:
    """Tokens that share what one ends and the next begins with: "<ab" and "ab>" -> "<ab>".

    Also three of them: of special tokens that stay text, only what they hide shows which of two was found.
    """
    pairs = list(_limited(kinds, _overlapping(kinds)))
    after: defaultdict[str, list[_Overlap]] = defaultdict(list)
    for pair in pairs:
        after[pair.tokens[0]].append(pair)
    chains = (pair.followed_by(other) for pair in pairs for other in after[pair.tokens[1]])
    for overlap in chain(pairs, _limited(kinds, chains)):
        yield from (overlap.text, f"x {overlap.text} y")


def _overlapping(kinds: Mapping[str, _Kind]) -> Iterator[_Overlap]:
    """Pairs that overlap, in any way; of the tokens that begin alike, one of each kind."""
    by_start: defaultdict[str, dict[_Kind, str]] = defaultdict(dict)
    for token, kind in kinds.items():
        for length in range(1, min(len(token), MAX_OVERLAP_LENGTH)):
            by_start[token[:length]].setdefault(kind, token)
    for first in kinds:
        for length in range(1, min(len(first), MAX_OVERLAP_LENGTH)):
            for second in by_start.get(first[-length:], {}).values():
                yield _Overlap((first, second), first + second[length:])


def _limited(kinds: Mapping[str, _Kind], overlaps: Iterable[_Overlap]) -> Iterator[_Overlap]:
    """A few of any combination of kinds."""
    count: Counter[tuple[_Kind, ...]] = Counter()
    for overlap in islice(overlaps, MAX_OVERLAPS_SEEN):
        combination = tuple(kinds[token] for token in overlap.tokens)
        count[combination] += 1
        if count[combination] <= MAX_OVERLAPS:
            yield overlap
