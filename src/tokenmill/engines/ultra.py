"""ultra: a pool of worker processes over units.

    parent                          worker processes (engines/worker.py), one unit each at a time
    assigns units, reads ahead ───> run_unit
    counts, replaces workers   <─── ready, report, done, failed, retire

A worker that dies (killed, out of memory, a native crash) is replaced; what becomes of its unit is for attempts.py to
say. Workers are separate programs, not forks: a fork of a process with native threads can hang, and a caller's script
needs no `if __name__ == "__main__"`.
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
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from tokenmill.encode import Encoder
from tokenmill.engines.attempts import Attempt, Attempts
from tokenmill.engines.base import Assignment, Engine, Monitor
from tokenmill.engines.cost import PROCESS_BYTES, SINGLE_BYTES, Cost
from tokenmill.engines.protocol import Done, Failed, Ready, Retire, Task, UnitReport, WorkerSetup
from tokenmill.engines.read_ahead import ReadAhead
from tokenmill.errors import WorkerError
from tokenmill.messages import size
from tokenmill.output.schema import Receipt
from tokenmill.records import Ledger, StageSeconds, Unit

log = logging.getLogger("tokenmill")

# Workers are the parallelism; native threads inside them would only compete for the cores.
_ONE_THREAD = {"FASTOKENS_BPE_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
_PROGRAM = "from tokenmill.engines.worker import main; main({connection}, {setup})"
# A terminal sends these to every process of the group, but it is the parent that ends the workers.
_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM)
_HINTS = {
    -signal.SIGKILL: " (out of memory?)",
    -signal.SIGBUS: " (a file that was mapped by --read mmap, and cut short meanwhile?)",
}
STOP_SECONDS = 0.5
POLL_SECONDS = 0.1


class UltraEngine(Engine):
    """Runs as many workers as the memory budget allows."""

    name = "ultra"
    cost = Cost(base=PROCESS_BYTES, per_worker=SINGLE_BYTES, parallel=True, reads_ahead=True)
    _pool: _Pool | None = None
    worker = ("process", "processes")

    @classmethod
    def describe(cls, workers: int, share: int) -> str:
        processes = "1 worker process" if workers == 1 else f"{workers} worker processes"
        return f"{processes} of up to {size(share)} each"

    def warm_up(self) -> None:
        self._pool = _Pool(self.assignment)

    def run(self, encoder: Encoder, monitor: Monitor) -> None:
        if self._pool is None:
            self.warm_up()
        assert self._pool is not None
        self._pool.run(encoder.name, monitor)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


@dataclass
class _Worker:
    """A worker process and what it is doing."""

    index: int
    process: subprocess.Popen[bytes]
    connection: Connection
    attempt: Attempt | None = None
    ready: bool = False


class _Pool:
    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._ahead = ReadAhead(assignment.setup.inputs, assignment.prefetch_files, assignment.budget.read_ahead)
        # In a file, not down the socket: it holds the tokenizer, and a send of megabytes would wait for the worker.
        self._setup = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the pool, see close
        budget = assignment.budget
        setup = WorkerSetup(
            setup=assignment.setup,
            encoder=assignment.encoder,
            memory=budget.worker_bytes,
            room=budget.worker_room,
            windows=budget.windows,
        )
        pickle.dump(setup, self._setup)
        self._setup.flush()
        workers = min(assignment.budget.workers, len(assignment.units))
        self._workers = [self._start(index) for index in range(workers)]

    def _start(self, index: int) -> _Worker:
        ours, theirs = (Connection(s.detach()) for s in socket.socketpair())
        program = _PROGRAM.format(connection=theirs.fileno(), setup=self._setup.fileno())
        # It inherits the lock of the output directory: should this process die, nobody else may write there before its
        # workers have noticed.
        inherited = [theirs.fileno(), self._setup.fileno(), *self._assignment.lock_handles]
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

    def run(self, encoder: str, monitor: Monitor) -> None:
        self._encoder = encoder
        self._monitor = monitor
        self._attempts = Attempts(self._assignment.units, monitor.update, self._settle)
        for worker in self._workers:
            self._assign(worker)
        while busy := {w.connection: w for w in self._workers if w.attempt}:
            ready = wait(list(busy), POLL_SECONDS)
            self._monitor.update(Ledger(), 0, StageSeconds())  # raises if the run is to stop
            for connection in ready:
                self._receive(busy[connection])  # type: ignore[index]
        self._attempts.finish(self._assignment.setup.resume_hint)

    def _assign(self, worker: _Worker) -> None:
        worker.attempt = self._attempts.begin()
        if worker.attempt is not None:
            self._ahead.read(self._attempts.upcoming())
            self._send(worker)

    def _send(self, worker: _Worker) -> None:
        # Not before it is ready: a unit of many files is more than a socket holds, and sending waits for a reader.
        if worker.ready:
            assert worker.attempt is not None
            with contextlib.suppress(OSError):  # it died: the next receive will tell
                worker.connection.send(Task(worker.attempt.unit, self._encoder))

    def _receive(self, worker: _Worker) -> None:
        try:
            message: Any = worker.connection.recv()
        except (EOFError, OSError):
            self._handle_death(worker)
            return
        assert worker.attempt is not None
        match message:
            case Ready():
                worker.ready = True
                self._send(worker)
            case UnitReport():
                self._monitor.worker(worker.index, worker.attempt.unit, message.memory)
                worker.attempt.reported.add(message.ledger, message.consumed, message.stage_seconds)
            case Done():
                self._monitor.finished(worker.attempt.unit)
                if message.retire:
                    self._replace(worker)
                else:
                    self._assign(worker)
            case Retire():
                log.info("worker %d is over its share of memory: replaced at a checkpoint", worker.index)
                self._attempts.leave(worker.attempt)
                self._replace(worker)
            case Failed():
                self._attempts.fail(worker.attempt, message.error)
                self._assign(worker)

    def _settle(self, unit: Unit) -> Receipt | None:
        if (receipt := self._assignment.settle(unit)) is not None:
            self._monitor.finished(unit)
        return receipt

    def _handle_death(self, worker: _Worker) -> None:
        code = worker.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if not worker.ready and code != -signal.SIGKILL:
            raise WorkerError(f"a worker {how} before it was ready: see its message above, or try --engine extreme")
        assert worker.attempt is not None
        hint = _HINTS.get(code, "")
        self._attempts.fail(worker.attempt, f"its worker {how}{hint}")
        self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in its place; a unit that was left at a checkpoint is the next one."""
        worker.connection.close()
        worker.process.wait()
        fresh = self._workers[worker.index] = self._start(worker.index)
        self._assign(fresh)

    def close(self) -> None:
        """Have every worker stop at its next block; kill those that do not."""
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
