"""Counting while a job runs, and telling the user: a live display, log lines, and a time line in logs/."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, Self

from tokenmill.engines.machine import current_memory, peak_memory
from tokenmill.messages import duration, size
from tokenmill.output import layout
from tokenmill.records import Ledger, Part, StageSeconds, Unit
from tokenmill.storage.base import Storage

log = logging.getLogger("tokenmill")

LOG_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class Meter:
    """What has been done, by this run and before it. Rates count this run only."""

    total_bytes: int
    done_bytes: int = 0
    total_files: int = 0
    done_files: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0
    stage_seconds: StageSeconds = field(default_factory=StageSeconds)
    peak_memory: int = 0
    workers: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Worker process -> the unit it is at, and its memory."""
    _started: float | None = None
    _before: tuple[int, int, int, int] = (0, 0, 0, 0)
    _pieces_left: dict[int, int] = field(default_factory=dict)
    """Of files that are cut into pieces: how many are still to be done. The others need no entry."""

    def expect(self, unit: Unit) -> None:
        """The files of this unit are not done. To be said of every such unit before one is finished."""
        for part in unit.parts:
            if part.file not in self._pieces_left:
                self.done_files -= 1
            if _is_piece(part):
                self._pieces_left[part.file] = self._pieces_left.get(part.file, 0) + 1

    def finish(self, unit: Unit) -> None:
        """The files of this unit are done, as far as it goes."""
        for part in unit.parts:
            if _is_piece(part):
                self._pieces_left[part.file] -= 1
            if not self._pieces_left.get(part.file):
                self.done_files += 1

    def add(self, ledger: Ledger, consumed: int) -> None:
        self.ledger.add(ledger)
        self.done_bytes += consumed

    def _counts(self) -> tuple[int, int, int, int]:
        return self.done_bytes, self.ledger.text_bytes, self.ledger.documents, self.ledger.tokens

    def start(self) -> None:
        """Begin to measure: what was counted until now was done before this run."""
        self._started = time.monotonic()
        self._before = self._counts()

    def freeze(self) -> Meter:
        """Stop the clock."""
        if self._started is not None:
            self.seconds = time.monotonic() - self._started
            self._started = None
        self.peak_memory = max(self.peak_memory, peak_memory())
        return self

    def memory(self) -> int:
        """Of this process and all its workers, now; the highest that was seen is kept."""
        now = current_memory() + sum(memory for _, memory in list(self.workers.values()))
        self.peak_memory = max(self.peak_memory, now)
        return now

    @property
    def is_idle(self) -> bool:
        """Whether this run has done nothing yet, which has no rate."""
        return self._counts() == self._before

    @property
    def is_continuation(self) -> bool:
        """Whether some of it was done before this run."""
        return any(self._before)

    def elapsed(self) -> float:
        return self.seconds if self._started is None else time.monotonic() - self._started

    def rates(self) -> dict[str, float]:
        """Per second, of this run: bytes of text, documents, tokens; and the seconds left at this pace."""
        elapsed = max(self.elapsed(), 1e-9)
        done, text, documents, tokens = (a - b for a, b in zip(self._counts(), self._before, strict=True))
        left = self.total_bytes - self.done_bytes
        return {
            "text_bytes": text / elapsed,
            "documents": documents / elapsed,
            "tokens": tokens / elapsed,
            "seconds_left": left * elapsed / done if done > 0 else float("nan"),
        }

    def snapshot(self) -> dict[str, Any]:
        """For log lines and the time line."""
        rates = self.rates()
        left = rates["seconds_left"]
        return {
            "seconds": round(self.elapsed(), 1),
            "input_bytes": self.done_bytes,
            "input_bytes_total": self.total_bytes,
            "files": self.done_files,
            "files_total": self.total_files,
            "documents": self.ledger.documents,
            "tokens": self.ledger.tokens,
            "rejected": self.ledger.rejected,
            "text_mb_per_second": round(rates["text_bytes"] / 1e6, 1),
            "tokens_per_second": round(rates["tokens"]),
            "cpu_seconds": {stage: round(seconds, 2) for stage, seconds in asdict(self.stage_seconds).items()},
            "memory_bytes": self.memory(),
            "seconds_left": None if left != left else round(left),
            "workers": {str(index): {"unit": u, "memory_bytes": m} for index, (u, m) in sorted(self.workers.items())},
        }


def _is_piece(part: Part) -> bool:
    return part.start > 0 or part.end is not None


class Ticker:
    """Calls a function every so often from a thread of its own, and once more at the end."""

    def __init__(self, function: Callable[[], None], seconds: float) -> None:
        self._function = function
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokenmill-ticker", daemon=True)

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self._function()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._function()


class Timeline:
    """Logs where a run stands every ten seconds."""

    def __init__(self, meter: Meter, storage: Storage) -> None:
        self._meter = meter
        self._storage = storage
        self._ticker = Ticker(self._tick, LOG_SECONDS)
        self._file: BinaryIO | None = None

    def _tick(self) -> None:
        assert self._file is not None
        try:
            entry = {"time": time.time(), "pid": os.getpid(), **self._meter.snapshot()}
            self._file.write(json.dumps(entry).encode("ascii") + b"\n")
        except OSError:
            pass  # a log that cannot be written, e.g. on a full disk, must not stop the work

    def __enter__(self) -> Self:
        self._file = self._storage.append(layout.TIMELINE)
        self._tick()
        self._ticker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.__exit__(kind, error, trace)
        assert self._file is not None
        self._file.close()


def log_lines(meter: Meter) -> AbstractContextManager[object]:
    """A log line every ten seconds, for runs without a terminal."""

    def tell() -> None:
        if meter.elapsed() >= LOG_SECONDS:
            log.info("%s", progress_line(meter), extra={"event": "progress", "fields": meter.snapshot()})

    return Ticker(tell, LOG_SECONDS)


def progress_line(meter: Meter) -> str:
    s = meter.snapshot()
    share = 100 * meter.done_bytes / meter.total_bytes if meter.total_bytes else 100.0
    left = "?" if s["seconds_left"] is None else duration(s["seconds_left"])
    return (
        f"{share:.1f} % of {size(meter.total_bytes)}, {s['documents']:,} documents, {s['tokens']:,} tokens, "
        f"{s['text_mb_per_second']:.1f} MB/s, {s['tokens_per_second']:,} tokens/s, memory {size(s['memory_bytes'])}, "
        f"{s['rejected']:,} rejected, {left} left"
    )
