"""The hot path stays native: what Python does grows with documents and blocks, never with tokens.

Counted, not timed, so that a machine's mood cannot hide a change that makes each token a Python object.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.conftest import Run, texts


def corpus(documents: int, length: int) -> bytes:
    letters = random.Random(1).randbytes(length // 2 + documents).hex()
    return texts(*(letters[n : n + length] for n in range(documents)))


def count_calls(work: Any) -> int:
    """How many functions are called, Python's and native ones, on this thread and on those that are started."""
    calls = itertools.count()

    def hook(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call") and "tokenmill" in frame.f_code.co_filename:
            next(calls)

    sys.setprofile(hook)
    threading.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return next(calls)


def extra_calls(inputs: Path, run: Run, engine: str, first: bytes, second: bytes) -> int:
    """Calls that the second corpus takes more than the first, so that what a run costs by itself does not count."""
    counts = []
    for number, data in enumerate((first, second)):
        (inputs / "a.jsonl").write_bytes(data)
        output = inputs.parent / f"out{number}"
        counts.append(count_calls(lambda output=output: run(output=output, engine=engine, seq_len=2048)))
    return counts[1] - counts[0]


@pytest.mark.parametrize(("engine", "most"), [("streaming", 5.5), ("extreme", 5.5), ("enhanced", 11)])
def test_calls_per_document(inputs: Path, run: Run, engine: str, most: float) -> None:
    extra = extra_calls(inputs, run, engine, corpus(1000, 100), corpus(3000, 100))
    assert extra / 2000 < most


@pytest.mark.parametrize("engine", ["enhanced", "streaming", "extreme"])
def test_calls_per_megabyte_do_not_depend_on_the_tokens(inputs: Path, run: Run, engine: str) -> None:
    """The tiny tokenizer makes every byte a token: a call for each would be a million."""
    extra = extra_calls(inputs, run, engine, corpus(2, 500_000), corpus(6, 500_000))
    assert extra / 2 < 500


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
