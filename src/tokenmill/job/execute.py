"""A whole job: plan, prepare, let an engine run the units, finish."""

from __future__ import annotations

import gc
import logging
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokenmill.config import AUTO, Config, InputAccess, resume_hint
from tokenmill.encode import Encoder, Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.engines.auto import choose_engine
from tokenmill.engines.base import Assignment
from tokenmill.engines.budget import derive_budget, limit_to_machine
from tokenmill.engines.cost import OPEN_FILES, Budget
from tokenmill.engines.machine import allow_open_files
from tokenmill.engines.registry import engine_class
from tokenmill.errors import ConfigError, Interrupted, OutputError, TokenmillError
from tokenmill.job.complete import complete_job, how_it_ended, too_many_rejects
from tokenmill.job.mapped import noted
from tokenmill.job.prepare import Job, open_job
from tokenmill.job.progress import Meter, Timeline
from tokenmill.messages import counted, printable, size, why
from tokenmill.output import layout
from tokenmill.output.finish import write_rejects
from tokenmill.output.open import output_storage
from tokenmill.output.plan_file import Plan, Units
from tokenmill.output.schema import DamagedFile, Summary
from tokenmill.plan.make import QUIET, Planned, make_plan
from tokenmill.read.corpus import Corpus
from tokenmill.records import Ledger, StageSeconds, Unit
from tokenmill.storage.base import Storage
from tokenmill.storage.local import within_limit

log = logging.getLogger("tokenmill")

MEMORY_SECONDS = 1.0

