"""auto: which engine to take, and why.

Measured (docs/engines.md): threads that share one warm tokenizer are the fastest on few cores, and the only way to use
several on one file. But parsing and packing hold Python's lock for about a fifth of the time, so beyond a handful of
cores processes win.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.config import Config
from tokenmill.errors import ConfigError
from tokenmill.memory import Budget, available_cores, default_workers, derive_budget
from tokenmill.records import Unit

MOST_THREADS = 4


def choose(config: Config, units: Sequence[Unit]) -> tuple[Budget, str]:
    """A budget, which names the engine, and the reason for it."""
    workers = config.num_workers or default_workers()
    if available_cores() == 1 or workers == 1 or not units:
        return derive_budget("streaming", config), "one core or one worker"
    if len(units) >= 2 * workers > 2 * MOST_THREADS:
        name, why = "ultra", f"{len(units)} units for {workers} workers"
    else:
        few = f"{workers} workers" if workers <= MOST_THREADS else f"only {len(units)} units for {workers} workers"
        name, why = "extreme", f"{few}: threads that share a tokenizer are the fastest here"
    try:
        budget = derive_budget(name, config)
    except ConfigError:
        budget = None
    if budget is None or budget.workers == 1:
        return derive_budget("streaming", config), f"the memory budget is too small for {name} to be of use"
    return budget, why
