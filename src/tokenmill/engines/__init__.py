"""Engines: where and when units run. The same bytes come from each of them."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from tokenmill.config import nearest
from tokenmill.encode import Encoder
from tokenmill.errors import ConfigError
from tokenmill.job import Job
from tokenmill.plan import Units
from tokenmill.progress import Monitor

# Each is the class NAMEEngine of the module of that name, imported when it is chosen.
ENGINES = ("enhanced", "streaming", "ultra", "extreme")
AUTO = "auto"


class Engine(Protocol):  # engines inherit, for the two methods that only one of them needs
    """Runs units with `run_unit`; it schedules, and contains no stage."""

    def warm_up(self, job: Job, units: Units) -> None:
        """Start what takes time to start; the tokenizer is being checked meanwhile."""

    def run(self, job: Job, units: Units, encoder: Encoder, monitor: Monitor) -> None:
        """Run all units with this encoder, inside `job.budget`."""
        ...

    def close(self) -> None:
        """End whatever was started."""


def get_engine(name: str) -> Engine:
    check_engine(name)
    engine: Engine = getattr(import_module(f"tokenmill.engines.{name}"), f"{name.capitalize()}Engine")()
    return engine


def check_engine(name: str) -> None:
    if name not in (*ENGINES, AUTO):
        raise ConfigError(f"engine: there is no engine {name!r}{nearest(name, (*ENGINES, AUTO))}")
