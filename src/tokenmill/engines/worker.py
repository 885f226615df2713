"""A worker process of the engine ultra: runs the units that it is given, and reports.

It talks over its end of a socket pair. The other end is the parent's: when that closes, for whatever reason, the worker
stops.
"""

from __future__ import annotations

import gc
import os
import pickle
import time
from multiprocessing.connection import Connection

from tokenmill.encode import Encoder, load_encoder
from tokenmill.engines.machine import current_memory
from tokenmill.engines.protocol import Done, Failed, Progress, Ready, Retire, Setup, Task
from tokenmill.errors import Interrupted, TokenizerError
from tokenmill.job.prepare import Job
from tokenmill.records import Ledger, StageSeconds
from tokenmill.unit.run import UnitHooks, run_unit

REPORT_SECONDS = 0.2


class _RetireError(Exception):
    pass


class _Reporter:
    """Tells the parent how far the unit is, a few times a second, and whether there is still a parent."""

    def __init__(self, connection: Connection, share: int) -> None:
        self._connection = connection
        self._share = share
        self._ledger = Ledger()
        self._consumed = 0
        self._stage_seconds = StageSeconds()
        self._due = 0.0
        self.over = False

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self._ledger.add(ledger)
        self._stage_seconds.add(stage_seconds)
        self._consumed += consumed
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        if self._connection.poll():  # the parent says nothing while a unit runs, so this is the end of it
            raise Interrupted("the parent is gone")
        memory = current_memory()
        self.over = memory > self._share
        if self.over:
            gc.collect()
        self._connection.send(Progress(self._ledger, self._consumed, self._stage_seconds, memory))
        self._ledger, self._consumed, self._stage_seconds = Ledger(), 0, StageSeconds()
        self._due = time.monotonic() + REPORT_SECONDS

    def checkpointed(self) -> None:
        if self.over and current_memory() > self._share:
            raise _RetireError


def main(connection_descriptor: int, setup_descriptor: int) -> None:
    """Run units until the parent closes its end."""
    connection = Connection(connection_descriptor)
    size = os.fstat(setup_descriptor).st_size
    setup: Setup = pickle.loads(os.pread(setup_descriptor, size, 0))  # of our own parent, over an inherited descriptor
    try:
        encoder = _guess_encoder(setup.job)
        connection.send(Ready())
        while True:
            task: Task = connection.recv()
            try:
                if encoder is None or encoder.name != task.encoder:
                    encoder = load_encoder(setup.job.tokenizer, task.encoder, setup.job.config.special_tokens_in_text)
                connection.send(_run(setup, task, encoder, connection))
            except (Interrupted, EOFError, ConnectionError):
                return
            except Exception as error:
                connection.send(Failed(_picklable(error)))
    except (EOFError, ConnectionError):
        return  # the parent is done, or gone


def _run(setup: Setup, task: Task, encoder: Encoder, connection: Connection) -> Done | Retire:
    reporter = _Reporter(connection, setup.memory)
    try:
        hooks = UnitHooks(checkpointed=reporter.checkpointed)
        run_unit(setup.job, task.unit, encoder, reporter.update, hooks)
    except _RetireError:
        return Retire()
    reporter.flush()
    return Done(retire=reporter.over and current_memory() > setup.memory)


def _guess_encoder(job: Job) -> Encoder | None:
    """The encoder that will be wanted in all likelihood, loaded while the parent is still checking it."""
    name = str(job.config.encoder).replace("auto", "fastokens")
    try:
        return load_encoder(job.tokenizer, name, job.config.special_tokens_in_text)
    except TokenizerError:
        return None


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(repr(error))
    return error
