"""Kills a job at random moments, again and again, each time under another engine, until it was killed often enough.

    python -m tests.support.kill_driver INPUT WORK TOKENIZER KILLS

After every kill: what is there must be whole, before anybody fixes it. Whenever a job gets done, it must be the same to
the byte as one that nobody disturbed, and another one is begun. Prints, as JSON, how often each engine was killed, and
how often in the middle of its work: when it had written something, and was not done.

Like tests.support.crash_driver, this process loads everything and never encodes: its children are ready at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import tests.support.crash_driver  # noqa: F401 - loads what a run needs
import tokenmill
import tokenmill.engines.extreme
import tokenmill.engines.ultra
import tokenmill.plan.cut
import tokenmill.read.lines
from tests.conftest import tree
from tests.support.whole import faults

ENGINES = ("enhanced", "streaming", "ultra", "extreme")

tokenmill.read.lines.BLOCK_BYTES = 1 << 20
tokenmill.plan.cut.MIN_UNIT_BYTES = 1 << 20


class Child:
    """A process, the first of its group, that does the job."""

    def __init__(self, source: str, output: Path, tokenizer: str, engine: str) -> None:
        self._output = output
        self._before = self._written()
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.setpgid(self.pid, self.pid)  # both do it: neither knows who is first
        else:
            try:
                os.setpgid(0, 0)
                config = tokenmill.Config(
                    inputs=(source,),
                    output=output,
                    tokenizer=tokenizer,
                    seq_len=64,
                    sequences_per_chunk=700,
                    engine=engine,
                    num_workers=2,
                )
                os._exit(0 if tokenmill.run(config).complete else 3)
            except BaseException:
                traceback.print_exc()
                os._exit(1)

    def _written(self) -> dict[Path, int]:
        """Chunks, receipts and checkpoints, each with the number that a file has for as long as it is the same."""
        found = [p for d in ("chunks", "units") if (self._output / d).exists() for p in os.scandir(self._output / d)]
        return {Path(entry.path): entry.inode() for entry in found if entry.name.endswith((".docs.npy", ".json"))}

    def progress(self) -> int:
        """How many files it has written."""
        return len(self._written().items() - self._before.items())

    def ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until this is so, or it has ended."""
        while not self.ended() and not condition():
            time.sleep(0.001)

    def workers(self) -> list[int]:
        return list(map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()))

    def kill(self) -> None:
        """The whole group; returns when none of it lives."""
        if not self.ended():
            os.killpg(self.pid, signal.SIGKILL)
            self.wait(lambda: False)
        if (lock := self._output / "logs" / "lock").exists():
            with lock.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX)  # each of them holds it


def main() -> None:
    source, work, tokenizer, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    begun = time.monotonic()
    expected = finished(Child(source, work / "fresh", tokenizer, "streaming"), work / "fresh")
    seconds = min(1.0, time.monotonic() - begun)  # what a job may take
    rng = random.Random(3)
    kills: Counter[str] = Counter()
    at_work: Counter[str] = Counter()
    output = work / "out"
    while kills.total() < wanted:
        engine = ENGINES[kills.total() % len(ENGINES)]
        child = Child(source, output, tokenizer, engine)
        # At any moment, from the first on; or when it has written so much.
        if rng.random() < 0.4:
            time.sleep(rng.random() * seconds)
        else:
            least = rng.randrange(1, 12)
            child.wait(lambda child=child, least=least: child.progress() >= least)  # type: ignore[misc]
        if engine == "ultra" and rng.random() < 0.5 and not child.ended():
            for worker in child.workers()[:1]:
                with suppress(ProcessLookupError):  # it may have ended since
                    os.kill(worker, signal.SIGKILL)
            time.sleep(rng.random() * seconds)
        time.sleep(rng.random() * 0.02)
        child.kill()
        if child.status == 0:
            assert finished(child, output) == expected, "another output"
            shutil.rmtree(output)
            continue
        assert child.status == -signal.SIGKILL, f"{engine} ended with {child.status}"
        kills[engine] += 1
        at_work[engine] += child.progress() > 0 and not (output / "manifest.json").exists()
        if output.exists():
            assert not (wrong := [*faults(tree(output), [expected])]), wrong
    assert finished(Child(source, output, tokenizer, "ultra"), output) == expected, "another output"
    print(json.dumps({"kills": kills, "at_work": at_work}))


def finished(child: Child, output: Path) -> dict[str, bytes]:
    child.wait(lambda: False)
    assert child.status == 0, f"ended with {child.status}"
    return tree(output)


if __name__ == "__main__":
    main()
