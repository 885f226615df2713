"""Reports of a unit: passed on as they come, completed at the end, taken back as a whole when the attempt fails."""

from __future__ import annotations

from tokenmill.records import Ledger, StageSeconds
from tokenmill.unit.reported import Reported


class Sum:
    """Where reports go: their sum, and how many there were."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.consumed = 0
        self.encode_seconds = 0.0
        self.calls = 0

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self.ledger.add(ledger)
        self.consumed += consumed
        self.encode_seconds += stage_seconds.encode
        self.calls += 1


def two_blocks(total: Sum) -> Reported:
    reported = Reported(total.update)
    reported.add(Ledger(records=3, documents=2, rejected=1, rejects_by_reason={"too_large": 1}), 70, StageSeconds())
    reported.add(Ledger(records=1, documents=1), 20, StageSeconds(encode=1.5))
    return reported


def test_reports_are_passed_on_as_they_come() -> None:
    total = Sum()
    two_blocks(total)
    assert total.ledger == Ledger(records=4, documents=3, rejected=1, rejects_by_reason={"too_large": 1})
    assert (total.consumed, total.encode_seconds, total.calls) == (90, 1.5, 2)


def test_a_completed_unit_counts_with_all_its_bytes() -> None:
    total = Sum()
    two_blocks(total).complete(100)
    assert total.consumed == 100
    assert total.ledger.records == 4


def test_a_failed_attempt_is_taken_back_once_with_its_bytes_but_not_its_cpu_time() -> None:
    total = Sum()
    reported = two_blocks(total)
    for _ in range(2):
        reported.take_back()
        assert total.ledger == Ledger(rejects_by_reason={"too_large": 0})
        assert (total.consumed, total.encode_seconds) == (0, 1.5)


def test_what_completed_a_unit_is_taken_back_too() -> None:
    total = Sum()
    reported = two_blocks(total)
    reported.complete(100)
    reported.take_back()
    assert total.consumed == 0
