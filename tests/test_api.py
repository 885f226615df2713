"""What `import tokenmill` offers, and errors that travel between processes."""

from __future__ import annotations

import pickle
import subprocess

import pytest

import tokenmill
from tests.support.processes import python
from tokenmill import errors


def test_the_public_api_is_sorted_and_there() -> None:
    assert tokenmill.__all__ == sorted(tokenmill.__all__)
    for name in tokenmill.__all__:
        assert hasattr(tokenmill, name)


def test_the_public_api_is_listed_for_whoever_explores_before_it_is_used() -> None:
    program = "import tokenmill; print(*dir(tokenmill))"
    done = subprocess.run(python("-c", program), capture_output=True, text=True, check=True)
    assert set(tokenmill.__all__) <= set(done.stdout.split())


ERRORS = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.TokenmillError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_pickles_with_its_message(kind: type[errors.TokenmillError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what, where, what to do")))
    assert type(error) is kind
    assert str(error) == "what, where, what to do"


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_drawn_in_the_tree_with_its_exit_code(kind: type[errors.TokenmillError]) -> None:
    assert errors.__doc__ is not None
    line = next(line for line in errors.__doc__.splitlines() if f" {kind.__name__} " in f" {line} ")
    if "exit" in line:
        assert line.split("exit ")[1] == str(kind.exit_code)
