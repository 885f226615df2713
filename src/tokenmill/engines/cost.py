"""What engines cost in memory, and the budget that one of them is given.

The costs are measured (docs/engines.md says how) and rounded up. They hold for documents of ordinary size; a document
of many megabytes costs about ten times its size while it is encoded (measured: 68 MB of JSON, 848 MB at the peak).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.messages import counted, size

MB = 1_000_000

PROCESS_BYTES = 200 * MB  # interpreter, libraries, one tokenizer, its reference if that is loaded
THREAD_BYTES = 130 * MB  # a thread that encodes: the cache of the encoder has a ceiling per thread
BLOCK_BYTES = 20 * MB  # a block in flight: lines, texts, ids, rows
OPEN_FILES = 16  # logs, locks, pipes and temporary lists
OPEN_FILES_PER_WORKER = 6  # an input, which Arrow opens once more; rows, sidecar, ids and rejects
SINGLE_BYTES = PROCESS_BYTES + THREAD_BYTES + 3 * BLOCK_BYTES  # a process that encodes on one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an engine needs, and what it can do with more."""

    base: int = 0
    """Bytes it needs once, however many workers there are."""
    per_worker: int
    """Bytes that each worker needs at least."""
    parallel: bool = False
    """Whether it can have more than one worker."""
    shares_units: bool = False
    """Whether several workers can be at one unit. If not, more workers than units are of no use."""
    reads_ahead: bool = False
    """Whether it has the next files read into the kernel's cache, which takes memory, too."""

    @property
    def minimum(self) -> int:
        """Bytes for one worker."""
        return self.base + self.per_worker

    def workers(self, total: int, wanted: int, units: int) -> int:
        """How many workers there can be with this much memory for this many units; at least one."""
        if not self.parallel:
            return 1
        fitting = (total - self.base) // self.per_worker
        return max(1, min(wanted, fitting, wanted if self.shares_units else units))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What an engine may use."""

    total: int
    engine: str
    workers: int
    worker_bytes: int = 0
    """What each worker may use."""
    worker_room: int = 0
    """What that leaves beyond what an ordinary block takes: room for large documents, which workers share."""
    windows: int | None = None
    """How much of its output each decompressor may keep."""
    read_ahead: int = 0
    """Bytes of each of the next files that the kernel is asked to read ahead."""
    requested: int = 1
    """The workers that the user asked for."""
    of_machine: bool = False
    """Whether the total follows from the machine's memory, not from --max-memory."""
    description: str = "one thread"
    """The engine's processes and threads, in words."""
    worker: tuple[str, str] = ("thread", "threads")
    """What the engine calls a worker, and several."""

    @property
    def open_files(self) -> int:
        """How many files may be open at a time."""
        return OPEN_FILES + OPEN_FILES_PER_WORKER * self.workers

    def summary(self, *, by_auto: bool) -> str:
        """One short line: "engine: extreme (auto), 2 threads, 12.6 GB memory budget"."""
        chosen = " (auto)" if by_auto else ""
        return f"engine: {self.engine}{chosen}, {counted(self.workers, *self.worker)}, {size(self.total)} memory budget"

    def __str__(self) -> str:
        text = f"engine {self.engine}, memory budget {size(self.total)}"
        text += " (half of the machine's): " if self.of_machine else ": "
        text += self.description
        if self.read_ahead:
            text += f", up to {size(self.read_ahead)} of each next file read ahead"
        if self.workers < self.requested:
            text += (
                f" ({self.requested} workers were requested; the budget, the engine and the number of units "
                f"allow {self.workers})"
            )
        return text
