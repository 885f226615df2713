"""auto: which engine is chosen for which machine and which units, and that a run says why."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.conftest import Run, texts
from tokenmill.config import Config
from tokenmill.engines.auto import choose_engine

EVEN, FEW, UNEVEN, JUST_EVEN = [1] * 1000, [1] * 31, [101, *[1] * 1499], [100, *[1] * 1500]


def set_cores(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))


@pytest.mark.parametrize(
    ("cores", "workers", "sizes", "memory", "engine", "why"),
    [
        (1, 16, EVEN, "64GB", "streaming", "one core"),
        (16, 1, EVEN, "64GB", "streaming", "one worker"),
        (16, 16, [], "64GB", "streaming", "nothing to read"),
        (16, 2, EVEN, "64GB", "extreme", "2 workers: threads that share a tokenizer are the fastest here"),
        (16, 4, EVEN, "64GB", "extreme", "4 workers: threads that share a tokenizer are the fastest here"),
        (16, 5, EVEN, "64GB", "ultra", "1000 units for 5 workers"),
        (16, None, EVEN, "64GB", "ultra", "1000 units for 13 workers"),
        (16, 16, [7], "64GB", "extreme", "1 unit for 16 workers: threads can share a unit"),
        (16, 16, FEW, "64GB", "extreme", "only 31 units for 16 workers: threads can share a unit"),
        (16, 16, [*FEW, 1], "64GB", "ultra", "32 units for 16 workers"),
        (16, 16, UNEVEN, "64GB", "extreme", "one unit has 101 B of 1.6 kB: too uneven for 16 processes"),
        (16, 16, JUST_EVEN, "64GB", "ultra", "1501 units for 16 workers"),
        (16, 2, EVEN, "391MB", "streaming", "the memory budget is too small for extreme to be of use"),
        (16, 16, EVEN, "400MB", "streaming", "the memory budget is too small for ultra to be of use"),
        (16, 16, EVEN, "600MB", "streaming", "the memory budget is too small for ultra to be of use"),
        (16, 16, EVEN, "1GB", "ultra", "1000 units for 16 workers"),
    ],
    ids=lambda value: f"{len(value)} units" if isinstance(value, list) else None,
)
def test_auto_chooses_by_cores_workers_units_and_memory(
    cores: int,
    workers: int | None,
    sizes: list[int],
    memory: str,
    engine: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_cores(cores, monkeypatch)
    config = Config(inputs=("in",), output=Path("out"), max_memory=memory, num_workers=workers)  # type: ignore[arg-type]
    budget, reason = choose_engine(config, sizes)
    assert budget.engine == engine
    assert why in reason


def test_a_run_says_which_engine_was_chosen_and_why(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    set_cores(16, monkeypatch)
    with caplog.at_level(logging.INFO, "tokenmill"):
        run(num_workers=3, max_memory="2GB")
    assert "engine: extreme (auto), 3 threads, 2.0 GB memory budget" in caplog.text
    assert "chosen" not in caplog.text
    with caplog.at_level(logging.DEBUG, "tokenmill"):
        run(num_workers=3, max_memory="2GB", overwrite=True)
    assert "engine extreme, memory budget 2.0 GB: 3 tokenizer threads" in caplog.text
    assert "(chosen: 3 workers: threads that share a tokenizer are the fastest here)" in caplog.text
