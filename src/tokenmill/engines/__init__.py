"""Engines: where and when units run. The same bytes come from each of them."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from tokenmill.encode import Encoder
from tokenmill.job import Job
from tokenmill.plan import Units
from tokenmill.progress import Monitor


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
    """The class NAMEEngine of the module of that name, imported when it is chosen."""
    engine: Engine = getattr(import_module(f"tokenmill.engines.{name}"), f"{name.capitalize()}Engine")()
    return engine