Display = Callable[[Meter], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run did.

    `missing` maps files that could not be read to the reason: the next run reads them. `damaged` are files of which
    only what is whole is in the output. `skipped_data` are those that were skipped although they look like data. All
    that was skipped is `left_out`, and `side_files` of these are known to lie beside data.
    """

    output: Path
    files: int
    ledger: Ledger
    missing: dict[str, str]
    damaged: dict[str, DamagedFile]
    skipped_data: dict[str, str]
    left_out: int
    side_files: int
    output_bytes: int
    already_complete: bool
    meter: Meter

    @property
    def complete(self) -> bool:
        """Whether all that the inputs are meant to hold was read."""
        return not self.missing and not self.damaged and not self.skipped_data


def run(config: Config, *, stop: threading.Event | None = None, display: Display | None = None) -> RunResult:
    """Do a job, or what is left of it. Set `stop` to end it early in a resumable state (raises Interrupted)."""
    allow_open_files(OPEN_FILES)  # before there are threads: one that cannot open a module says that it is not there
    config = limit_to_machine(config)
    tokenizer = resolve_tokenizer(config)
    with ThreadPoolExecutor(1) as loader:
        loading = loader.submit(build_encoder, tokenizer, config.encoder, config.special_tokens_in_text)
        planned = make_plan(config.inputs, config.output, partial(Corpus, options=config))
        storage = output_storage(config.output)
        return run_planned(config, planned, storage, tokenizer, loading, stop=stop, display=display)


def run_planned(
    config: Config,
    planned: Planned,
    storage: Storage,
    tokenizer: Tokenizer,
    loading: Future[Encoder],
    *,
    stop: threading.Event | None = None,
    display: Display | None = None,
) -> RunResult:
    """Run what is planned into a storage; the encoder may still be loading."""
    budget, chosen = _budget(config, planned.plan)
    with _output_errors(storage, resume_hint(config)), open_job(config, planned, tokenizer, storage) as job:
        meter = Meter(total_bytes=sum(job.plan.sizes), total_files=job.plan.files, done_files=job.plan.files)
        pending = _pending(job, meter)
        if not pending and (summary := how_it_ended(job)) is not None:
            job.store.conclude()
            return _result(job, summary, meter, already_complete=True)
        allow_open_files(budget.open_files)
        _announce(job, pending, budget, chosen)
        with closing(engine_class(budget.engine)(_assignment(job, pending, budget))) as engine:
            engine.warm_up()
            encoder = loading.result()  # before anything is written: it may turn out that it cannot be used
            with job.underway(), noted(job.store, mapped=config.read is InputAccess.MMAP):
                job.receipts.reset(_to_undo(job, pending))
                job.receipts.drop_damaged_checkpoints(job.store.units_with_checkpoints(job.plan))
                with Timeline(meter, storage), (display or nullcontext)(meter):
                    engine.run(encoder, _RunMonitor(job, budget, meter, stop))
                summary = complete_job(job)
        return _result(job, summary, meter, already_complete=False)


def _budget(config: Config, plan: Plan) -> tuple[Budget, str]:
    if config.engine == AUTO:
        return choose_engine(config, plan.sizes)
    return derive_budget(engine_class(config.engine), config, len(plan.sizes)), ""


def _assignment(job: Job, pending: Units, budget: Budget) -> Assignment:
    return Assignment(
        setup=job.unit_setup(),
        units=pending,
        budget=budget,
        encoder=job.config.encoder,
        prefetch_files=job.config.prefetch_files,
        lock_handles=job.lock_handles,
    )


@contextmanager
def _output_errors(storage: Storage, hint: str) -> Iterator[None]:
    """Whatever fails to be written outside a unit: inputs are read inside units only."""
    try:
        with within_limit():
            yield
    except OSError as error:
        if isinstance(error, TokenmillError):
            raise
        raise OutputError(
            f"cannot write to {storage.describe()}: {why(error)}. Everything committed is safe: fix this and {hint}"
        ) from error


def _announce(job: Job, pending: Units, budget: Budget, chosen: str) -> None:
    total, tokenizer = len(job.plan.sizes), job.tokenizer
    done = f" ({total - len(pending):,} done before)" if len(pending) < total else ""
    log.info(f"{counted(job.plan.files, 'file')}, {size(sum(job.plan.sizes))}, in {counted(total, 'unit')}{done}")
    log.info(f"tokenizer {printable(tokenizer.name)}, EOS {tokenizer.eos_token or 'none'}")
    log.info(budget.summary(by_auto=bool(chosen)))
    if budget.workers < budget.requested:
        log.info(
            f"{budget.requested} workers were requested: the budget, the engine and the units allow {budget.workers}"
        )
    log.debug(f"{budget}{f' (chosen: {chosen})' if chosen else ''}")


def _pending(job: Job, meter: Meter) -> Units:
    """The units that are still to be run, or to be run again; the meter starts from the others."""
    pending = array("Q")
    redo = set(job.config.redo)
    last = len(job.plan.sizes) - 1
    if beyond := [n for n in redo if not 0 <= n <= last]:
        units = f"units 0 to {last}" if last else "unit 0 only"
        raise ConfigError(f"there is no unit {beyond[0]}: the job has {units}", "redo")
    for unit in job.plan.units():
        if unit.index not in redo and (receipt := job.receipts.finished(unit)):
            meter.add(receipt.ledger, unit.size)
        else:
            pending.append(unit.index)
            meter.expect(unit)
    meter.start()
    return job.plan.units(pending)


def _to_undo(job: Job, pending: Units) -> Units:
    """The units that were committed before, or that somebody wants done again."""
    redo, has = job.config.redo, job.store.has
    return job.plan.units([u.index for u in pending if u.index in redo or has(layout.receipt_file(u))])


class _RunMonitor:
    """Counts what engines report, and ends the run when it is to stop or rejects too much."""

    def __init__(self, job: Job, budget: Budget, meter: Meter, stop: threading.Event | None) -> None:
        self._job = job
        self._budget = budget
        self._meter = meter
        self._stop = stop
        self._look_again = 0.0
        self._warned = False

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self._meter.add(ledger, consumed)
        self._meter.stage_seconds.add(stage_seconds)
        if self._stop is not None and self._stop.is_set():
            raise Interrupted(f"interrupted; {self._job.resume_hint} to continue")
        total, limit = self._meter.ledger, self._job.config.max_rejects
        if ledger.rejected and limit.exceeded(total.rejected, total.records, final=False):
            write_rejects(self._job.receipts, self._job.plan)
            raise too_many_rejects(self._job, total)
        if time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + MEMORY_SECONDS
            self._watch_memory()

    def _watch_memory(self) -> None:
        """Over the budget: collect garbage, and say so once if that does not help."""
        total = self._budget.total
        if self._warned or self._meter.memory() <= total:
            return
        gc.collect()
        if (now := self._meter.memory()) > total:
            self._warned = True
            log.warning(
                "memory is at %s, over the budget of %s: lower --num-workers or --max-document-bytes, or raise "
                "--max-memory",
                size(now),
                size(total),
            )

    def finished(self, unit: Unit) -> None:
        self._meter.finish(unit)

    def worker(self, index: int, unit: Unit | None, memory: int) -> None:
        self._meter.workers[index] = (unit.name if unit else "", memory)
        self._meter.memory()


def _result(job: Job, summary: Summary, meter: Meter, *, already_complete: bool) -> RunResult:
    storage = job.store.storage
    receipts = filter(None, map(job.receipts.receipt, job.plan.units()))
    names = (name for r in receipts for c in r.chunks for name in layout.chunk_files(c))
    return RunResult(
        output=job.config.output,
        files=job.plan.files,
        ledger=summary.ledger,
        missing=summary.missing,
        damaged=summary.damaged,
        skipped_data={entry.name: entry.why for entry in job.skipped.data()},
        left_out=len(job.skipped),
        side_files=sum(entry.why in QUIET for entry in job.skipped),
        output_bytes=sum(storage.stat(name).size for name in names),
        already_complete=already_complete,
        meter=meter.freeze(),
    )
