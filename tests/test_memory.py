"""The memory budget: what it is by default, what follows from it, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run, texts
from tokenmill.config import Config
from tokenmill.engines.auto import choose
from tokenmill.errors import ConfigError
from tokenmill.memory import MB, READ_AHEAD_BYTES, _cgroup_limits, derive_budget, machine_memory
from tokenmill.progress import size


def config(memory: str | None = None, workers: int | None = None) -> Config:
    return Config(inputs=("in",), output=Path("out"), max_memory=memory, num_workers=workers)  # type: ignore[arg-type]


def test_the_default_is_half_of_what_there_is() -> None:
    assert derive_budget("streaming", config()).total == machine_memory() // 2


@pytest.mark.parametrize("engine", ["enhanced", "streaming", "ultra", "extreme"])
def test_a_budget_too_small_names_the_least_that_would_do(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"the least that would do is (\d+)MB") as error:
        derive_budget(engine, config("100MB"))
    least = str(error.value).rsplit(" ", 1)[1]
    assert derive_budget(engine, config(least)).workers == 1


@pytest.mark.parametrize("engine", ["ultra", "extreme"])
def test_workers_are_as_many_as_the_budget_allows(engine: str) -> None:
    assert derive_budget(engine, config("64GB", 16)).workers == 16
    few = derive_budget(engine, config("1500MB", 16))
    assert 2 <= few.workers < 16
    assert few.worker_bytes * few.workers <= 1500 * MB


def sizes(count: int) -> list[int]:
    """Of so many equal units; less than none: the first of them is larger than all others together."""
    return [1] * count if count > 0 else [-2 * count, *[1] * -count]


@pytest.mark.parametrize(
    ("workers", "count", "memory", "engine"),
    [
        (1, 100, "8GB", "streaming"),
        (2, 100, "8GB", "extreme"),
        (16, 1000, "64GB", "ultra"),
        (16, 1, "64GB", "extreme"),
        (16, -1000, "64GB", "extreme"),
        (2, 100, "391MB", "streaming"),
    ],
)
def test_auto_chooses_by_units_workers_and_memory(
    workers: int, count: int, memory: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.engines.auto.available_cores", lambda: 16)
    budget, why = choose(config(memory, workers), sizes(count))
    assert budget.engine == engine
    assert why


def test_a_run_over_its_budget_says_so(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tokenmill.memory.SINGLE_BYTES", 1)
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
