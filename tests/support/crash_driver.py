"""Runs a job in child processes whose n-th write step goes wrong, then lets it finish.

    python -m tests.support.crash_driver INPUT WORK TOKENIZER ENGINE STRIDE [ERROR]

A write step is a write to a draft (half of it is written), a forced flush, a rename, a removal, or a draft that is
begun or cut off.
Without ERROR the child dies there, as of `kill -9`; with one, such as ENOSPC, the step fails with it, and the run must
end with an OutputError that says how to go on. For every STRIDE-th n until a child lives to the end: go wrong at step
n, look at what is there, run again undisturbed with another engine, compare with an undisturbed run.
Then, for crashes, the hard case: die at every n-th step, again and again, until the job is done. Prints how often a
step went wrong.

This process never encodes anything itself: a fork of a process whose tokenizer has threads would hang. But it loads
all that a run will need, so that its children need not. And it does not wait for the disk, which a dead process leaves
as it is; what is lost with the power is the subject of test_durability.py.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastokens  # noqa: F401 - see above
import tokenizers  # noqa: F401

import tokenmill
import tokenmill.encode.torture
import tokenmill.engines.enhanced
import tokenmill.engines.streaming
import tokenmill.job.execute
import tokenmill.plan.cut
import tokenmill.read.lines
import tokenmill.read.parquet
import tokenmill.read.text
from tests.conftest import tree
from tests.support.whole import faults
from tokenmill.config import RejectLimit
from tokenmill.errors import OutputError
from tokenmill.storage.local import LocalDraft

REMOVALS = ("unlink", "rmdir")


def count_steps(die_at: int, error: int = 0) -> Callable[[], int]:
    """Make every write step of this process count, and the `die_at`-th its last, or fail with this error.

    A failure that is no error of the job is told by a number below 0, unless all that failed was a removal.
    """
    taken = 0
    must_stop = False

    def step(name: str, half: Callable[[], None] | None = None) -> None:
        nonlocal taken, must_stop
        taken += 1
        if taken == die_at:
            must_stop = name not in REMOVALS
            if half:
                half()
            if error:
                raise OSError(error, os.strerror(error))
            os._exit(99)

    def before(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            step(name)
            return original(*args, **kwargs)

        setattr(owner, name, counted)

    os.fsync = lambda fd: None  # noqa: ARG005 - its name is part of the type
    for name in ("fsync", "rename", "link", "unlink", "rmdir"):
        before(os, name)
    before(LocalDraft, "__init__")
    write = LocalDraft.write

    def counted_write(draft: LocalDraft, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        step("write", lambda: write(draft, view[: len(view) // 2]))
        write(draft, data)

    LocalDraft.write = counted_write  # type: ignore[method-assign]
    return lambda: -taken if must_stop else taken


# Blocks of a few lines, so that a file has many and a restart falls between any two of them; and several units.
tokenmill.read.lines.BLOCK_BYTES = 200
tokenmill.plan.cut.MIN_UNIT_BYTES = 4000
tokenmill.plan.cut.FILE_COST_BYTES = 0


def in_child(
    source: Path, output: Path, tokenizer: str, die_at: int, engine: str = "streaming", error: int = 0
) -> int | None:
    """Run the job in a child that dies, or has a write step fail, at this step (0: never).

    How many steps it took if it finished the job nevertheless, None if it did not.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            steps = count_steps(die_at, error)
            config = tokenmill.Config(
                inputs=(str(source),),
                output=output,
                tokenizer=tokenizer,
                seq_len=8,
                sequences_per_chunk=40,
                max_rejects=RejectLimit(share=1.0),
                id_field="id",
                engine=engine,
            )
            complete = tokenmill.run(config).complete
            os.write(write_end, b"%d" % steps())
            os._exit(0 if complete else 3)
        except OutputError as problem:
            os._exit(99 if error and "again" in str(problem) else 2)
        except BaseException as problem:
            print(f"step {die_at}: {problem!r}", file=sys.stderr)
            os._exit(1)
    os.close(write_end)
    with open(read_end, "rb") as told:
        steps_taken = told.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 99):
        raise SystemExit(f"the job failed with {code} when it was to die at step {die_at}")
    return int(steps_taken) if code == 0 else None


def main() -> None:
    source, work, tokenizer = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    engine, stride = sys.argv[4], int(sys.argv[5])
    error: int = getattr(errno, sys.argv[6]) if len(sys.argv) > 6 else 0
    steps = in_child(source, work / "whole", tokenizer, 0, engine)
    assert steps
    expected = tree(work / "whole")
    crashes = 0
    output = work / "crashed"
    for step in range(stride, steps + 1, stride):
        finished = in_child(source, output, tokenizer, step, engine, error)
        # That a temporary file could not be removed is no failure of the job; anything else is.
        assert finished is None or (error and finished > 0), f"the job went on after step {step} failed"
        crashes += 1
        check(output, expected, f"step {step}")
        in_child(source, output, tokenizer, 0)
        assert tree(output) == expected, f"other output after a crash at step {step}"
        shutil.rmtree(output)
    # Enough steps for a block: a restart begins with the block that was being written.
    for period in () if error else (45, 53, steps // 2):
        output = work / f"every-{period}"
        left = steps
        while in_child(source, output, tokenizer, period, engine) is None:
            crashes += 1
            left -= 1
            assert left, f"no progress when every step {period} is the last"
            check(output, expected, f"every step {period}")
        assert tree(output) == expected, f"other output after crashes at every step {period}"
    print(crashes)


def check(output: Path, expected: dict[str, bytes], crash: str) -> None:
    """What is there now, before anybody fixes it."""
    assert not (wrong := [*faults(tree(output), [expected])]), f"after a crash at {crash}: {wrong}"


if __name__ == "__main__":
    main()
