"""auto: which engine to take, and why.

Measured (docs/engines.md): threads that share one warm tokenizer are the fastest on few cores, and the only way to use
several on one file. But parsing and packing hold Python's lock for about a fifth of the time, so beyond a handful of
cores processes win.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.config import Config
from tokenmill.engines.budget import Budget, derive_budget
from tokenmill.engines.machine import available_cores, default_workers
from tokenmill.errors import ConfigError
from tokenmill.messages import size

MOST_THREADS = 4


def choose(config: Config, sizes: Sequence[int]) -> tuple[Budget, str]:
    """A budget, which names the engine, and the reason for it, from the sizes of the units."""
    workers = config.num_workers or default_workers()
    if available_cores() == 1 or workers == 1 or not sizes:
        return derive_budget("streaming", config), "one core, one worker or nothing to read"
    largest, total = max(sizes), sum(sizes)
    if workers <= MOST_THREADS:
        name, why = "extreme", f"{workers} workers: threads that share a tokenizer are the fastest here"
    elif len(sizes) < 2 * workers:
        name, why = "extreme", f"few units ({len(sizes)}) for {workers} workers: threads share the blocks of a unit"
    elif largest > total / workers:
        # A compressed file cannot be cut, so one worker would sit over it when the others are done.
        name, why = "extreme", f"one unit has {size(largest)} of {size(total)}: too uneven for {workers} processes"
    else:
        name, why = "ultra", f"{len(sizes)} units for {workers} workers"
    try:
        budget = derive_budget(name, config, len(sizes))
    except ConfigError:
        budget = None
    if budget is None or budget.workers == 1:
        return derive_budget("streaming", config), f"the memory budget is too small for {name} to be of use"
    return budget, why
