"""The corpus that is generated if none is given."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from tokenmill.benchmark.generate import Generator


def test_the_generated_corpus_is_the_same_for_the_same_seed_and_varied() -> None:
    first, again, other = (list(islice(Generator(seed), 300)) for seed in (1, 1, 2))
    assert first == again != other
    lengths = sorted(map(len, first))
    assert lengths[-1] > 20 * lengths[len(lengths) // 2]
    everything = "".join(first)
    for kind in ("\n\n", "%", "$", "<p>", "https://", "а", "α"):
        assert kind in everything
    words = Counter(everything.split())
    assert words.most_common(1)[0][0] == "the"
    rare = sum(1 for count in words.values() if count == 1)
    assert rare > len(words) / 3  # a long tail
