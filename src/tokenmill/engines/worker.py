"""A worker process of the engine ultra: runs the units that it is given, and reports.

It talks over its end of a socket pair. The other end is the parent's: when that is closed, for whatever reason, the
worker stops.
"""

from __future__ import annotations

import gc
import os
import pickle
import time
from dataclasses import replace
from multiprocessing.connection import Connection

from tokenmill.config import EncoderChoice
from tokenmill.encode import Encoder, load_encoder
from tokenmill.engines.machine import current_memory
from tokenmill.engines.protocol import Done, Failed, Ready, Retire, Task, UnitReport, WorkerSetup
from tokenmill.errors import Interrupted, TokenizerError
from tokenmill.read.block import ReadingWay
from tokenmill.records import Ledger, StageSeconds
from tokenmill.unit.room import ProcessRoom
from tokenmill.unit.run import UnitHooks, run_unit
from tokenmill.unit.setup import UnitSetup

REPORT_SECONDS = 0.2


class _RetireError(Exception):
    """Leaves a unit at its checkpoint, so that another worker can continue it."""


class _Reporter:
    """Tells the parent how far the unit is, a few times a second, and stops the unit when there is no parent."""

    def __init__(self, connection: Connection, share: int) -> None:
        self._connection = connection
        self._share = share
        self._ledger = Ledger()
        self._consumed = 0
        self._stage_seconds = StageSeconds()
        self._due = 0.0
        self._was_over = False

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self._ledger.add(ledger)
        self._stage_seconds.add(stage_seconds)
        self._consumed += consumed
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        if self._connection.poll():  # the parent sends nothing while a unit runs, so it has closed its end
            raise Interrupted("the parent is gone")
        memory = current_memory()
        self._was_over = memory > self._share
        if self._was_over:
            gc.collect()
        self._connection.send(UnitReport(self._ledger, self._consumed, self._stage_seconds, memory))
        self._ledger, self._consumed, self._stage_seconds = Ledger(), 0, StageSeconds()
        self._due = time.monotonic() + REPORT_SECONDS

    def checkpointed(self) -> None:
        if self.is_over_share():
            raise _RetireError

    def is_over_share(self) -> bool:
        """Whether the worker was over its share of memory at the last report, and still is."""
        return self._was_over and current_memory() > self._share


def main(connection_descriptor: int, setup_descriptor: int) -> None:
    """Run units until the parent closes its end."""
    connection = Connection(connection_descriptor)
    size = os.fstat(setup_descriptor).st_size
    given: WorkerSetup = pickle.loads(os.pread(setup_descriptor, size, 0))  # from our own parent, by a descriptor
    setup = given.setup
    # The file that the setup came in is the one that all workers inherit, and so can lock.
    room = ProcessRoom(setup_descriptor, given.room)
    hooks = UnitHooks(way=ReadingWay(windows=given.windows), room=room)
    try:
        encoder = _guess_encoder(given)
        connection.send(Ready())
        while True:
            task: Task = connection.recv()
            try:
                if encoder is None or encoder.name != task.encoder:
                    encoder = load_encoder(setup.tokenizer, task.encoder, setup.options.special_tokens_in_text)
                connection.send(_run(setup, task, encoder, _Reporter(connection, given.memory), hooks))
            except (Interrupted, EOFError, ConnectionError):
                return
            except Exception as error:
                connection.send(Failed(picklable(error)))
    except (EOFError, ConnectionError):
        return  # the parent is done, or gone


def _run(setup: UnitSetup, task: Task, encoder: Encoder, reporter: _Reporter, hooks: UnitHooks) -> Done | Retire:
    try:
        run_unit(setup, task.unit, encoder, reporter.update, replace(hooks, checkpointed=reporter.checkpointed))
    except _RetireError:
        return Retire()
    reporter.flush()
    return Done(retire=reporter.is_over_share())


def _guess_encoder(given: WorkerSetup) -> Encoder | None:
    """The encoder that will most likely be needed, loaded while the parent is still checking it."""
    name = EncoderChoice.FASTOKENS if given.encoder is EncoderChoice.AUTO else given.encoder
    try:
        return load_encoder(given.setup.tokenizer, str(name), given.setup.options.special_tokens_in_text)
    except TokenizerError:
        return None


def picklable(error: Exception) -> Exception:
    """The error, or its text if the parent could not load it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(repr(error))
    return error
