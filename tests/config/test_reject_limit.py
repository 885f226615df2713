"""How many rejects are too many, and from when on that can be said."""

from __future__ import annotations

import pytest

from tokenmill.config import RejectLimit
from tokenmill.errors import ConfigError


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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("500%", "a percentage must be between 0% and 100%, not '500%'"),
        ("-1%", "a percentage must be between 0% and 100%, not '-1%'"),
        ("nan%", "a percentage must be between 0% and 100%, not 'nan%'"),
        (-5, "a count must be 0 or more, not -5"),
        ("0.5", "'0.5' is neither a count (100) nor a percentage (1%)"),
        (0.05, '0.05 is neither a count (100) nor a percentage (1%): write "5%", in quotes'),
        ("%", "'%' is neither a count (100) nor a percentage (1%)"),
    ],
)
def test_what_is_wrong_with_a_limit_is_said(value: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RejectLimit.parse(value)
    assert str(caught.value) == f"max_rejects: {said}"
