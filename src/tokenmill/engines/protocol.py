"""What the engine ultra and its worker processes send each other. Every message is pickled, with all that it has."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.config import EncoderChoice
from tokenmill.records import Ledger, StageSeconds, Unit
from tokenmill.unit.setup import UnitSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What every worker is given when it starts. Units, and the lock of the output, are not part of it."""

    setup: UnitSetup
    encoder: EncoderChoice
    memory: int
    """The worker's share."""
    room: int
    """What of it is room for large documents."""
    windows: int | None
    """How much of its output a decompressor may keep."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has loaded everything and waits for a unit."""


@dataclass(frozen=True, slots=True)
class Task:
    """A unit, and the name of the encoder that the parent has checked."""

    unit: Unit
    encoder: str


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What was done since the last report, and the memory of the worker."""

    ledger: Ledger
    consumed: int
    stage_seconds: StageSeconds
    memory: int


@dataclass(frozen=True, slots=True)
class Done:
    """The unit is committed. `retire`: the worker is over its share of memory and is to be replaced."""

    retire: bool


@dataclass(frozen=True, slots=True)
class Retire:
    """The worker is over its share of memory; another one continues its unit from the checkpoint."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The unit failed with this error; the worker is ready for another one."""

    error: Exception
