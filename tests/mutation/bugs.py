"""Realistic bugs, made by hand, each with the test that must fail with it.

bugs.json is a list of {file, before, after, test, what}: in `file`, `before` (which stands there once) becomes `after`.
`make bugs` puts each of them in and runs its test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.mutation.execute import PROJECT, Round, Task
from tests.mutation.generate import Mutant

BUGS = Path(__file__).with_name("bugs.json")
# Long enough for the slowest of the tests by itself.
SECONDS = 60.0


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: str
    before: str
    after: str
    test: str
    what: str

    @property
    def line(self) -> int:
        """Where it is, or 0 if the code has changed so much that it is nowhere or in several places."""
        source = (PROJECT / self.file).read_text()
        return source[: source.index(self.before)].count("\n") + 1 if source.count(self.before) == 1 else 0

    def source(self) -> str:
        return (PROJECT / self.file).read_text().replace(self.before, self.after)


def read_bugs() -> list[Bug]:
    return msgspec.json.decode(BUGS.read_bytes(), type=list[Bug])


def control_tasks() -> Iterator[Task]:
    """Each of the tests once, without a bug."""
    for number, test in enumerate(sorted({bug.test for bug in read_bugs()})):
        file = "src/tokenmill/__init__.py"
        whole = Mutant(number, 0, frozenset(), "nothing is changed", (PROJECT / file).read_text())
        yield Task(file, whole, (Round([test], SECONDS),))


def bug_tasks() -> Iterator[Task]:
    for number, bug in enumerate(read_bugs()):
        mutant = Mutant(number, bug.line, frozenset(), bug.what, bug.source())
        yield Task(bug.file, mutant, (Round([bug.test], SECONDS),))
