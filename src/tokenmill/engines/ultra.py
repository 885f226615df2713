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
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from tokenmill.config import resume_hint
from tokenmill.encode import Encoder
from tokenmill.engines.base import Engine, Monitor
from tokenmill.engines.protocol import Done, Failed, Progress, Ready, Retire, Setup, Task
from tokenmill.engines.read_ahead import ReadAhead
from tokenmill.errors import TokenmillError, WorkerError
from tokenmill.job.prepare import Job
from tokenmill.messages import printable
from tokenmill.output.plan_file import Units
from tokenmill.records import Ledger, StageSeconds, Unit

log = logging.getLogger("tokenmill")

ATTEMPTS = 3
NAMED_IN_MESSAGE = 3
# Workers are the parallelism; native threads inside them would only fight over the cores.
_ONE_THREAD = {"FASTOKENS_BPE_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
_PROGRAM = "from tokenmill.engines.worker import main; main({connection}, {setup})"
# These may go to every process of the group; what becomes of the workers is for the parent to say.
_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM)
STOP_SECONDS = 0.5
POLL_SECONDS = 0.1


class UltraEngine(Engine):
    """Runs as many workers as the memory budget allows."""

    _pool: _Pool | None = None

    def warm_up(self, job: Job, units: Units) -> None:
        self._pool = _Pool(job, min(job.budget.workers, len(units)))

    def run(self, job: Job, units: Units, encoder: Encoder, monitor: Monitor) -> None:
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
    ready: bool = False
    counted: Ledger = field(default_factory=Ledger)
    consumed: int = 0


