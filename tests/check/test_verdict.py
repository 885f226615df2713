"""A verdict counts what was found wrong, however much that is."""

from __future__ import annotations

from tokenmill.check.verdict import Fault, Verdict


def test_a_verdict_without_a_fault_is_good() -> None:
    verdict = Verdict()
    assert verdict.good
    verdict.add(Fault("a chunk is lost", 3))
    assert not verdict.good


def test_of_many_faults_the_first_are_kept_and_all_are_counted() -> None:
    verdict = Verdict()
    for number in range(Verdict.MOST + 5):
        verdict.add(Fault(str(number)))
    assert verdict.found == Verdict.MOST + 5
    assert [fault.what for fault in verdict.faults] == [str(n) for n in range(Verdict.MOST)]


def test_units_are_to_be_done_again_once_each_and_in_order() -> None:
    verdict = Verdict()
    for unit in (7, None, 2, 7):
        verdict.add(Fault("something", unit))
    assert verdict.units_to_redo() == [2, 7]
