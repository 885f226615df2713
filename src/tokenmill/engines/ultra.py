"""ultra: a pool of worker processes over units.

    parent                          worker processes (engines/worker.py), one unit each at a time
    hands out units, reads ahead ─> run_unit
    counts, displays, replaces  <── progress, memory, done, failed, retire

A worker that dies (killed, out of memory, a native crash) is replaced and its unit tried again, twice; a unit that
keeps failing is set aside while the others finish. Workers are separate programs, not forks: a fork of a process with
native threads can hang, and a caller's script needs no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from tokenmill.config import again
from tokenmill.encode import Encoder
from tokenmill.engines import Engine
from tokenmill.engines.messages import Done, Failed, Progress, Retire, Setup, Task
from tokenmill.errors import TokenmillError, WorkerError
from tokenmill.job import Job
from tokenmill.progress import Monitor
from tokenmill.records import Ledger, Unit, printable

log = logging.getLogger("tokenmill")

ATTEMPTS = 3
# Workers are the parallelism; native threads inside them would only fight over the cores.
_ONE_THREAD = {"FASTOKENS_BPE_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
STOP_SECONDS = 1.0
POLL_SECONDS = 0.1


class UltraEngine(Engine):
    """Runs as many workers as the memory budget allows."""

    _pool: _Pool | None = None

    def warm_up(self, job: Job, units: Sequence[Unit]) -> None:
        self._pool = _Pool(job, min(job.budget.workers, len(units)))

    def run(self, job: Job, units: Sequence[Unit], encoder: Encoder, monitor: Monitor) -> None:
        if self._pool is None:
            self.warm_up(job, units)
        assert self._pool is not None
        self._pool.run(units, encoder.name, monitor)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


@dataclass
class _Worker:
    """A worker process and what it is doing."""

    index: int
    process: subprocess.Popen[bytes]
    connection: Connection
    unit: Unit | None = None
    counted: Ledger = field(default_factory=Ledger)
    consumed: int = 0


class _Pool:
    def __init__(self, job: Job, workers: int) -> None:
        self._job = job
        self._queue: deque[Unit] = deque()
        self._attempts: dict[int, int] = {}
        self._set_aside: dict[str, str] = {}
        self._ahead = _ReadAhead(job)
        self._workers = [self._start(index) for index in range(workers)]

    def _start(self, index: int) -> _Worker:
        ours, theirs = (Connection(s.detach()) for s in socket.socketpair())
        program = f"from tokenmill.engines.worker import main; main({theirs.fileno()})"
        environment = os.environ | _ONE_THREAD
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
        theirs.close()
        with contextlib.suppress(OSError):  # if it is dead already, that is found out when its answer is waited for
            ours.send(Setup(replace(self._job, plan=self._job.plan.excerpt()), self._job.budget.worker_bytes))
        return _Worker(index, process, ours)

    def run(self, units: Iterable[Unit], encoder: str, monitor: Monitor) -> None:
        self._monitor = monitor
        self._encoder = encoder
        # The largest first: so the workers end at about the same time.
        self._queue.extend(sorted(units, key=lambda u: -u.size))
        for worker in self._workers:
            self._give(worker)
        while any(w.unit for w in self._workers):
            busy = {w.connection: w for w in self._workers if w.unit}
            for connection in wait(list(busy), POLL_SECONDS):
                self._hear(busy[connection])  # type: ignore[index]
            self._monitor.update(Ledger(), 0)  # raises if the run is to stop
        if self._set_aside:
            raise WorkerError(
                f"{len(self._set_aside)} unit(s) failed {ATTEMPTS} times and were set aside: "
                + "; ".join(f"unit {name}: {why}" for name, why in self._set_aside.items())
                + f". Everything else is committed: {again(self._job.config)} to try just these again"
            )

    def _give(self, worker: _Worker) -> None:
        worker.unit = self._queue.popleft() if self._queue else None
        worker.counted, worker.consumed = Ledger(), 0
        if worker.unit is not None:
            self._ahead.read(self._queue)
            with contextlib.suppress(OSError):
                worker.connection.send(Task(worker.unit, self._job.plan.excerpt(worker.unit), self._encoder))

    def _hear(self, worker: _Worker) -> None:
        try:
            message: Any = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        match message:
            case Progress():
                worker.counted.add(message.ledger)
                worker.consumed += message.consumed
                self._monitor.worker(worker.index, worker.unit, message.memory)
                self._monitor.update(message.ledger, message.consumed)
            case Done(retire=False):
                self._give(worker)
            case Done():
                self._replace(worker)
            case Retire():
                self._take_back(worker)
                assert worker.unit is not None
                self._queue.appendleft(worker.unit)
                self._replace(worker)
            case Failed():
                self._failed(worker, message.error)

    def _failed(self, worker: _Worker, error: Exception) -> None:
        """What the input, the disk or the user causes would happen again; only the unexpected is tried again."""
        if isinstance(error, TokenmillError):
            raise error
        self._try_again(worker, f"{type(error).__name__}: {error}")
        self._give(worker)

    def _bury(self, worker: _Worker) -> None:
        code = worker.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._try_again(worker, f"its worker {how}{' (out of memory?)' if code == -9 else ''}")
        self._replace(worker)

    def _try_again(self, worker: _Worker, why: str) -> None:
        unit = worker.unit
        assert unit is not None
        self._take_back(worker)
        failures = self._attempts[unit.index] = self._attempts.get(unit.index, 0) + 1
        log.warning("unit %s failed, attempt %d of %d: %s", unit.name, failures, ATTEMPTS, printable(why))
        if failures < ATTEMPTS:
            self._queue.appendleft(unit)
        else:
            self._set_aside[unit.name] = printable(why)

    def _take_back(self, worker: _Worker) -> None:
        """What an attempt reported is reported again by the next one."""
        self._monitor.update(-worker.counted, -worker.consumed)

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in its place; a unit that was left at a checkpoint is the next in the queue."""
        worker.connection.close()
        worker.process.wait()
        fresh = self._workers[worker.index] = self._start(worker.index)
        self._give(fresh)

    def close(self) -> None:
        """Have every worker stop at its next block; end those that do not."""
        for worker in self._workers:
            worker.connection.close()  # which it notices
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


class _ReadAhead:
    """Has the kernel read the next files into its cache, so that no worker waits for the disk."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._seen: set[int] = set()

    def read(self, queue: Iterable[Unit]) -> None:
        ahead = 0
        for unit in queue:
            for part in unit.parts:
                ahead += 1
                if ahead > self._job.config.prefetch_files:
                    return
                self._advise(part.file, part.start, part.end)

    def _advise(self, file: int, start: int, end: int | None) -> None:
        key = hash((file, start))
        if key in self._seen or not hasattr(os, "posix_fadvise"):
            return
        self._seen.add(key)
        with contextlib.suppress(OSError):  # the worker will say what is wrong with the file
            handle = os.open(self._job.plan.path(file), os.O_RDONLY)
            try:
                os.posix_fadvise(handle, start, 0 if end is None else end - start, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)
