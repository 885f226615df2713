"""Which tests reach which line of the package, and how long each of them takes.

A plugin of pytest: `pytest -p tests.mutation.cover` runs the suite under coverage, and each of its processes writes
what it found to a file of the folder that TOKENMILL_COVER names. What runs in processes that tests start is not seen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import coverage
import msgspec
import pytest

from tests.mutation.generate import Mutant


class Cover(msgspec.Struct):
    """Seconds of each test, and module -> line -> the tests that reach it."""

    seconds: dict[str, float]
    tests: dict[str, dict[int, list[str]]]
    breadth: dict[str, int] = {}

    def reaching(self, module: str, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, or any of its module if it runs on import; the likeliest to fail first.

        Those are the module's own quick tests, those that look at every byte of an output, its slow tests (what is
        forced to disk, only tests of a power loss can see), then those of few modules: a test of whole runs reaches
        everything, and looks at little of it.
        """
        by_line = self.tests.get(module, {})
        found = {test for line in mutant.lines or by_line for test in by_line.get(line, ())}
        for line in range(mutant.line - 1, mutant.line - 4, -1):  # a jump may not show as a line of its own
            found = found or set(by_line.get(line, ()))
        folder, _, name = module.removesuffix(".py").rpartition("/")
        own = [f"tests/{folder}/" if folder else f"tests/test_{name}.py"]
        if folder in ("storage", "output", "write", "unit"):
            own.append("tests/system/test_durability.py")
        breadth = self._breadth()

        def order(test: str) -> tuple[int, int, float]:
            seconds, is_own = self.seconds[test], test.startswith(tuple(own))
            rank = 0 if is_own and seconds < 1 else 1 if "golden" in test else 2 if is_own else 3
            return rank, breadth[test] // 8, seconds

        return sorted(sorted(found), key=order)

    def _breadth(self) -> dict[str, int]:
        """How many modules each test reaches."""
        if not self.breadth:
            reached = ({test for tests in lines.values() for test in tests} for lines in self.tests.values())
            self.breadth = Counter(test for module in reached for test in module)
        return self.breadth


def read_cover(folder: Path) -> Cover:
    """What all processes found."""
    whole = Cover({}, {})
    for path in sorted(folder.glob("*.json")):
        found = msgspec.json.decode(path.read_bytes(), type=Cover)
        whole.seconds |= found.seconds
        for module, lines in found.tests.items():
            for line, tests in lines.items():
                whole.tests.setdefault(module, {}).setdefault(line, []).extend(tests)
    return whole


_recorder = coverage.Coverage(data_file=None, source_pkgs=["tokenmill"], concurrency=["thread"])
_seconds: dict[str, float] = {}
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionstart() -> Generator[None, None, None]:
    _recorder.start()  # before any test module is imported
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _recorder.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _recorder.stop()
    if session.config.getoption("numprocesses", 0):
        return  # the others do the work
    for test in _failed:
        del _seconds[test]  # under coverage, for whatever reason: it would kill every mutant
    data = _recorder.get_data()
    tests: dict[str, dict[int, list[str]]] = {}
    for path in data.measured_files():
        lines = {n: [t for t in names if t in _seconds] for n, names in data.contexts_by_lineno(path).items()}
        tests[path.split("/src/tokenmill/")[1]] = {n: names for n, names in lines.items() if names}
    target = Path(os.environ["TOKENMILL_COVER"]) / f"{os.getpid()}.json"
    target.write_bytes(msgspec.json.encode(Cover(_seconds, tests)))
