"""extreme: one process; an asyncio loop gives units to tokenizer threads, which share a unit when there are too few.

    loop                          tokenizer threads
    the next unit ──────────────> run_unit: read, parse, encode, pack, write
    reads the next files ahead
    no unit left ───────────────> help: parse and encode blocks of a unit that is still running
                                  └─ back to that unit's thread, which keeps the order

While there are units for all threads, no block goes from one thread to another: handing over takes Python's lock, and
the text leaves the cache of the core. One huge file still uses all cores, and no thread idles at the end. The buffers
that blocks are read into are reused (read/ring.py), and the number of blocks in flight is limited.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from tokenmill.encode import Encoder
from tokenmill.engines.base import Assignment, Engine, Monitor
from tokenmill.engines.cost import BLOCK_BYTES, PROCESS_BYTES, THREAD_BYTES, Cost
from tokenmill.engines.read_ahead import ReadAhead
from tokenmill.read.block import ReadingWay
from tokenmill.read.ring import Ring
from tokenmill.records import Ledger, StageSeconds
from tokenmill.unit.process import EncodedBlock, PartBlock
from tokenmill.unit.room import ThreadRoom
from tokenmill.unit.run import UnitHooks, run_unit

BLOCKS_PER_THREAD = 3  # one that it works on, two that wait: for it, or for their turn


class _OtherFailedError(Exception):
    """Ends a unit because another one failed, or because the run is to stop."""


class ExtremeEngine(Engine):
    """Threads share one tokenizer, which releases Python's lock while it encodes."""

    name = "extreme"
    cost = Cost(
        base=PROCESS_BYTES,
        per_worker=THREAD_BYTES + BLOCKS_PER_THREAD * BLOCK_BYTES,
        parallel=True,
        shares_units=True,
        reads_ahead=True,
    )

    @classmethod
    def describe(cls, workers: int, share: int) -> str:  # noqa: ARG003 - threads have no share of their own
        threads = "1 tokenizer thread" if workers == 1 else f"{workers} tokenizer threads"
        return f"{threads}, {BLOCKS_PER_THREAD * workers} blocks in flight"

    def run(self, encoder: Encoder, monitor: Monitor) -> None:
        # On a thread of its own: the caller may have a loop already, and Ctrl-C must reach the caller, not the loop.
        pipeline = _Pipeline(self.assignment, encoder, monitor)
        with ThreadPoolExecutor(1, "tokenmill-loop") as thread:
            running = thread.submit(lambda: asyncio.run(pipeline.run()))
            try:
                running.result()
            except BaseException:
                pipeline.stop()
                raise


class _Pipeline:
    def __init__(self, assignment: Assignment, encoder: Encoder, monitor: Monitor) -> None:
        self._assignment = assignment
        self._waiting = deque(range(len(assignment.units)))
        self._encoder = encoder
        self._monitor = monitor
        self._lock = threading.Lock()
        self._failed = False
        self._ahead = ReadAhead(assignment.setup.inputs, assignment.prefetch_files, assignment.budget.read_ahead)
        budget = assignment.budget
        self._hooks = UnitHooks(
            ordered_map=self._ordered_map,
            way=ReadingWay(ring=Ring(), windows=budget.windows),
            room=ThreadRoom(budget.workers * budget.worker_room),
        )
        # How many blocks may be given to threads that have no unit: to each one to work on and one that waits.
        self._help = threading.Semaphore(0)

    def stop(self) -> None:
        """Have every unit end at its next block."""
        self._failed = True

    async def run(self) -> None:
        workers = self._assignment.budget.workers
        with ThreadPoolExecutor(workers, "tokenmill-encode") as self._threads:
            outcomes = await asyncio.gather(*(self._drive() for _ in range(workers)), return_exceptions=True)
        errors = [o for o in outcomes if isinstance(o, BaseException)]
        for error in sorted(errors, key=lambda e: isinstance(e, _OtherFailedError)):
            raise error

    async def _drive(self) -> None:
        """Keep one thread busy: with units while there are any and none failed, then with helping."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting and not self._failed:
                unit = self._assignment.units[self._waiting.popleft()]
                self._ahead.read(self._assignment.units[n] for n in self._waiting)
                work = partial(run_unit, self._assignment.setup, unit, self._encoder, self._update, self._hooks)
                await loop.run_in_executor(self._threads, work)
                with self._lock:
                    self._monitor.finished(unit)
        except BaseException:
            self._failed = True
            raise
        self._help.release(BLOCKS_PER_THREAD - 1)

    def _update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        with self._lock:
            if self._failed:
                raise _OtherFailedError
            self._monitor.update(ledger, consumed, stage_seconds)

    def _ordered_map(
        self, function: Callable[[PartBlock], EncodedBlock], items: Iterable[PartBlock], /
    ) -> Iterator[EncodedBlock]:
        """Called on a unit's thread: results in order. It does blocks itself, except for those that others can do."""
        pending: deque[Future[EncodedBlock]] = deque()
        try:
            for item in items:
                if self._help.acquire(blocking=False):
                    pending.append(self._threads.submit(self._with_help, function, item))
                elif pending:
                    pending.append(_done(function(item)))
                else:
                    yield function(item)
                del item  # or one of any size would be held while the next one is read
                while pending and (pending[0].done() or sum(f.done() for f in pending) >= BLOCKS_PER_THREAD - 1):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            # The blocks must not be closed while another thread is still at one.
            for future in pending:
                if future.cancel():
                    self._help.release()
            wait(pending)

    def _with_help(self, function: Callable[[PartBlock], EncodedBlock], item: PartBlock) -> EncodedBlock:
        try:
            return function(item)
        finally:
            self._help.release()


def _done(result: EncodedBlock) -> Future[EncodedBlock]:
    future: Future[EncodedBlock] = Future()
    future.set_result(result)
    return future
