"""auto: which engine to choose, and why.

Measured (docs/engines.md): threads that share one warm tokenizer are the fastest on few cores, and the only way to use
several on one file. But parsing and packing hold Python's lock for about a fifth of the time, so beyond a handful of
cores processes win.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.config import Config
from tokenmill.engines.budget import derive_budget
from tokenmill.engines.cost import Budget
from tokenmill.engines.machine import available_cores, default_workers
from tokenmill.engines.registry import engine_class
from tokenmill.errors import ConfigError
from tokenmill.messages import size

MOST_THREADS = 4


def choose_engine(config: Config, sizes: Sequence[int]) -> tuple[Budget, str]:
    """A budget, which names the engine, and the reason for it, from the sizes of the units."""
    workers = config.num_workers or default_workers()
    streaming = engine_class("streaming")
    if available_cores() == 1 or workers == 1 or not sizes:
        return derive_budget(streaming, config, by_auto=True), "one core, one worker or nothing to read"
    name, why = _choose_parallel(workers, sizes)
    try:
        budget = derive_budget(engine_class(name), config, len(sizes))
    except ConfigError:
        budget = None
    if budget is None or budget.workers == 1:
        return derive_budget(streaming, config, by_auto=True), f"the memory budget is too small for {name} to be of use"
    return budget, why


def _choose_parallel(workers: int, sizes: Sequence[int]) -> tuple[str, str]:
    largest, total = max(sizes), sum(sizes)
    if workers <= MOST_THREADS:
        return "extreme", f"{workers} workers: threads that share a tokenizer are the fastest here"
    if len(sizes) < 2 * workers:
        units = "1 unit" if len(sizes) == 1 else f"only {len(sizes)} units"
        return "extreme", f"{units} for {workers} workers: threads can share a unit"
    if largest > total / workers:
        # A compressed file cannot be split, so one worker would still be at it when the others are done.
        return "extreme", f"one unit has {size(largest)} of {size(total)}: too uneven for {workers} processes"
    return "ultra", f"{len(sizes)} units for {workers} workers"
