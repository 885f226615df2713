"""The hot path stays native: what Python does grows with documents and blocks, never with tokens.

Counted, not timed, so that a machine's mood cannot hide a change that makes each token a Python object.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.conftest import Run, texts


def corpus(documents: int, length: int) -> bytes:
    rng = random.Random(documents)
    letters = "abcdefghij   "
    return texts(*("".join(rng.choices(letters, k=length)) for _ in range(documents)))


def count_calls(work: Any) -> int:
    """How many functions are called, Python's and native ones, on this thread."""
    count = 0

    def hook(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event in ("call", "c_call") and "tokenmill" in frame.f_code.co_filename:
            count += 1

    sys.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def extra_calls(inputs: Path, run: Run, engine: str, first: bytes, second: bytes) -> int:
    """Calls that the second corpus takes more than the first, so that what a run costs by itself does not count."""
    counts = []
    for number, data in enumerate((first, second)):
        (inputs / "a.jsonl").write_bytes(data)
        output = inputs.parent / f"out{number}"
        counts.append(count_calls(lambda output=output: run(output=output, engine=engine, seq_len=2048)))
    return counts[1] - counts[0]


@pytest.mark.parametrize(("engine", "most"), [("streaming", 7), ("enhanced", 15)])
def test_calls_per_document(inputs: Path, run: Run, engine: str, most: int) -> None:
    extra = extra_calls(inputs, run, engine, corpus(1000, 100), corpus(3000, 100))
    assert extra / 2000 < most


def test_calls_per_megabyte_do_not_depend_on_the_tokens(inputs: Path, run: Run) -> None:
    """The tiny tokenizer makes every byte a token: a call for each would be a million."""
    extra = extra_calls(inputs, run, "streaming", corpus(4, 500_000), corpus(12, 500_000))
    assert extra / 4 < 300


def test_no_token_is_a_python_object(inputs: Path, run: Run) -> None:
    """Ids, rows and buffers take about 8 bytes a token here; a list of them would take 8 more, or 36."""
    (inputs / "a.jsonl").write_bytes(corpus(1, 100))
    run(output=inputs.parent / "warm")  # what is imported and cached is not counted
    (inputs / "a.jsonl").write_bytes(corpus(1, 4_000_000))
    tracemalloc.start()
    try:
        run(seq_len=2048)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 11 * 4_000_000
