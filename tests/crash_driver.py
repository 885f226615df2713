"""Runs a job in child processes whose n-th write step goes wrong, then lets it finish.

    python -m tests.crash_driver INPUT WORK TOKENIZER ENGINE STRIDE [ERROR]

A write step is a write of array data (half of it is written), a forced flush, a rename, a removal or a truncation.
Without ERROR the child dies there, as of `kill -9`; with one, such as ENOSPC, the step fails with it, and the run must
end with an OutputError that says how to go on. For every STRIDE-th n until a child lives to the end: go wrong at step
n, run again undisturbed with another engine, compare with an undisturbed run.
Then, for crashes, the hard case: die at every n-th step, again and again, until the job is done. Prints how often a
step went wrong.

This process never encodes anything itself: a fork of a process whose tokenizer has threads would hang.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenmill
import tokenmill.read.lines
import tokenmill.write
from tests.conftest import tree
from tokenmill.config import RejectLimit
from tokenmill.errors import OutputError


def count_steps(die_at: int, error: int = 0) -> None:
    """Make every write step of this process count, and the `die_at`-th its last, or fail with this error."""
    taken = 0

    def step(half: Callable[[], None] | None = None) -> None:
        nonlocal taken
        taken += 1
        if taken == die_at:
            if half:
                half()
            if error:
                raise OSError(error, os.strerror(error))
            os._exit(99)

    def before(module: Any, name: str) -> None:
        original = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            step()
            return original(*args, **kwargs)

        setattr(module, name, counted)

    for name in ("fsync", "rename", "unlink", "rmdir", "truncate"):
        before(os, name)
    write_all = tokenmill.write._write_all

    def counted_write(file: Any, data: Any) -> None:
        view = memoryview(data)
        step(lambda: write_all(file, view[: len(view) // 2]))
        write_all(file, data)

    tokenmill.write._write_all = counted_write


# Blocks of a few lines, so that a file has many and a restart falls between any two of them.
tokenmill.read.lines.BLOCK_BYTES = 200


def in_child(
    source: Path, output: Path, tokenizer: str, die_at: int, engine: str = "streaming", error: int = 0
) -> bool:
    """Whether the job was finished by a child that dies, or fails, at this step (0: lives)."""
    child = os.fork()
    if child == 0:
        try:
            count_steps(die_at, error)
            config = tokenmill.Config(
                inputs=(str(source),),
                output=output,
                tokenizer=tokenizer,
                seq_len=8,
                sequences_per_chunk=37,
                max_rejects=RejectLimit(share=1.0),
                id_field="id",
                engine=engine,
            )
            os._exit(0 if tokenmill.run(config).complete else 3)
        except OutputError as problem:
            os._exit(99 if error and "again" in str(problem) else 2)
        except BaseException as problem:
            print(f"step {die_at}: {problem!r}", file=sys.stderr)
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 99):
        raise SystemExit(f"the job failed with {code} when it was to die at step {die_at}")
    return code == 0


def count_all(source: Path, output: Path, tokenizer: str, engine: str) -> int:
    """How many steps an undisturbed run takes, found by dying later and later."""
    low, high = 1, 2
    while not in_child(source, output, tokenizer, high, engine):
        shutil.rmtree(output)
        low, high = high, 2 * high
    shutil.rmtree(output)
    while high - low > 1:
        middle = (low + high) // 2
        if in_child(source, output, tokenizer, middle, engine):
            high = middle
        else:
            low = middle
        shutil.rmtree(output)
    return low


def main() -> None:
    source, work, tokenizer = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    engine, stride = sys.argv[4], int(sys.argv[5])
    error: int = getattr(errno, sys.argv[6]) if len(sys.argv) > 6 else 0
    assert in_child(source, work / "whole", tokenizer, 0)
    expected = tree(work / "whole")
    steps = count_all(source, work / "counted", tokenizer, engine)
    crashes, step = 0, 0
    while True:
        step += stride
        output = work / "crashed"
        finished = in_child(source, output, tokenizer, step, engine, error)
        if finished and not (error and step < steps):
            break  # there are no more steps; that a temporary file could not be removed is no failure
        crashes += 1
        assert in_child(source, output, tokenizer, 0)
        assert tree(output) == expected, f"other output after a crash at step {step}"
        shutil.rmtree(output)
    for period in () if error else (35, 47, step // 2):
        output = work / f"every-{period}"
        while not in_child(source, output, tokenizer, period, engine):
            crashes += 1
            assert crashes < 10 * step, f"no progress when every step {period} is the last"
        assert tree(output) == expected, f"other output after crashes at every step {period}"
    print(crashes)


if __name__ == "__main__":
    main()
