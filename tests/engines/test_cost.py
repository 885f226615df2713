"""The cost of an engine: how many workers a budget is enough for, and how a budget is described."""

from __future__ import annotations

import pytest

from tokenmill.engines.cost import Budget, Cost

ONE_THREAD = Cost(per_worker=40)
PROCESSES = Cost(base=20, per_worker=40, parallel=True)
THREADS = Cost(base=20, per_worker=40, parallel=True, shares_units=True)


def test_the_minimum_is_enough_for_one_worker() -> None:
    assert ONE_THREAD.minimum == 40
    assert PROCESSES.minimum == 60
    assert PROCESSES.workers(60, wanted=8, units=8) == 1


@pytest.mark.parametrize(
    ("cost", "total", "units", "workers"),
    [
        (ONE_THREAD, 1000, 100, 1),
        (PROCESSES, 1000, 100, 8),  # as many as are wanted
        (PROCESSES, 139, 100, 2),  # as many as fit
        (PROCESSES, 140, 100, 3),
        (PROCESSES, 1000, 5, 5),  # one unit each
        (PROCESSES, 1000, 0, 1),
        (THREADS, 1000, 5, 8),  # several at one unit
        (THREADS, 139, 1, 2),
    ],
)
def test_workers_are_limited_by_memory_and_where_they_cannot_share_one_by_units(
    cost: Cost, total: int, units: int, workers: int
) -> None:
    assert cost.workers(total, wanted=8, units=units) == workers


def test_a_budget_is_described_in_one_line() -> None:
    assert str(Budget(total=3_000_000, engine="plain", workers=1)) == "engine plain, memory budget 3.0 MB: one thread"
    full = Budget(
        total=3_000_000,
        engine="wide",
        workers=2,
        read_ahead=5000,
        requested=16,
        of_machine=True,
        description="2 threads",
    )
    assert str(full) == (
        "engine wide, memory budget 3.0 MB (half of the machine's): 2 threads, up to 5.0 kB of each next file read "
        "ahead (16 workers were requested; the budget, the engine and the number of units allow 2)"
    )
