"""Runs the tests that reach a mutant, in a fork of a process that has imported all but tokenmill and its tests.

Each worker has a folder of its own with a copy of the package and the tests; the mutant is written into the copy, so
that processes which the tests start run it, too.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import py_compile
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.generate import Mutant

PROJECT = Path(__file__).parents[2]
COPIED = ["src", "tests", "benchmarks", "docs", "examples", "scripts"]
COPIED += ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "README.md"]
COPIED += ["constraints.txt", "pyproject.toml"]
# Loaded once, so that a fork need not: what tokenmill and its tests import.
PRELOADED = ["pytest", "_pytest.assertion", "numpy", "msgspec", "xxhash", "isal.igzip_lib", "backports.zstd", "pyarrow"]
PRELOADED += ["pyarrow.parquet", "pyarrow.compute", "tokenizers", "fastokens", "hypothesis", "hypothesis.strategies"]
PRELOADED += ["huggingface_hub", "rich.console", "rich.live", "rich.table", "rich.progress", "asyncio", "bz2", "lzma"]
GRACE_SECONDS = 10.0
BROKEN = 70  # the exit code of a fork that could not run pytest
MEMORY_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Round:
    tests: list[str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant of a file of the project, and the rounds of tests to run: each with the seconds it takes without it.

    A second round is for what survives the first: most mutants fail a quick test, and some never end.
    """

    file: str
    mutant: Mutant
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`status`: killed, survived, timeout (which is as good as killed) or error (the tests could not be run)."""

    task: Task
    status: str


class Worker:
    """A folder with a copy of the project, in which one mutant at a time is put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole: dict[str, bytes] = {}
        """The files that were changed, as they were."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        skip = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in COPIED:
            source = PROJECT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=skip)
            else:
                shutil.copy2(source, folder / name)
        # By content, not by time: a mutant is written in the same second, and with the same size, as the last one.
        by_content = py_compile.PycInvalidationMode.CHECKED_HASH
        for name in ("src", "tests"):
            compileall.compile_dir(folder / name, quiet=1, invalidation_mode=by_content)

    def start(self, task: Task, number: int) -> int:
        """The process that runs a round of tests on the mutant."""
        path = self.folder / task.file
        self._whole.setdefault(task.file, path.read_bytes())
        path.write_text(task.mutant.source)
        child = os.fork()
        if child == 0:
            try:
                os._exit(self._run(task.rounds[number].tests))
            finally:
                os._exit(BROKEN)
        return child

    def restore(self, task: Task) -> None:
        (self.folder / task.file).write_bytes(self._whole[task.file])

    def _run(self, tests: list[str]) -> int:
        os.setsid()
        os.chdir(self.folder)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        # A mutant may ask for any amount of memory or disk.
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        os.environ["PYTHONPATH"] = str(self.folder / "src")
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ["TMPDIR"] = str(self.folder)
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(self.folder / "src"), str(self.folder)]
        for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "tokenmill")]:
            del sys.modules[name]
        import pytest

        plain = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        plain.append("--hypothesis-seed=0")
        return int(pytest.main([*plain, f"--basetemp={self.folder / 'tmp'}", *tests]))


def preload() -> None:
    for name in PRELOADED:
        __import__(name)


@dataclass(frozen=True, slots=True)
class _Running:
    worker: Worker
    task: Task
    number: int
    deadline: float


def execute(tasks: Iterable[Task], folder: Path, jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come; `jobs` mutants at a time."""
    idle = [Worker(folder / f"worker-{n}") for n in range(jobs)]
    running: dict[int, _Running] = {}
    waiting = iter(tasks)
    more = True

    def start(worker: Worker, task: Task, number: int) -> None:
        deadline = time.monotonic() + GRACE_SECONDS + 3 * task.rounds[number].seconds
        running[worker.start(task, number)] = _Running(worker, task, number, deadline)

    try:
        while more or running:
            while more and idle:
                if (task := next(waiting, None)) is None:
                    more = False
                    break
                start(idle.pop(), task, 0)
            for child, status in _ended(running):
                done = running.pop(child)
                if status == "survived" and done.number + 1 < len(done.task.rounds):
                    start(done.worker, done.task, done.number + 1)
                    continue
                done.worker.restore(done.task)
                idle.append(done.worker)
                yield Outcome(done.task, status)
            time.sleep(0.005)
    finally:
        for child in running:  # after Ctrl-C: a mutant may never end by itself
            _end_group(child)
            os.waitpid(child, 0)


# pytest's: 1 is a failed test, 2 a module that cannot be imported, 3 a warning when all tests were done, e.g. of a file
# that was left open. Below 0 a signal ended it, e.g. for its memory.
_STATUS = {0: "survived", 1: "killed", 2: "killed", 3: "killed"} | {-n: "killed" for n in range(1, 65)}


def _ended(running: dict[int, _Running]) -> Iterator[tuple[int, str]]:
    for child, work in list(running.items()):
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            _end_group(child)  # what the tests started and a mutant left behind
            yield child, _STATUS.get(os.waitstatus_to_exitcode(code), "error")
        elif time.monotonic() > work.deadline:
            _end_group(child)
            os.waitpid(child, 0)
            yield child, "timeout"


def _end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
