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
from pathlib import Path

from tokenmill.config import AUTO, Config, resume_hint
from tokenmill.encode import Encoder, Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.engines.auto import choose
from tokenmill.engines.budget import Budget, derive_budget
from tokenmill.engines.registry import get_engine
from tokenmill.errors import ConfigError, Interrupted, OutputError, TokenmillError
from tokenmill.job.prepare import Job, open_job
from tokenmill.job.progress import Meter, Timeline
from tokenmill.messages import printable, size
from tokenmill.output.finish import finish, read_summary, too_many_rejects, write_rejects
from tokenmill.output.manifest import Summary
from tokenmill.output.plan_file import Plan, Units
from tokenmill.plan.make import make_plan
from tokenmill.records import Ledger, Reason, StageSeconds, Unit

log = logging.getLogger("tokenmill")

MEMORY_SECONDS = 1.0

Display = Callable[[Meter], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run did. `missing` maps files that could not be read, or not to their end, to the reason."""

    output: Path
    files: int
    ledger: Ledger
    missing: dict[str, str]
    left_out: int
    output_bytes: int
    already_complete: bool
    meter: Meter

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def damaged(self) -> dict[str, int]:
        """Rejects that may stand for any number of records: of files that are damaged, or break off."""
        reasons = self.ledger.rejects_by_reason
        return {r.value: reasons[r] for r in (Reason.TRUNCATED_FILE, Reason.CORRUPT_FILE) if r in reasons}


def run(config: Config, *, stop: threading.Event | None = None, display: Display | None = None) -> RunResult:
    """Do a job, or what is left of it. Set `stop` to end it early in a resumable state (raises Interrupted)."""
    tokenizer = resolve_tokenizer(config)
    with ThreadPoolExecutor(1) as loader:
        loading = loader.submit(build_encoder, tokenizer, config.encoder, config.special_tokens_in_text)
        return _run(config, tokenizer, loading, stop, display)


def _run(
    config: Config,
    tokenizer: Tokenizer,
    loading: Future[Encoder],
    stop: threading.Event | None,
    display: Display | None,
) -> RunResult:
    plan = make_plan(config)
    budget, why = _budget(config, plan)
    with _output_errors(config), open_job(config, plan, tokenizer, budget) as job:
        meter = Meter(total_bytes=sum(job.plan.sizes))
        pending = _pending(job, meter)
        if not pending and (summary := read_summary(job.store)) is not None and summary.run_id == job.run_id:
            job.store.conclude()
            return _result(job, summary, meter, already_complete=True)
        _tell_intention(job, pending, why)
        with closing(get_engine(budget.engine)) as engine:
            engine.warm_up(job, pending)
            encoder = loading.result()  # before anything is written: it may turn out that it cannot be used
            with job.underway():
                job.store.reset(_to_undo(job, pending))
                with Timeline(meter, job.store.logs), (display or nullcontext)(meter):
                    engine.run(job, pending, encoder, _RunMonitor(job, meter, stop))
                summary = finish(job)
        return _result(job, summary, meter, already_complete=False)


def _budget(config: Config, plan: Plan) -> tuple[Budget, str]:
    if config.engine == AUTO:
        return choose(config, plan.sizes)
    return derive_budget(config.engine, config, len(plan.sizes)), ""


@contextmanager
def _output_errors(config: Config) -> Iterator[None]:
    """Whatever fails to be written outside a unit: inputs are read inside units only."""
    try:
        yield
    except OSError as error:
        if isinstance(error, TokenmillError):
            raise
        raise OutputError(
            f"cannot write to {printable(config.output)}: {error.strerror or error}. Everything committed is safe: "
            f"mend this and {resume_hint(config)}"
        ) from error


def _tell_intention(job: Job, pending: Units, why: str) -> None:
    total, tokenizer = len(job.plan.sizes), job.tokenizer
    done = f", {total - len(pending)} of them done before" if len(pending) < total else ""
    log.info(
        f"{job.plan.files:,} files, {size(sum(job.plan.sizes))}, in {total:,} units{done}; "
        f"tokenizer {printable(tokenizer.name)}, EOS {tokenizer.eos_token or 'none'}"
    )
    log.info(f"{job.budget}{f' (chosen: {why})' if why else ''}")


def _pending(job: Job, meter: Meter) -> Units:
    """The units that are still to be run, or to be run again; the meter starts from the others."""
    pending = array("Q")
    redo = set(job.config.redo)
    if beyond := [n for n in redo if not 0 <= n < len(job.plan.sizes)]:
        raise ConfigError(f"redo: there is no unit {beyond[0]}, the job has units 0 to {len(job.plan.sizes) - 1}")
    for unit in job.plan.units():
        if unit.index not in redo and (receipt := job.finished(unit)):
            meter.add(receipt.ledger, unit.size)
        else:
            pending.append(unit.index)
    meter.start()
    return job.plan.units(pending)


def _to_undo(job: Job, pending: Units) -> Units:
    """The units that were committed before, or that somebody wants done again."""
    redo = job.config.redo
    return job.plan.units([u.index for u in pending if u.index in redo or job.store.receipt_path(u).exists()])


class _RunMonitor:
    """Counts what engines report, and ends the run when it is to stop or rejects too much."""

    def __init__(self, job: Job, meter: Meter, stop: threading.Event | None) -> None:
        self._job = job
        self._meter = meter
        self._stop = stop
        self._look_again = 0.0
        self._warned = False

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self._meter.add(ledger, consumed)
        self._meter.stage_seconds.add(stage_seconds)
        if self._stop is not None and self._stop.is_set():
            raise Interrupted(f"interrupted; {resume_hint(self._job.config)} to continue")
        counted, limit = self._meter.ledger, self._job.config.max_rejects
        if ledger.rejected and limit.exceeded(counted.rejected, counted.records, final=False):
            raise _over_limit(self._job, counted)
        if time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + MEMORY_SECONDS
            self._watch_memory()

    def _watch_memory(self) -> None:
        """Over the budget: collect garbage, and say so once if that does not help."""
        total = self._job.budget.total
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

    def worker(self, index: int, unit: Unit | None, memory: int) -> None:
        self._meter.workers[index] = (unit.name if unit else "", memory)
        self._meter.memory()


def _over_limit(job: Job, ledger: Ledger) -> TokenmillError:
    write_rejects(job)
    return too_many_rejects(job, ledger)


def _result(job: Job, summary: Summary, meter: Meter, *, already_complete: bool) -> RunResult:
    receipts = filter(None, map(job.store.receipt, job.plan.units()))
    paths = (p for r in receipts for c in r.chunks for p in job.store.chunk_paths(c))
    return RunResult(
        output=job.store.root,
        files=job.plan.files,
        ledger=summary.ledger,
        missing=summary.missing,
        left_out=len(job.plan.left_out or ()),
        output_bytes=sum(p.stat().st_size for p in paths),
        already_complete=already_complete,
        meter=meter.freeze(),
    )
