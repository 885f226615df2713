"""Few open files: one clear message before anything is begun, whichever engine is to run; no file is at fault."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.conftest import texts
from tests.support.processes import python
from tests.support.units import unit_job
from tokenmill.config import ENGINES
from tokenmill.engines import machine
from tokenmill.engines.cost import Budget
from tokenmill.engines.machine import allow_open_files
from tokenmill.errors import OpenFilesError
from tokenmill.storage import local

INFINITE = resource.RLIM_INFINITY
Limits = dict[str, tuple[int, int]]


@pytest.mark.parametrize("limit", [6, 12, 20, 30])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_limit_that_is_too_low_is_one_message_that_names_it(
    inputs: Path, tmp_path: Path, tiny_tokenizer: str, engine: str, limit: int
) -> None:
    for n in range(3):
        (inputs / f"{n}.jsonl").write_bytes(texts(*(f"text {i}" for i in range(500))))
    job = ["run", inputs, tmp_path / "out", "--tokenizer", tiny_tokenizer, "--engine", engine, "--num-workers", "2"]
    ended = subprocess.run(
        python("-m", "tokenmill", *job, "--quiet"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    (said,) = ended.stderr.splitlines()
    assert said.startswith(
        f"tokenmill: error: a process may have {limit} open files here (`ulimit -n`), which is too few"
    )


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """What the system says, and what it was told; 10 files are open."""
    known: Limits = {"now": (1024, 4096)}
    monkeypatch.setattr(machine, "_open_files", lambda: 10)
    monkeypatch.setattr(resource, "getrlimit", lambda _: known["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: known.update(now=pair))
    return known


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        ((1024, 4096), 1014, (1024, 4096)),
        ((1024, 4096), 1015, (1025, 4096)),
        ((1024, 4096), 4086, (4096, 4096)),
        ((20, INFINITE), 90, (100, INFINITE)),
        ((INFINITE, INFINITE), 90, (INFINITE, INFINITE)),
    ],
)
def test_a_limit_is_raised_as_far_as_is_needed_and_allowed(
    limits: Limits, before: tuple[int, int], count: int, after: tuple[int, int]
) -> None:
    limits["now"] = before
    allow_open_files(count)
    assert limits["now"] == after


def test_a_limit_that_cannot_be_raised_is_an_error(limits: Limits) -> None:
    with pytest.raises(OpenFilesError, match=r"1024 open files here \(`ulimit -n`, of 4096 that are allowed\)"):
        allow_open_files(4087)
    assert limits["now"] == (1024, 4096)


def test_every_worker_needs_some() -> None:
    one, three = (Budget(total=1, engine="extreme", workers=n).open_files for n in (1, 3))
    assert 0 < one < three < 64


def test_open_files_are_counted() -> None:
    before = machine._open_files()
    with open(os.devnull), open(os.devnull):
        assert machine._open_files() == before + 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_an_input_that_cannot_be_opened_for_that_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    job = unit_job({"a.jsonl": texts("a")}, folder=tmp_path)

    def refuse_inputs(path: Path, **_: object) -> None:
        if path.parent.name == "in":
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(local, "_refuse_special", refuse_inputs)
    with pytest.raises(OpenFilesError):
        job.run()
    assert not list((tmp_path / "out" / "units").glob("*.json"))
