"""The memory budget: how much there is, and what follows from it for workers, buffers and queues.

The costs are measured (docs/engines.md says how) and rounded up. They hold for documents of ordinary size; a document
of many megabytes costs about ten times its size while it is encoded (measured: 68 MB of JSON, 848 MB at the peak).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.config import Config
from tokenmill.engines.machine import default_workers, machine_memory
from tokenmill.errors import ConfigError
from tokenmill.messages import size

MB = 1_000_000

PROCESS_BYTES = 200 * MB  # interpreter, libraries, one tokenizer, its reference if that is loaded
THREAD_BYTES = 130 * MB  # a thread that encodes: the cache of the encoder has a ceiling per thread
BLOCK_BYTES = 20 * MB  # a block under way: lines, texts, ids, rows
BLOCKS_PER_THREAD = 3  # one that it works on, two that wait: for it, or for their turn
READ_AHEAD_BYTES = 64 * MB  # of each file that is read ahead: more than a disk gives while a worker does a block
SINGLE_BYTES = PROCESS_BYTES + THREAD_BYTES + 3 * BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What an engine may use."""

    total: int
    engine: str
    workers: int
    """Processes of ultra, tokenizer threads of extreme; 1 elsewhere."""
    worker_bytes: int = 0
    read_ahead: int = 0
    """Bytes of each of the next files that ultra and extreme have the kernel read ahead."""
    asked: int = 1
    """The workers that were asked for."""
    of_machine: bool = False

    def __str__(self) -> str:
        text = f"engine {self.engine}, memory budget {size(self.total)}"
        text += " (half of the machine's): " if self.of_machine else ": "
        if self.engine == "ultra":
            text += f"worker processes: {self.workers}, which may use up to {size(self.worker_bytes)} each"
        elif self.engine == "extreme":
            text += f"tokenizer threads: {self.workers}, blocks under way: {BLOCKS_PER_THREAD * self.workers}"
        else:
            text += "one thread"
        if self.read_ahead:
            text += f", {size(self.read_ahead)} of each next file read ahead"
        if self.workers < self.asked:
            text += f" ({self.asked} were asked for; that is what the budget, the engine and the units allow)"
        return text


def derive_budget(engine: str, config: Config, units: int = 1 << 30) -> Budget:
    """Workers, shares and queues from the budget, or an error that names the smallest budget that would do."""
    total = config.max_memory or machine_memory() // 2
    wanted = config.num_workers or default_workers()
    if engine == "ultra":
        base, each, most = PROCESS_BYTES, SINGLE_BYTES, units
    elif engine == "extreme":
        base, each, most = PROCESS_BYTES, THREAD_BYTES + BLOCKS_PER_THREAD * BLOCK_BYTES, wanted
    else:
        base, each, most = 0, SINGLE_BYTES, 1
    _refuse_below(base + each, total, engine)
    workers = max(1, min(wanted, most, (total - base) // each))
    # Half of what the workers do not need at the least is for the kernel's cache of the next files.
    spare = (total - base - workers * each) // 2
    read_ahead = min(READ_AHEAD_BYTES, spare // max(1, config.prefetch_files)) if engine in ("ultra", "extreme") else 0
    return Budget(
        total=total,
        engine=engine,
        workers=workers,
        worker_bytes=(total - base - read_ahead * config.prefetch_files) // workers if engine == "ultra" else 0,
        read_ahead=read_ahead,
        asked=config.num_workers or 1,
        of_machine=config.max_memory is None,
    )


def _refuse_below(least: int, total: int, engine: str) -> None:
    if total < least:
        raise ConfigError(
            f"max_memory: {size(total)} is too little for the engine {engine}; the least that would do is "
            f"{-(-least // MB)}MB"
        )
