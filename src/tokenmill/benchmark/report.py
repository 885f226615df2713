"""What was measured, as tables, as JSON and as advice."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from tokenmill.benchmark.methods import FASTOKENS, REFERENCE
from tokenmill.benchmark.runs import Contender
from tokenmill.engines.machine import default_workers, machine_memory
from tokenmill.messages import aligned, columns_of, counted, printable, size, table, wrapped

LIBRARIES = ("tokenmill", "fastokens", "tokenizers", "gigatoken", "isal", "msgspec", "numpy", "pyarrow")
_BASE = f"{REFERENCE}_single"
SAME = 1.05  # a difference that a shared machine makes by itself
SAME_BATCH = 1.15  # in the fraction of a second that a thousand documents take, more
LEAST_SECONDS = 2.0  # of which start-up is a third


@dataclass(slots=True, kw_only=True)
class Method:
    """A way to encode, and what it took each time."""

    name: str
    documents: int
    text_bytes: int
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    digest: str = ""
    peak_memory: int = 0

    def add(self, found: dict[str, Any]) -> None:
        self.seconds.append(found["seconds"])
        self.tokens, self.digest = found["tokens"], found["digest"]
        self.peak_memory = max(self.peak_memory, found["peak_memory"])

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that was measured."""

    cores: int
    inputs: tuple[str, ...]
    generated: bool
    job_options: tuple[str, ...] = ()
    """What makes the job, beside its inputs: the options that are not the default."""
    methods: list[Method] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    """Methods that gave other ids than the first, whose speed is therefore not compared."""
    refused: dict[str, str] = field(default_factory=dict)
    """Libraries that cannot use this tokenizer, and why."""
    limit: dict[str, float] = field(default_factory=dict)
    """CPU seconds of the bare kernels, by stage."""
    engines: list[Contender] = field(default_factory=list)
    peers: list[Contender] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def to_limit(self, contender: Contender) -> float:
        """Wall time as a multiple of the bare kernels' CPU time on as many cores."""
        # Where the clock is coarse, the kernels may take no time at all on little text.
        return contender.best * self.cores_of(contender) / max(1e-3, sum(self.limit.values()))

    def cores_of(self, contender: Contender) -> int:
        """How many cores it can keep busy."""
        return min(contender.workers, self.cores)

    def to_json(self, command: Sequence[str]) -> dict[str, Any]:
        return {
            "command": " ".join(command),
            "date": time.strftime("%Y-%m-%d"),
            "machine": describe_machine(),
            "versions": dict(_versions()),
            "methods": [asdict(m) for m in self.methods],
            "methods_with_other_ids": self.differing,
            "libraries_that_refuse": self.refused,
            "limit_cpu_seconds": self.limit,
            "engines": [{**asdict(c), "to_limit": round(self.to_limit(c), 3)} for c in self.engines],
            "peers": [asdict(c) for c in self.peers],
            "absent": self.absent,
            "recommendation": self.recommendation(),
        }

    def lines(self, wide: int | None = None) -> Iterable[str]:
        """The report as text, as wide as a terminal if it goes to one."""
        for line in self._lines(wide):
            if wide is None or columns_of(line) <= wide:
                yield line
            elif line.startswith("  tokenmill "):  # to be copied as it is
                yield wrapped(line, wide - 2, 6).replace("\n", " \\\n")
            else:
                yield wrapped(line, wide, 4)

    def _lines(self, wide: int | None) -> Iterable[str]:
        full = any(m.name == _BASE for m in self.methods)
        if full:
            yield from _method_table(self.methods, wide)
        for library, problem in self.refused.items():
            yield f"{library} cannot use this tokenizer: {printable(problem)}"
        if self.differing:
            yield f"skipped, because their ids differ from those of {self.methods[0].name}: {', '.join(self.differing)}"
        if self.engines:
            yield from ["", *self._run_table(wide)]
            if self._is_short:
                yield "start-up takes most of the time of runs as short as these: give it more text"
        for name in self.absent:
            yield f"{name}: not installed; `make peers` in a checkout of tokenmill installs it below .peers/"
        for peer in self.peers:
            if peer.problem:
                yield f"{peer.name}: {peer.problem}"
        yield from ["", *self.recommendation()]

    @property
    def _is_short(self) -> bool:
        return bool(self.engines) and min(c.best for c in self.engines) < LEAST_SECONDS

    def _run_table(self, wide: int | None) -> Iterable[str]:
        first = self.engines[0]
        cpu = sum(self.limit.values())
        yield (
            f"{first.documents:,} documents, {size(first.text_bytes)} of text, {first.tokens:,} tokens, "
            f"{first.text_bytes / max(1, first.tokens):.2f} bytes per token; start-up included"
        )
        kernels = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in self.limit.items())
        yield f"limit: {cpu:.2f} s of CPU in the bare kernels ({kernels}), divided by the cores in use"
        head = ("Engine", "Workers", "Time (s)", "Docs/sec", "Tokens/sec", "MB/s", "Peak memory", "x limit", "Spread")
        rows: list[tuple[str, ...]] = [head]
        for c in self.engines:
            rows.append((*_rates(c), f"{self.to_limit(c):.2f}", _spread(c.seconds)))
        done = [p for p in self.peers if p.seconds]
        best = max((c for c in self.engines), key=lambda c: 1 / c.best)
        for c in done:
            rows.append((*_rates(c), _times(c.best / best.best), c.agrees))
        yield from table(rows, wide, ("Docs/sec", "MB/s", "Spread"))
        yield ""
        yield "where the time goes: shares of wall time x cores in use (the rest: start-up, waiting, everything else)"
        stages = [("Engine", "Workers", *self.limit, "rest")]
        for c in self.engines:
            whole = c.best * self.cores_of(c)
            shares = [(c.cpu_seconds or {}).get(stage, 0.0) / whole for stage in self.limit]
            stages.append((c.name, str(c.workers), *(f"{100 * s:.0f} %" for s in [*shares, 1 - sum(shares)])))
        yield from aligned(stages)

    def recommendation(self) -> list[str]:
        """Engine, workers and batch size for this machine, as a command, with the reason."""
        batch, why_batch = self._batch_size()
        if self._is_short:
            engine, workers = "auto", default_workers()
            why = "engine and workers by rule: these runs are too short to tell, give it more text"
        elif self.engines:
            best = min(self.engines, key=lambda c: c.best)
            near = [c for c in self.engines if c.best <= SAME * best.best]
            chosen = min(near, key=lambda c: c.peak_memory)
            rate = chosen.text_bytes / chosen.best / 1e6
            engine, workers = chosen.name, chosen.workers
            who = f"{engine} with {counted(workers, 'worker')}"
            why = f"{who} was the fastest: {rate:.0f} MB/s in {size(chosen.peak_memory)}"
            if chosen is not best:
                why = f"{who} ties with {best.name} and needs less memory"
        else:
            engine, workers = "auto", default_workers()
            why = "engine and workers by rule, not measured: add --engines all"
        command = ["tokenmill", "run", *(self.inputs or ("INPUT",)), "OUTPUT", *self.job_options, "--engine", engine]
        command += ["--num-workers", str(workers), "--batch-size", str(batch)]
        return [
            "recommendation for this machine:",
            f"  {shlex.join(command)}",
            f"  ({why}; {why_batch})",
        ]

    def _batch_size(self) -> tuple[int, str]:
        library = REFERENCE if FASTOKENS in self.refused else FASTOKENS
        found = {int(m.name.split("_")[-1]): m for m in self.methods if m.name.startswith(f"{library}_batch_")}
        if 100 not in found:
            why = "cannot use this tokenizer" if FASTOKENS in self.refused else "gave other ids"
            return 100, f"batch size by rule: {FASTOKENS} {why}"
        batches = {n: m.median for n, m in found.items()}
        best = min(batches, key=lambda n: batches[n])
        # Clearly faster, every time, and more than once or twice.
        clear = len(found[best].seconds) > 2 and max(found[best].seconds) < min(found[100].seconds)
        if not clear or batches[100] <= SAME_BATCH * batches[best]:
            return 100, f"batches of {', '.join(map(str, batches))}: 100 is as good as any"
        return best, f"batches of {best} were {batches[100] / batches[best]:.2f} times as fast as of 100"


