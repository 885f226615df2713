"""Which unit is next, and what becomes of one whose worker failed. Knows nothing of processes.

    begin() ──> Attempt ──> runs ──> nothing more to do
      ▲                       ├─ leave()   the worker is to be replaced: the unit continues from its checkpoint
      │                       └─ fail()    tried again, ATTEMPTS times in all; then set aside while the others run
      └──── first in line ────┘

What an attempt reported is taken back before the unit is tried again: the next attempt reports it once more. A worker
may also fail after it has committed its unit. Then the receipt counts, not what the worker managed to report.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenmill.errors import TokenmillError, WorkerError
from tokenmill.messages import printable
from tokenmill.output.plan_file import Units
from tokenmill.output.schema import Receipt
from tokenmill.records import StageSeconds, Unit
from tokenmill.unit.reported import Reported, Update

log = logging.getLogger("tokenmill")

ATTEMPTS = 3
NAMED_IN_MESSAGE = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """A unit that somebody runs; its progress is reported here."""

    unit: Unit
    reported: Reported


class Attempts:
    """The units of a run, the largest first: so the workers end at about the same time.

    `settle` gives the receipt of a unit that was committed by a worker that failed afterwards.
    """

    def __init__(self, units: Units, update: Update, settle: Callable[[Unit], Receipt | None]) -> None:
        self._plan = units.plan
        self._waiting = deque(sorted(units.numbers, key=lambda n: -self._plan.sizes[n]))
        self._update = update
        self._settle = settle
        self._failures: dict[int, int] = {}
        self._set_aside: dict[str, str] = {}

    def begin(self) -> Attempt | None:
        """The next unit, or None if none is waiting."""
        if not self._waiting:
            return None
        return Attempt(self._plan.unit(self._waiting.popleft()), Reported(self._update))

    def upcoming(self) -> Iterator[Unit]:
        """The units that wait, in the order in which they will begin."""
        return map(self._plan.unit, self._waiting)

    def leave(self, attempt: Attempt) -> None:
        """The unit stops at a checkpoint and continues later. This is not a failure."""
        attempt.reported.take_back()
        self._waiting.appendleft(attempt.unit.index)

    def fail(self, attempt: Attempt, problem: Exception | str) -> None:
        """Try the unit again, or set it aside; unless it was committed before its worker failed.

        What the input, the disk or the user causes would happen again: such an error is raised.
        """
        if isinstance(problem, TokenmillError):
            raise problem
        if (receipt := self._settle(attempt.unit)) is not None:
            attempt.reported.take_back()
            attempt.reported.add(receipt.ledger, attempt.unit.size, StageSeconds())
            return
        why = f"{type(problem).__name__}: {problem}" if isinstance(problem, Exception) else problem
        self._retry(attempt, printable(why))

    def _retry(self, attempt: Attempt, why: str) -> None:
        attempt.reported.take_back()
        unit = attempt.unit
        failures = self._failures[unit.index] = self._failures.get(unit.index, 0) + 1
        log.warning("unit %s failed, attempt %d of %d: %s", unit.name, failures, ATTEMPTS, why)
        if failures < ATTEMPTS:
            self._waiting.appendleft(unit.index)
        else:
            self._set_aside[unit.name] = why

    def finish(self, resume_hint: str) -> None:
        """Raise a WorkerError if units were set aside, when no other is left."""
        if not self._set_aside:
            return
        count = len(self._set_aside)
        units, these = ("1 unit failed", "this unit") if count == 1 else (f"{count} units failed", "these units")
        named = [f"unit {name}: {why}" for name, why in list(self._set_aside.items())[:NAMED_IN_MESSAGE]]
        if count > len(named):
            named.append(f"and {count - len(named)} more")
        raise WorkerError(
            f"{units} {ATTEMPTS} times and {'was' if count == 1 else 'were'} set aside: {'; '.join(named)}. "
            f"Everything else is committed: {resume_hint} to try only {these} again, with fewer --num-workers if "
            "memory was short"
        )
