"""Engines: where and when units run. The same bytes come from each of them."""

from __future__ import annotations

from typing import Protocol

from tokenmill.encode import Encoder
from tokenmill.job.prepare import Job
from tokenmill.output.plan_file import Units
from tokenmill.records import Ledger, StageSeconds, Unit


class Engine(Protocol):  # engines inherit, for the two methods that only one of them needs
    """Runs units with `run_unit`; it schedules, and contains no stage."""

    def warm_up(self, job: Job, units: Units) -> None:
        """Start what takes time to start; the tokenizer is being checked meanwhile."""

    def run(self, job: Job, units: Units, encoder: Encoder, monitor: Monitor) -> None:
        """Run all units with this encoder, inside `job.budget`."""
        ...

    def close(self) -> None:
        """End whatever was started."""


class Monitor(Protocol):
    """What an engine reports to. Both calls may raise, to stop the run."""

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        """So much was added to the books, from so many bytes of input, in so much CPU time."""
        ...

    def worker(self, index: int, unit: Unit | None, memory: int) -> None:
        """A worker process is at this unit, and takes so much memory."""
        ...
