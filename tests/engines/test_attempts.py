"""Attempts: the order of units, how often one is tried, and that the reports of failed attempts do not count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tokenmill.engines.attempts import Attempt, Attempts
from tokenmill.errors import OutputError, WorkerError
from tokenmill.output.plan_file import Plan, Units
from tokenmill.output.schema import Receipt
from tokenmill.records import Codec, Format, InputFile, Ledger, Part, StageSeconds, Unit

FILE = InputFile(name="a.jsonl", size=1000, fingerprint="", format=Format.JSONL, codec=Codec.PLAIN)


def units_of(sizes: Sequence[int]) -> Units:
    """Units of these sizes, numbered from 0."""
    return Plan.of(Unit(n, (Part(0),), (FILE,), size) for n, size in enumerate(sizes)).units()


class Run:
    """A run without workers: what was reported, added up, and the units that were committed before a failure."""

    def __init__(self, sizes: Sequence[int], committed: dict[int, Ledger] | None = None) -> None:
        self.ledger = Ledger()
        self.consumed = 0
        self.encode_seconds = 0.0
        self._committed = committed or {}
        self.attempts = Attempts(units_of(sizes), self._update, self._settle)

    def _update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self.ledger.add(ledger)
        self.consumed += consumed
        self.encode_seconds += stage_seconds.encode

    def _settle(self, unit: Unit) -> Receipt | None:
        ledger = self._committed.get(unit.index)
        if ledger is None:
            return None
        return Receipt(
            unit=unit.index, ledger=ledger, chunks=(), lines=(0,), rejects_bytes=0, rejects_xxh3=None, missing={}
        )

    def begin(self) -> Attempt:
        attempt = self.attempts.begin()
        assert attempt is not None
        return attempt

    def begin_and_report(self) -> Attempt:
        """Begin a unit, of which one block is read."""
        attempt = self.begin()
        attempt.reported.add(Ledger(records=2, documents=2), 30, StageSeconds(encode=1.0))
        return attempt

    def fail_all(self, why: str = "its worker was killed") -> list[int]:
        """The units in the order in which they began, when every attempt fails."""
        begun = []
        while attempt := self.attempts.begin():
            begun.append(attempt.unit.index)
            self.attempts.fail(attempt, why)
        return begun


def begin_all(attempts: Attempts) -> list[int]:
    return [attempt.unit.index for attempt in iter(attempts.begin, None)]


def test_the_largest_units_begin_first_and_equal_ones_in_order() -> None:
    attempts = Run([10, 30, 20, 30]).attempts
    assert [unit.index for unit in attempts.upcoming()] == [1, 3, 2, 0]
    assert begin_all(attempts) == [1, 3, 2, 0]
    assert attempts.begin() is None
    assert list(attempts.upcoming()) == []


def test_only_the_units_that_were_asked_for_begin() -> None:
    some = units_of([10, 30, 20, 40]).plan.units([0, 2])
    assert begin_all(Attempts(some, lambda *_: None, lambda _: None)) == [2, 0]


def test_a_unit_that_fails_is_tried_again_at_once_three_times_in_all_while_others_go_on() -> None:
    run = Run([20, 10])
    assert run.fail_all() == [0, 0, 0, 1, 1, 1]


def test_attempts_are_counted_by_unit() -> None:
    run = Run([20, 10])
    first, second = run.begin(), run.begin()
    for _ in range(2):
        run.attempts.fail(first, "killed")
        run.attempts.fail(second, "killed")
        second, first = run.begin(), run.begin()  # the one that failed last is the first in line
        assert (first.unit.index, second.unit.index) == (0, 1)


def test_a_unit_that_succeeds_after_failures_is_not_set_aside() -> None:
    run = Run([10])
    for _ in range(2):
        run.attempts.fail(run.begin(), "killed")
    run.begin()
    assert run.attempts.begin() is None
    run.attempts.finish("run it again")


def test_what_a_failed_attempt_reported_is_taken_back_but_not_its_cpu_time() -> None:
    run = Run([100])
    for _ in range(2):
        run.attempts.fail(run.begin_and_report(), "killed")
        assert (run.ledger, run.consumed) == (Ledger(), 0)
    run.begin_and_report()
    assert (run.ledger, run.consumed) == (Ledger(records=2, documents=2), 30)
    assert run.encode_seconds == 3.0


def test_a_unit_that_is_left_at_a_checkpoint_is_the_next_and_has_not_failed() -> None:
    run = Run([20, 10])
    for _ in range(5):
        attempt = run.begin_and_report()
        assert attempt.unit.index == 0
        run.attempts.leave(attempt)
        assert (run.ledger, run.consumed) == (Ledger(), 0)
    assert [unit.index for unit in run.attempts.upcoming()] == [0, 1]
    assert run.fail_all() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("problem", ["its worker was killed", RuntimeError("late")], ids=["death", "error"])
def test_a_unit_that_was_committed_before_the_failure_counts_by_its_receipt(problem: Exception | str) -> None:
    run = Run([100], committed={0: Ledger(records=7, documents=7)})
    run.attempts.fail(run.begin_and_report(), problem)
    assert (run.ledger, run.consumed) == (Ledger(records=7, documents=7), 100)
    assert run.attempts.begin() is None
    run.attempts.finish("run it again")


def test_what_would_happen_again_is_not_tried_again() -> None:
    """An error of tokenmill comes from the input, the disk or the user."""
    run = Run([10])
    with pytest.raises(OutputError, match="disk full"):
        run.attempts.fail(run.begin(), OutputError("disk full"))
    assert run.attempts.begin() is None


def test_one_unit_set_aside_is_an_error_that_says_what_to_do() -> None:
    run = Run([10])
    run.fail_all("its worker was killed by signal 9 (out of memory?)")
    with pytest.raises(WorkerError) as error:
        run.attempts.finish("run the same command again")
    assert str(error.value) == (
        "1 unit failed 3 times and was set aside: unit 00000: its worker was killed by signal 9 (out of memory?). "
        "Everything else is committed: run the same command again to try only this unit again, with fewer "
        "--num-workers if memory was short"
    )


def test_of_many_units_set_aside_three_are_named() -> None:
    run = Run([10] * 5)
    run.fail_all("gone")
    with pytest.raises(WorkerError) as error:
        run.attempts.finish("run the same command again")
    assert str(error.value).startswith(
        "5 units failed 3 times and were set aside: unit 00000: gone; unit 00001: gone; unit 00002: gone; and 2 more. "
    )
    assert "to try only these units again" in str(error.value)


def test_every_failure_is_logged_with_its_number_and_a_printable_reason(caplog: pytest.LogCaptureFixture) -> None:
    run = Run([10])
    run.attempts.fail(run.begin(), ValueError("a\x1bb"))
    run.attempts.fail(run.begin(), "its worker\nwas killed")
    assert [record.getMessage() for record in caplog.records] == [
        r"unit 00000 failed, attempt 1 of 3: ValueError: a\x1bb",
        r"unit 00000 failed, attempt 2 of 3: its worker\nwas killed",
    ]
