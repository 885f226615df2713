"""Runs all mutants, or those of some modules, and says which survive.

    python -m tests.mutation                        every module of SCOPE; goes on where it was stopped
    python -m tests.mutation concat.py 'read/*'     these modules
    python -m tests.mutation --survivors            also those that survived last time, after new tests
    python -m tests.mutation --fresh                forget what is known, e.g. after tests have been removed
    python -m tests.mutation --bugs                 the bugs of bugs.json instead, each with its test (`make bugs`)

A mutant counts as known as long as its module's source is the same.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import ROOMY
from tests.mutation.bugs import bug_tasks, control_tasks
from tests.mutation.cover import Cover, read_cover
from tests.mutation.execute import PROJECT, Outcome, Round, Task, Worker, execute, preload
from tests.mutation.generate import Mutant, excused_lines, generate

PACKAGE = "src/tokenmill"
FOLDER = PROJECT / "build" / "mutants"
RESULTS = FOLDER / "results.jsonl"
COVER = FOLDER / "cover"
SCOPE = ["records.py", "concat.py", "plan/*", "read/*", "encode/*", "write/*", "output/*", "unit/*", "storage/*"]
CORE = ["records.py", "concat.py", "write/*", "output/*", "unit/run.py", "storage/*"]
KILLED = ("killed", "timeout")
# Seconds of tests in each round. What survives both is not found by the rest either, or it should be found sooner.
ROUNDS = (4.0, 25.0)
# These count calls, measure, or run in other processes.
NOT_FOR_MUTANTS = [
    "tests/system/test_hot_path.py",
    "tests/benchmark/test_benchmark.py",
    "tests/job/test_interruption.py",
]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("modules", nargs="*", default=SCOPE, help="names below src/tokenmill, with wildcards")
    parser.add_argument("--survivors", action="store_true", help="try again what survived last time")
    parser.add_argument("--fresh", action="store_true", help="forget what is known")
    parser.add_argument("--bugs", action="store_true", help="try the bugs made by hand")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    args = parser.parse_args()
    if args.bugs:
        return _try_bugs(args.jobs)
    if args.fresh:
        RESULTS.unlink(missing_ok=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    modules = [m for m in sorted(_modules()) if any(fnmatch.fnmatch(m, pattern) for pattern in args.modules)]
    modules.sort(key=lambda module: not is_core(module))
    if not modules:
        parser.error(f"there is no module {' or '.join(args.modules)} below {PACKAGE}")
    mutants = {module: generate(_source(module)) for module in modules}
    known = _known(mutants)
    if args.survivors:
        known = {key: outcome for key, outcome in known.items() if outcome["status"] in KILLED}
    tasks = list(_tasks(mutants, known, _cover()))
    print(f"{sum(map(len, mutants.values())):,} mutants in {len(modules)} modules, {len(tasks):,} to try", flush=True)
    preload()
    _try(tasks, args.jobs)
    return _report(mutants, _known(mutants))


def _modules() -> Iterator[str]:
    return (path.relative_to(PROJECT / PACKAGE).as_posix() for path in (PROJECT / PACKAGE).rglob("*.py"))


def _source(module: str) -> str:
    return (PROJECT / PACKAGE / module).read_text()


def _digest(module: str) -> str:
    return hashlib.sha256(_source(module).encode()).hexdigest()[:16]


def _known(mutants: dict[str, list[Mutant]]) -> dict[tuple[str, int], dict[str, Any]]:
    """The last outcome of each mutant of a module that is still the same."""
    digests = {module: _digest(module) for module in mutants}
    found = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else ():
        entry = json.loads(line)
        if digests.get(entry["module"]) == entry["digest"]:
            found[entry["module"], entry["number"]] = entry
    return found


def _cover() -> Cover:
    """Measured anew whenever a test or a module has changed."""
    newest = max(p.stat().st_mtime_ns for top in ("src", "tests") for p in (PROJECT / top).rglob("*.py"))
    if not COVER.exists() or COVER.stat().st_mtime_ns < newest:
        print("finding out which tests reach which line", flush=True)
        _measure_cover()
    return read_cover(COVER)


def _measure_cover() -> None:
    """In a copy as mutants have it, so that a test which fails there is not used."""
    part, log = COVER.with_suffix(".part"), FOLDER / "cover.log"
    for folder in (COVER, part):
        shutil.rmtree(folder, ignore_errors=True)
    part.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.cover"]
    command += [f"--ignore={path}" for path in NOT_FOR_MUTANTS]
    with _workplace() as folder, log.open("wb") as file:
        copy = Worker(folder / "cover").folder
        environment = os.environ | {"TOKENMILL_COVER": str(part), "PYTHONPATH": f"{copy}:{copy / 'src'}"}
        done = subprocess.run(command, cwd=copy, env=environment, stdout=file, stderr=file)
    if done.returncode not in (0, 1) or not any(part.iterdir()):
        sys.exit(f"the tests could not be run: see {log}")
    if done.returncode:
        print(f"some tests fail by themselves, and are not used: see {log}", flush=True)
    part.rename(COVER)


def _tasks(mutants: dict[str, list[Mutant]], known: dict[tuple[str, int], Any], cover: Cover) -> Iterator[Task]:
    for module, found in mutants.items():
        for mutant in found:
            if (module, mutant.number) not in known:
                yield Task(f"{PACKAGE}/{module}", mutant, _rounds(cover, cover.reaching(module, mutant)))


def _rounds(cover: Cover, tests: list[str]) -> tuple[Round, ...]:
    rounds = []
    for most in ROUNDS:
        chosen: list[str] = []
        seconds = 0.0
        while tests and (seconds + cover.seconds[tests[0]] <= most or not chosen):
            seconds += cover.seconds[tests[0]]
            chosen.append(tests.pop(0))
        if chosen:
            rounds.append(Round(chosen, seconds))
    return tuple(rounds)


@contextmanager
def _workplace() -> Iterator[Path]:
    """In memory where there is some: see tests/conftest.py."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-mutants-", dir=ROOMY) as folder:
        yield Path(folder)