class _Pool:
    def __init__(self, job: Job, workers: int) -> None:
        self._job = job
        self._queue: deque[int] = deque()
        self._attempts: dict[int, int] = {}
        self._set_aside: dict[str, str] = {}
        self._ahead = ReadAhead(job)
        # In a file, not down the socket: it holds the tokenizer, and a send of megabytes would wait for the worker.
        self._setup = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the pool, see close
        pickle.dump(Setup(job, job.budget.worker_bytes), self._setup)
        self._setup.flush()
        self._workers = [self._start(index) for index in range(workers)]

    def _start(self, index: int) -> _Worker:
        ours, theirs = (Connection(s.detach()) for s in socket.socketpair())
        program = _PROGRAM.format(connection=theirs.fileno(), setup=self._setup.fileno())
        # It inherits the lock of the output directory: should this process die, nobody else may write there before its
        # workers have noticed.
        inherited = [theirs.fileno(), self._setup.fileno(), self._job.store.lock]
        command = [sys.executable, "-P", "-c", program]
        environment = os.environ | _ONE_THREAD
        # A mask is inherited, so these signals cannot hit a worker even before its first line of Python.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
        try:
            process = subprocess.Popen(command, pass_fds=inherited, stdin=subprocess.DEVNULL, env=environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(index, process, ours)

    def run(self, units: Units, encoder: str, monitor: Monitor) -> None:
        self._monitor = monitor
        self._encoder = encoder
        # The largest first: so the workers end at about the same time.
        self._queue.extend(sorted(units.numbers, key=lambda n: -self._job.plan.sizes[n]))
        for worker in self._workers:
            self._assign(worker)
        while busy := {w.connection: w for w in self._workers if w.unit}:
            ready = wait(list(busy), POLL_SECONDS)
            self._monitor.update(Ledger(), 0, StageSeconds())  # raises if the run is to stop
            for connection in ready:
                self._receive(busy[connection])  # type: ignore[index]
        if self._set_aside:
            raise WorkerError(
                f"{len(self._set_aside)} unit(s) failed {ATTEMPTS} times and were set aside: "
                + "; ".join(f"unit {name}: {why}" for name, why in list(self._set_aside.items())[:NAMED_IN_MESSAGE])
                + f". Everything else is committed: {resume_hint(self._job.config)} to try just these again, with "
                "fewer --num-workers if memory was short"
            )

    def _assign(self, worker: _Worker) -> None:
        worker.unit = self._job.plan.unit(self._queue.popleft()) if self._queue else None
        worker.counted, worker.consumed = Ledger(), 0
        if worker.unit is not None:
            self._ahead.read(self._queue)
            self._send(worker)

    def _send(self, worker: _Worker) -> None:
        # Not before it is ready: a unit of many files is more than a socket holds, and sending waits for a reader.
        if worker.ready:
            assert worker.unit is not None
            with contextlib.suppress(OSError):
                worker.connection.send(Task(worker.unit, self._encoder))

    def _receive(self, worker: _Worker) -> None:
        try:
            message: Any = worker.connection.recv()
        except (EOFError, OSError):
            self._handle_death(worker)
            return
        match message:
            case Ready():
                worker.ready = True
                self._send(worker)
            case Progress():
                worker.counted.add(message.ledger)
                worker.consumed += message.consumed
                self._monitor.worker(worker.index, worker.unit, message.memory)
                self._monitor.update(message.ledger, message.consumed, message.stage_seconds)
            case Done(retire=False):
                self._assign(worker)
            case Done():
                self._replace(worker)
            case Retire():
                log.info("worker %d is over its share of memory: replaced at a checkpoint", worker.index)
                self._take_back(worker)
                assert worker.unit is not None
                self._queue.appendleft(worker.unit.index)
                self._replace(worker)
            case Failed():
                self._failed(worker, message.error)

    def _failed(self, worker: _Worker, error: Exception) -> None:
        """What the input, the disk or the user causes would happen again; only the unexpected is tried again."""
        if isinstance(error, TokenmillError):
            raise error
        if not self._is_committed(worker):
            self._try_again(worker, f"{type(error).__name__}: {error}")
        self._assign(worker)

    def _handle_death(self, worker: _Worker) -> None:
        code = worker.process.wait()
        if self._is_committed(worker):
            self._replace(worker)
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if not worker.ready and code != -signal.SIGKILL:
            raise WorkerError(f"a worker {how} before it could begin: see its message above, or try --engine extreme")
        self._try_again(worker, f"its worker {how}{' (out of memory?)' if code == -signal.SIGKILL else ''}")
        self._replace(worker)

    def _is_committed(self, worker: _Worker) -> bool:
        """Whether a worker failed only after its unit was committed: then what it did not come to is done here.

        There is no older receipt: those of units that are done again were removed when the run began.
        """
        unit = worker.unit
        assert unit is not None
        receipt = self._job.store.receipt(unit)
        if receipt is None:
            return False
        self._job.store.remove_checkpoint(unit)
        self._take_back(worker)
        self._monitor.update(receipt.ledger, unit.size, StageSeconds())
        return True

    def _try_again(self, worker: _Worker, why: str) -> None:
        unit = worker.unit
        assert unit is not None
        self._take_back(worker)
        failures = self._attempts[unit.index] = self._attempts.get(unit.index, 0) + 1
        log.warning("unit %s failed, attempt %d of %d: %s", unit.name, failures, ATTEMPTS, printable(why))
        if failures < ATTEMPTS:
            self._queue.appendleft(unit.index)
        else:
            self._set_aside[unit.name] = printable(why)

    def _take_back(self, worker: _Worker) -> None:
        """What an attempt reported is reported again by the next one."""
        self._monitor.update(-worker.counted, -worker.consumed, StageSeconds())

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in its place; a unit that was left at a checkpoint is the next in the queue."""
        worker.connection.close()
        worker.process.wait()
        fresh = self._workers[worker.index] = self._start(worker.index)
        self._assign(fresh)

    def close(self) -> None:
        """Have every worker stop at its next block; end those that do not."""
        self._setup.close()
        for worker in self._workers:
            worker.connection.close()  # which it notices
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
