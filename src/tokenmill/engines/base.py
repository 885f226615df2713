"""What an engine is, what it is given, and what it reports to.

    job/execute.py ──Assignment──> Engine ──run_unit──> unit/run.py
                   <───Monitor────┘

An engine decides where and when units run. It calls `run_unit` and contains no stage, so it cannot change a byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tokenmill.config import EncoderChoice
from tokenmill.encode import Encoder
from tokenmill.engines.cost import Budget, Cost
from tokenmill.output.plan_file import Units
from tokenmill.output.schema import Receipt
from tokenmill.records import Ledger, StageSeconds, Unit
from tokenmill.unit.setup import UnitSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What an engine is given: the units to run, and what it may use to run them."""

    setup: UnitSetup
    """What `run_unit` takes. An engine passes it on, and loads encoders with it."""
    encoder: EncoderChoice
    """The encoder that the user chose. Which one it will be is known when the tokenizer is checked."""
    units: Units
    budget: Budget
    prefetch_files: int
    lock_handles: tuple[int, ...]
    """What worker processes must inherit, so that the output directory stays locked while one of them lives."""

    def settle(self, unit: Unit) -> Receipt | None:
        """The receipt of a unit whose worker failed only after the commit, when what was left to do is done, too.

        There is no older receipt: those of units that are run again were removed when the run began.
        """
        receipt = self.setup.receipts.receipt(unit)
        if receipt is not None:
            self.setup.receipts.remove_checkpoint(unit)
        return receipt


class Monitor(Protocol):
    """What an engine reports to. Updates may raise, to stop the run."""

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        """Units came this much further, with so many bytes of input, in so much CPU time."""
        ...

    def finished(self, unit: Unit) -> None:
        """A unit is committed."""
        ...

    def worker(self, index: int, unit: Unit | None, memory: int) -> None:
        """A worker process is at this unit, and takes so much memory."""
        ...


class Engine(ABC):
    """Runs the units of an assignment with `run_unit`, inside its budget."""

    name: ClassVar[str]
    cost: ClassVar[Cost]
    worker: ClassVar[tuple[str, str]] = ("thread", "threads")
    """What it calls a worker, and several."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment

    @classmethod
    def describe(cls, workers: int, share: int) -> str:  # noqa: ARG003 - for engines with workers
        """Its processes and threads in words, when there are so many workers that may use so many bytes each."""
        return "one thread"

    def warm_up(self) -> None:  # noqa: B027 - most engines have nothing to start
        """Start what takes time to start, while the tokenizer is still being checked."""

    @abstractmethod
    def run(self, encoder: Encoder, monitor: Monitor) -> None:
        """Run all units with this encoder."""

    def close(self) -> None:  # noqa: B027 - most engines have started nothing
        """End whatever was started."""
