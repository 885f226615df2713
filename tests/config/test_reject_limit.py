"""How many rejects are too many, and from when on that can be said."""

from __future__ import annotations

from tokenmill.config import RejectLimit


def test_a_percentage_is_judged_at_the_end_or_when_it_means_something() -> None:
    limit = RejectLimit.parse("1%")
    assert not limit.exceeded(1, 10, final=False)
    assert limit.exceeded(1, 10, final=True)
    assert limit.exceeded(101, 10_000, final=False)
    assert not limit.exceeded(100, 10_000, final=True)
    assert not limit.exceeded(0, 0, final=True)


def test_a_count_is_judged_at_once() -> None:
    assert RejectLimit.parse("0").exceeded(1, 10**9, final=False)
    assert not RejectLimit.parse(3).exceeded(3, 3, final=True)
