"""A generated corpus whose statistics are like those of real text.

Words are Zipf-distributed: common ones from the bundled tokenizer's own vocabulary, in its order, which is about that
of their frequency; a long tail of rare ones put together from pieces. Between them stand numbers, tickers, names,
markup and words of other scripts; documents are from a line to a book long. docs/performance.md compares it with real
text.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

SHORT = """the of and to in a is that for on was with as by it at from be are an this or his which he were not have but
has had their its we they been I who one you all more can there other will would some her time if no when so up out only
"""
BATCH = 4096
ZIPF = 1.02
ZIPF_SHIFT = 2.7
RARE = 0.035
NUMBERS = 0.02
MEDIAN_WORDS = 330
SPREAD = 1.25
MOST_WORDS = 200_000
SEPARATORS = (" ", ", ", ". ", ".\n\n", " - ", "; ", ' "', '" ', " (", ") ")
SEPARATOR_SHARES = (0.855, 0.055, 0.045, 0.012, 0.006, 0.004, 0.006, 0.006, 0.0055, 0.0055)
# First and last letter, and about half of the most letters in a word: Cyrillic, Greek, Arabic, Han.
SCRIPTS = ((0x430, 0x450, 7), (0x3B1, 0x3CA, 6), (0x627, 0x64A, 5), (0x4E00, 0x5600, 2))
MARKUP = (
    "<p>",
    "</p>",
    '<a href="/news/{}">',
    "</a>",
    "<li>",
    "</li>",
    "## {}",
    "`{}()`",
    "{}: {},",
    "https://example.org/{}",
)


@cache
def _words() -> list[str]:
    """Common words, the most frequent first: short ones that every text is full of, then the bundled vocabulary."""
    data: dict[str, Any] = json.loads(files("tokenmill").joinpath("data/gpt-neox-20b.json").read_bytes())
    by_id = sorted(data["model"]["vocab"].items(), key=lambda item: item[1])
    # Its shortest entries are pieces, not words.
    longer = (token[1:] for token, _ in by_id if re.fullmatch(r"Ġ[A-Za-z]{4,14}", token))
    return list(dict.fromkeys([*SHORT.split(), *longer]))


@cache
def _pieces() -> list[str]:
    """What rare words are put together from."""
    return [w.lower() for w in _words() if len(w) <= 5][:1500]


class Generator:
    """Documents without end, always the same for the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        words = _words()
        self._table = np.array(words, dtype=object)
        self._shares = _zipf(len(words))
        self._pieces = np.array(_pieces(), dtype=object)
        self._separators = np.array(SEPARATORS, dtype=object)
        self._separator_shares = np.cumsum(SEPARATOR_SHARES)
        self._rare, self._number, self._marks = self._rare_words(), self._numbers(), self._markup()
        self._foreign = [self._script(*script) for script in SCRIPTS]

    def __iter__(self) -> Iterator[str]:
        while True:
            yield self.document()

    def document(self) -> str:
        length = int(np.clip(self._random.lognormal(np.log(MEDIAN_WORDS), SPREAD), 3, MOST_WORDS))
        kind = self._random.random()
        table, shares = self._table, self._shares
        if kind < 0.06:
            table, shares = self._foreign[int(self._random.integers(len(self._foreign)))]
        words = table[np.searchsorted(shares, self._random.random(length))]
        self._replace(words, RARE, self._rare)
        self._replace(words, 0.12 if kind > 0.85 else NUMBERS, self._number)
        if kind > 0.94:
            self._replace(words, 0.15, self._marks)
        parts = np.empty(2 * length, dtype=object)
        parts[0::2] = words
        parts[1::2] = self._separators[np.searchsorted(self._separator_shares, self._random.random(length) * 0.999)]
        return "".join(parts.tolist())

    def _replace(self, words: Any, share: float, stream: Iterator[str]) -> None:
        places = np.flatnonzero(self._random.random(len(words)) < share)
        words[places] = list(islice(stream, len(places)))

    def _rare_words(self) -> Iterator[str]:
        while True:
            pieces = self._pieces[self._random.integers(len(self._pieces), size=(BATCH, 3))].tolist()
            forms = self._random.integers(1, 6, size=BATCH).tolist()
            for (a, b, c), form in zip(pieces, forms, strict=True):
                word = a + b if form < 4 else a + b + c
                yield word.capitalize() if form % 2 else word

    def _numbers(self) -> Iterator[str]:
        while True:
            values = self._random.lognormal(4, 3, size=BATCH).tolist()
            letters = self._random.integers(65, 91, size=(BATCH, 4)).tolist()
            for kind, (value, ticker) in enumerate(zip(values, letters, strict=True)):
                yield _number(kind % 6, value, ticker)

    def _markup(self) -> Iterator[str]:
        while True:
            for form in MARKUP:
                yield form.format(next(self._rare), next(self._number))

    def _script(self, first: int, last: int, length: int) -> tuple[Any, Any]:
        """Words of another script, and their shares."""
        count = 3000
        lengths = self._random.integers(1, 2 * length, size=count)
        letters = first + (self._random.beta(1, 2, size=int(lengths.sum())) * (last - first)).astype(int)
        text = "".join(map(chr, letters))
        ends = np.cumsum(lengths)
        words = [text[end - size : end] for end, size in zip(ends, lengths, strict=True)]
        return np.array(words, dtype=object), _zipf(count)


def _number(kind: int, value: float, ticker: list[int]) -> str:
    match kind:
        case 0:
            return f"{value:,.2f}"
        case 1:
            return f"{value % 100:.1f}%"
        case 2:
            return f"${value:,.0f}"
        case 3:
            return f"{1950 + int(value) % 80}-{1 + int(value) % 12:02d}-{1 + int(value) % 28:02d}"
        case 4:
            return "".join(map(chr, ticker[: 2 + int(value) % 3]))
        case _:
            return str(int(value))


def _zipf(count: int) -> Any:
    """Cumulative shares of ranks, by the law of Zipf and Mandelbrot."""
    weights = 1 / (np.arange(1, count + 1) + ZIPF_SHIFT) ** ZIPF
    cumulative = np.cumsum(weights)
    return cumulative / cumulative[-1]


def write_corpus(folder: Path, size: int, shards: int = 16, seed: int = 1) -> None:
    """About `size` bytes of generated text as gzipped JSON Lines."""
    documents = iter(Generator(seed))
    for shard in range(shards):
        written = 0
        with gzip.open(folder / f"generated-{shard:04d}.jsonl.gz", "wb", compresslevel=1) as out:
            while written < size // shards:
                text = next(documents)
                written += len(text.encode())
                out.write(json.dumps({"id": f"{shard}-{written}", "text": text}, ensure_ascii=False).encode() + b"\n")