def _try(tasks: list[Task], jobs: int) -> None:
    digests = {module: _digest(module) for module in {_module(t) for t in tasks}}
    counts: Counter[str] = Counter()
    with RESULTS.open("a") as file:

        def write(outcome: Outcome) -> None:
            task, module = outcome.task, _module(outcome.task)
            entry = {"module": module, "number": task.mutant.number, "line": task.mutant.line, "what": task.mutant.what}
            file.write(json.dumps(entry | {"status": outcome.status, "digest": digests[module]}) + "\n")
            file.flush()
            counts[outcome.status] += 1
            if outcome.status in ("survived", "error"):
                print(f"{outcome.status}: {module}:{task.mutant.line}  {task.mutant.what}", flush=True)
            elif counts.total() % 100 == 0:
                print(f"{counts.total():,} of {len(tasks):,}: {dict(counts)}", flush=True)

        for task in tasks:
            if not task.rounds:
                write(Outcome(task, "survived"))
        with _workplace() as folder:
            for outcome in execute((t for t in tasks if t.rounds), folder, jobs):
                write(outcome)


def _module(task: Task) -> str:
    return task.file.removeprefix(f"{PACKAGE}/")


def _try_bugs(jobs: int) -> int:
    preload()
    tasks = list(bug_tasks())
    missed = 0
    with _workplace() as folder:
        for outcome in execute(control_tasks(), folder, jobs):
            if outcome.status != "survived":
                sys.exit(f"{outcome.task.rounds[0].tests[0]} fails without a bug, too: {outcome.status}")
        for outcome in execute(tasks, folder, jobs):
            if outcome.status != "killed":
                missed += 1
                task = outcome.task
                said = f"{task.file}:{task.mutant.line}  {task.mutant.what} ({task.rounds[0].tests[0]})"
                print(f"not noticed ({outcome.status}): {said}", flush=True)
    print(f"{len(tasks) - missed} of {len(tasks)} bugs noticed")
    return 1 if missed else 0


def _report(mutants: dict[str, list[Mutant]], known: dict[tuple[str, int], dict[str, Any]]) -> int:
    rows = []
    for module, found in mutants.items():
        statuses = Counter(known[module, m.number]["status"] for m in found if (module, m.number) in known)
        excused = len(excused_lines(_source(module)))
        rows.append((module, statuses.total(), sum(statuses[s] for s in KILLED), excused))
    for module, total, killed, excused in rows:
        marked = f", {excused} lines excused" if excused else ""
        print(f"{module:24}{killed:5} of {total:5} killed{_share(killed, total)}{marked}")
    for name, chosen in (("core", list(filter(is_core, mutants))), ("all", list(mutants))):
        total = sum(t for m, t, _, _ in rows if m in chosen)
        killed = sum(k for m, _, k, _ in rows if m in chosen)
        print(f"{name:24}{killed:5} of {total:5} killed{_share(killed, total)}")
    return 0


def is_core(module: str) -> bool:
    return any(fnmatch.fnmatch(module, pattern) for pattern in CORE)


def _share(killed: int, total: int) -> str:
    return f"  {100 * killed / total:5.1f} %" if total else ""


if __name__ == "__main__":
    sys.exit(main())
