"""What the machine has: cores, and memory that a control group may limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenmill.engines.machine import current_memory, default_workers, machine_memory, peak_memory


@pytest.fixture
def eight_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (8 << 30) // 4096}.__getitem__)


@pytest.mark.usefixtures("eight_gigabytes")
@pytest.mark.parametrize(("limit", "memory"), [("max", 8 << 30), (str(2 << 30), 2 << 30), (str(64 << 30), 8 << 30)])
def test_the_memory_is_that_of_the_machine_or_of_its_control_group_if_less(
    tmp_path: Path, limit: str, memory: int
) -> None:
    proc, mount = tmp_path / "cgroup", tmp_path / "fs"
    (mount / "job").mkdir(parents=True)
    proc.write_text("0::/job\n")
    (mount / "job" / "memory.max").write_text(f"{limit}\n")
    assert machine_memory(proc, mount) == memory


@pytest.mark.usefixtures("eight_gigabytes")
def test_the_limit_of_a_control_group_above_counts_in_either_version(tmp_path: Path) -> None:
    proc, mount = tmp_path / "cgroup", tmp_path / "fs"
    (mount / "user" / "job").mkdir(parents=True)
    proc.write_text("0::/user/job\n")
    (mount / "user" / "memory.max").write_text("5000\n")
    (mount / "user" / "job" / "memory.max").write_text("max\n")
    assert machine_memory(proc, mount) == 5000
    (mount / "memory" / "job").mkdir(parents=True)
    (mount / "memory" / "job" / "memory.limit_in_bytes").write_text("7000\n")
    proc.write_text("5:cpu:/x\n3:memory:/job\n")
    assert machine_memory(proc, mount) == 7000
    assert machine_memory(tmp_path / "absent", mount) == 8 << 30


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (4, 3), (10, 8), (64, 51)])
def test_workers_are_80_percent_of_the_cores_by_default(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert default_workers() == workers


def test_the_memory_of_this_process_is_at_most_its_peak() -> None:
    assert 10_000_000 < current_memory() <= peak_memory()