def _method_table(methods: list[Method], wide: int | None) -> Iterable[str]:
    first = methods[0]
    base = next(m.median for m in methods if m.name == _BASE)
    yield (
        f"{first.documents:,} documents, {size(first.text_bytes)}, {first.tokens:,} tokens, "
        f"{first.text_bytes / first.tokens:.2f} bytes per token; all of these gave the same ids"
    )
    rows = [("Method", "Time (s)", "Docs/sec", "Tokens/sec", "Speedup", "MB/s", "Peak memory", "Spread")]
    for m in sorted(methods, key=lambda m: m.median):
        s = m.median
        rate = f"{m.text_bytes / s / 1e6:.1f}"
        memory = size(m.peak_memory)
        tokens, documents = f"{m.tokens / s:,.0f}", f"{m.documents / s:,.0f}"
        rows.append((m.name, f"{s:.2f}", documents, tokens, f"{base / s:.1f}x", rate, memory, _spread(m.seconds)))
    yield from table(rows, wide, ("Peak memory", "MB/s", "Docs/sec"))


def _rates(c: Contender) -> tuple[str, ...]:
    s = c.best
    rates = (f"{c.documents / s:,.0f}", f"{c.tokens / s:,.0f}", f"{c.text_bytes / s / 1e6:.1f}")
    return (c.name, str(c.workers), f"{s:.2f}", *rates, size(c.peak_memory))


def _times(ratio: float) -> str:
    """Against our fastest: 44.7 -> "45x slower", 0.94 -> "1.06x faster"."""
    return f"{ratio:.3g}x slower" if ratio >= 1 else f"{1 / ratio:.3g}x faster"


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds):.2f}-{max(seconds):.2f} s" if len(seconds) > 1 else "once"


def describe_machine() -> dict[str, Any]:
    """What the figures depend on. No host name: results are published."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": machine_memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _versions() -> Iterable[tuple[str, str]]:
    for library in LIBRARIES:
        try:
            yield library, version(library)
        except PackageNotFoundError:
            continue
