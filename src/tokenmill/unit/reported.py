"""What was reported of a unit so far, so that it can be completed, or taken back when the attempt fails.

Progress is reported block by block, long before a unit is committed. Whoever runs a unit a second time (run_unit
without a file that went missing, an engine after a worker died) takes the first attempt back, so that the sum of all
reports is what the receipts say.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.records import Ledger, StageSeconds

Update = Callable[[Ledger, int, StageSeconds], None]
"""Called for every block: what it added, how many bytes of input and how much CPU time it took. May raise to stop."""


class Reported:
    """Passes reports on and remembers their sum. CPU time is never taken back: it was spent."""

    def __init__(self, update: Update) -> None:
        self._update = update
        self._ledger = Ledger()
        self._consumed = 0

    def add(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self._ledger.add(ledger)
        self._consumed += consumed
        self._update(ledger, consumed, stage_seconds)

    def complete(self, total: int) -> None:
        """Report the bytes that no block stood for, so that the unit counts with all its bytes."""
        self.add(Ledger(), total - self._consumed, StageSeconds())

    def take_back(self) -> None:
        """Report the opposite of everything so far; after that nothing is left to take back."""
        ledger, consumed = self._ledger, self._consumed
        self._ledger, self._consumed = Ledger(), 0
        self._update(-ledger, -consumed, StageSeconds())
