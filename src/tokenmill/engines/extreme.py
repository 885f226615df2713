"""extreme: one process; an asyncio loop feeds blocks to a pool of tokenizer threads; parallel inside a unit.

    unit thread            loop                              tokenizer threads
    run_unit ──blocks────> await a slot of the ring
                           await read(next block)  ────────> parse, encode
       <── in the order of the blocks, whoever finished first ──┘
    pack, write ─────────> the slot is free again

Reading and decompressing happen on reader threads, off the loop, into the buffers of the ring. A slot is taken before
a block is read and given back after it is packed: the ring bounds memory, and everything waits for the slowest stage.
Two units are under way at a time, so that the cores stay busy while one of them drains and is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from tokenmill.encode import Encoder
from tokenmill.engines import Engine
from tokenmill.job import Job
from tokenmill.plan import Units
from tokenmill.process import Encoded, Source
from tokenmill.progress import Monitor
from tokenmill.read.ring import Ring
from tokenmill.records import Ledger, Spent, Unit
from tokenmill.unit import Manner, run_unit

UNITS_UNDER_WAY = 2


class _OtherFailedError(Exception):
    """Another unit has failed, and its error is the one to tell."""


class ExtremeEngine(Engine):
    """Threads share one tokenizer, which releases Python's lock while it encodes."""

    def run(self, job: Job, units: Units, encoder: Encoder, monitor: Monitor) -> None:
        # On a thread of its own: the caller may have a loop already, and Ctrl-C must reach the caller, not the loop.
        pipeline = _Pipeline(job, encoder, monitor)
        with ThreadPoolExecutor(1, "tokenmill-loop") as thread:
            running = thread.submit(lambda: asyncio.run(pipeline.run(units)))
            try:
                running.result()
            except BaseException:
                pipeline.stop()
                raise


class _Pipeline:
    def __init__(self, job: Job, encoder: Encoder, monitor: Monitor) -> None:
        self._job = job
        self._encoder = encoder
        self._monitor = monitor
        self._lock = threading.Lock()
        self._failed = False
        self._slots = asyncio.Semaphore(job.budget.ring)
        self._manner = Manner(ordered_map=self._ordered_map, ring=Ring())

    def stop(self) -> None:
        """Have every unit end at its next block."""
        self._failed = True

    async def run(self, units: Units) -> None:
        self._loop = asyncio.get_running_loop()
        waiting = iter(units)
        with (
            ThreadPoolExecutor(self._job.budget.workers, "tokenmill-encode") as self._tokenizers,
            ThreadPoolExecutor(UNITS_UNDER_WAY, "tokenmill-read") as self._readers,
            ThreadPoolExecutor(UNITS_UNDER_WAY, "tokenmill-unit") as self._units,
        ):
            outcomes = await asyncio.gather(
                *(self._drive(waiting) for _ in range(UNITS_UNDER_WAY)), return_exceptions=True
            )
        errors = [o for o in outcomes if isinstance(o, BaseException)]
        for error in sorted(errors, key=lambda e: isinstance(e, _OtherFailedError)):
            raise error

    async def _drive(self, waiting: Iterator[Unit]) -> None:
        """Run units, one after another, until there is none or another one failed."""
        for unit in waiting:
            work = partial(run_unit, self._job, unit, self._encoder, self._update, self._manner)
            try:
                await self._loop.run_in_executor(self._units, work)
            except BaseException:
                self._failed = True
                raise
            if self._failed:
                return

    def _update(self, ledger: Ledger, consumed: int, spent: Spent) -> None:
        with self._lock:
            if self._failed:
                raise _OtherFailedError
            self._monitor.update(ledger, consumed, spent)

    def _ordered_map(self, function: Callable[[Source], Encoded], items: Iterable[Source], /) -> Iterator[Encoded]:
        """Called on a unit's thread: results in order, while the loop feeds the next blocks."""
        results: queue.SimpleQueue[Future[Encoded] | None] = queue.SimpleQueue()
        stop = threading.Event()
        feeding = asyncio.run_coroutine_threadsafe(self._feed(function, iter(items), results, stop), self._loop)
        try:
            while (future := results.get()) is not None:
                try:
                    yield future.result()
                finally:
                    self._loop.call_soon_threadsafe(self._slots.release)
            feeding.result()  # raises what reading raised
        finally:
            # The blocks must not be closed while a reader thread is still asking for the next one.
            stop.set()
            while not feeding.done():
                self._drain(results)
                time.sleep(0.001)
            self._drain(results)

    async def _feed(
        self,
        function: Callable[[Source], Encoded],
        items: Iterator[Source],
        results: queue.SimpleQueue[Future[Encoded] | None],
        stop: threading.Event,
    ) -> None:
        try:
            while not stop.is_set():
                await self._slots.acquire()
                try:
                    item = await self._loop.run_in_executor(self._readers, next, items, None)
                except BaseException:
                    self._slots.release()
                    raise
                if item is None:
                    self._slots.release()
                    return
                results.put(self._tokenizers.submit(function, item))
        finally:
            results.put(None)

    def _drain(self, results: queue.SimpleQueue[Future[Encoded] | None]) -> None:
        """Give back the slots of blocks that nobody waits for any more."""
        with contextlib.suppress(queue.Empty):
            while (future := results.get_nowait()) is not None:
                future.cancel()
                self._loop.call_soon_threadsafe(self._slots.release)
