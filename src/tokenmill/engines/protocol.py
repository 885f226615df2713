"""What the engine ultra and its workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.job.prepare import Job
from tokenmill.records import Ledger, StageSeconds, Unit


@dataclass(frozen=True, slots=True)
class Setup:
    """What every worker is given: the job without its units."""

    job: Job
    memory: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has loaded everything and waits for a unit."""


@dataclass(frozen=True, slots=True)
class Task:
    """A unit, and the name of the encoder that the parent has checked."""

    unit: Unit
    encoder: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What was done since the last report, and the memory of the worker."""

    ledger: Ledger
    consumed: int
    stage_seconds: StageSeconds
    memory: int


@dataclass(frozen=True, slots=True)
class Done:
    """The unit is committed. `retire`: the worker is over its share of memory and makes room for another."""

    retire: bool


@dataclass(frozen=True, slots=True)
class Retire:
    """The worker is over its share of memory; its unit goes on from its checkpoint in another one."""


@dataclass(frozen=True, slots=True)
class Failed:
    error: Exception
