"""The mutants are what they are meant to be, and the list of bugs made by hand fits the code."""

from __future__ import annotations

import pytest

from tests.mutation.bugs import Bug, read_bugs
from tests.mutation.execute import PROJECT
from tests.mutation.generate import excused_lines, generate


def changes(source: str) -> list[str]:
    return [m.what for m in generate(source)]


def test_an_expression_is_changed_in_every_way_that_may_be_a_bug() -> None:
    assert changes("x = a < b") == ["a < b  ->  a <= b", "a < b  ->  a >= b"]
    assert changes("x = a and not b") == ["a and (not b)  ->  a or not b", "not b  ->  b"]
    assert changes("x = 1 + y") == ["1 + y  ->  1 - y", "1  ->  2"]
    assert changes("x = f(a, key=True)") == ["f(a, key=True)  ->  f(a)", "True  ->  False"]
    assert changes("x = a if b else c") == ["a if b else c  ->  a if not b else c"]


def test_a_statement_that_does_something_is_left_out() -> None:
    assert changes("f()") == ["f()  ->  pass"]
    assert changes("a.x = b") == ["a.x = b  ->  pass"]
    assert changes("a = b") == []
    assert changes("def f():\n    return a") == ["return a  ->  return None"]


def test_annotations_messages_and_excused_lines_are_left_alone() -> None:
    assert changes("def f(a: int | None) -> int | str: ...") == []
    assert changes("x: A | B = f(f'{a + 1}')") == []
    source = "x = 1  # no mutant: only speed depends on it\n"
    assert changes(source) == []
    assert excused_lines(source) == {1: "only speed depends on it"}


def test_a_mutant_is_the_module_with_one_change() -> None:
    (first, _) = generate("x = a < b\ny = 'c'\n")
    assert first.source == "x = a <= b\ny = 'c'"


def test_a_mutant_knows_the_lines_that_run_with_it() -> None:
    source = "class A:\n    x: int = 0\ndef f(a, b=1):\n    if a:\n        g(\n          1)\n"
    assert [(m.line, sorted(m.lines)) for m in generate(source)] == [
        (2, []),
        (3, []),
        (4, [4]),
        (5, [5, 6]),
        (6, [5, 6]),
    ]


@pytest.mark.parametrize("bug", read_bugs(), ids=lambda bug: bug.what.replace(" ", "-")[:60])
def test_a_bug_made_by_hand_still_fits_the_code_and_its_test(bug: Bug) -> None:
    assert bug.line, f"{bug.file} has changed: update the bug in tests/mutation/bugs.json"
    path, _, name = bug.test.partition("::")
    assert f"def {name.split('[')[0]}(" in (PROJECT / path).read_text()
