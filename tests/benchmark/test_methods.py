"""Ways to call a tokenizer."""

from __future__ import annotations

import numpy as np
import xxhash

from tests.conftest import ids
from tokenmill.benchmark.methods import method_names, run_method


def test_every_method_gives_the_ids_of_the_reference(tiny_tokenizer: str) -> None:
    documents = ["a b", "ünï", "<|endoftext|>", "x" * 1000]
    state = xxhash.xxh3_128()
    for text in documents:
        state.update(np.array(ids(text), "<u4").tobytes() + b"|")
    assert len(method_names()) >= 10
    for name in method_names():
        found = run_method(name, documents, tiny_tokenizer)
        assert (found["tokens"], found["digest"]) == (1021, state.hexdigest()), name
