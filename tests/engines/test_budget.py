"""The memory budget: what it is by default, what follows from it, and when it is refused."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Run, texts
from tokenmill.config import Config
from tokenmill.engines.auto import choose
from tokenmill.engines.budget import MB, READ_AHEAD_BYTES, derive_budget
from tokenmill.engines.machine import _cgroup_limits, default_workers
from tokenmill.errors import ConfigError
from tokenmill.messages import size


def config(memory: str | None = None, workers: int | None = None) -> Config:
    return Config(inputs=("in",), output=Path("out"), max_memory=memory, num_workers=workers)  # type: ignore[arg-type]


def let_there_be(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))


@pytest.mark.parametrize(("limit", "budget"), [("max", 4 << 30), (str(2 << 30), 1 << 30), (str(64 << 30), 4 << 30)])
def test_the_default_is_half_of_what_the_machine_or_its_control_group_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, budget: int
) -> None:
    """A machine of 8 GiB."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (8 << 30) // 4096}.__getitem__)
    proc, mount = tmp_path / "cgroup", tmp_path / "fs"
    (mount / "job").mkdir(parents=True)
    proc.write_text("0::/job\n")
    (mount / "job" / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr("tokenmill.engines.machine._cgroup_limits", partial(_cgroup_limits, proc, mount))
    found = derive_budget("streaming", config())
    assert found.total == budget
    assert f"memory budget {size(budget)} (half of the machine's)" in str(found)
    assert derive_budget("streaming", config("3GB")).total == 3000 * MB


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (4, 3), (10, 8), (64, 51)])
def test_workers_are_80_percent_of_the_cores_by_default(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int
) -> None:
    let_there_be(cores, monkeypatch)
    assert default_workers() == workers
    assert derive_budget("extreme", config("64GB")).workers == workers


@pytest.mark.parametrize("engine", ["enhanced", "streaming", "ultra", "extreme"])
def test_a_budget_too_small_names_the_least_that_would_do(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"the least that would do is (\d+)MB") as error:
        derive_budget(engine, config("100MB"))
    least = str(error.value).rsplit(" ", 1)[1]
    assert derive_budget(engine, config(least)).workers == 1


@pytest.mark.parametrize(("engine", "few"), [("ultra", 3), ("extreme", 6)])
def test_workers_are_as_many_as_the_budget_allows(engine: str, few: int) -> None:
    assert derive_budget(engine, config("64GB", 16)).workers == 16
    found = derive_budget(engine, config("1500MB", 16))
    assert found.workers == few
    assert "(16 were asked for; that is what the budget, the engine and the units allow)" in str(found)


def test_a_worker_of_ultra_may_use_its_share_and_there_are_no_more_workers_than_units() -> None:
    found = derive_budget("ultra", config("1500MB", 16), units=2)
    assert found.workers == 2
    # The parent and what is read ahead are not theirs.
    assert 2 * found.worker_bytes == 1500 * MB - 200 * MB - 4 * found.read_ahead


EVEN, FEW, UNEVEN, JUST_EVEN = [1] * 1000, [1] * 31, [101, *[1] * 1499], [100, *[1] * 1500]


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
        (16, 16, FEW, "64GB", "extreme", "few units (31) for 16 workers"),
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
    let_there_be(cores, monkeypatch)
    budget, said = choose(config(memory, workers), sizes)
    assert budget.engine == engine
    assert why in said


def test_a_run_says_which_engine_was_chosen_and_why(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    let_there_be(16, monkeypatch)
    with caplog.at_level(logging.INFO, "tokenmill"):
        run(num_workers=3, max_memory="2GB")
    assert "engine extreme, memory budget 2.0 GB: tokenizer threads: 3" in caplog.text
    assert "(chosen: 3 workers: threads that share a tokenizer are the fastest here)" in caplog.text


def test_a_run_over_its_budget_says_so(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tokenmill.engines.budget.SINGLE_BYTES", 1)
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(engine="streaming", max_memory="1MB")
    assert "over the budget of 1.0 MB" in caplog.text


def test_the_limit_of_a_control_group_counts(tmp_path: Path) -> None:
    proc, mount = tmp_path / "cgroup", tmp_path / "fs"
    (mount / "user" / "job").mkdir(parents=True)
    proc.write_text("0::/user/job\n")
    (mount / "user" / "memory.max").write_text("5000\n")
    (mount / "user" / "job" / "memory.max").write_text("max\n")
    assert _cgroup_limits(proc, mount) == [5000]
    (mount / "memory" / "job").mkdir(parents=True)
    (mount / "memory" / "job" / "memory.limit_in_bytes").write_text("7000\n")
    proc.write_text("5:cpu:/x\n3:memory:/job\n")
    assert _cgroup_limits(proc, mount) == [7000]
    assert _cgroup_limits(tmp_path / "absent", mount) == []


def test_read_ahead_is_taken_from_what_the_workers_do_not_need() -> None:
    small, large = (derive_budget("ultra", config(total, 2)) for total in ("1100MB", "8GB"))
    assert 0 < small.read_ahead < large.read_ahead == READ_AHEAD_BYTES
    for budget in (small, large):
        assert budget.worker_bytes * budget.workers + 4 * budget.read_ahead <= budget.total
        assert f"{size(budget.read_ahead)} of each next file read ahead" in str(budget)
