"""From the memory of a run to workers, shares and read-ahead, for an engine of known cost."""

from __future__ import annotations

import logging
from dataclasses import replace

from tokenmill.config import Config
from tokenmill.engines.base import Engine
from tokenmill.engines.cost import MB, Budget
from tokenmill.engines.machine import available_cores, default_workers, machine_memory
from tokenmill.errors import ConfigError
from tokenmill.messages import size

log = logging.getLogger("tokenmill")

MOST_WORKERS_PER_CORE = 4
WINDOW_BYTES = 16 << 20  # what an ordinary file needs: zstd has 8 MiB up to level 19, xz as much up to level 6
READ_AHEAD_BYTES = 64 * MB  # of each file: more than a disk gives while a worker does a block


def limit_to_machine(config: Config) -> Config:
    """The options as far as this machine can follow them: more memory than it has is an error."""
    memory, cores = machine_memory(), available_cores()
    if config.max_memory is not None and config.max_memory > memory:
        what = (
            f"{size(config.max_memory)} is more than there is: this machine, or its control group, has {size(memory)}"
        )
        raise ConfigError(what, "max_memory")
    most = MOST_WORKERS_PER_CORE * cores
    if config.num_workers is None or config.num_workers <= most:
        return config
    log.warning(
        "%s workers were requested, and %s are used at most: more than %d per core would only wait for each other, and "
        "there %s",
        f"{config.num_workers:,}",
        f"{most:,}",
        MOST_WORKERS_PER_CORE,
        "is 1 core" if cores == 1 else f"are {cores} cores",
    )
    return replace(config, num_workers=most)


def derive_budget(engine: type[Engine], config: Config, units: int = 1 << 30, *, by_auto: bool = False) -> Budget:
    """The budget of a run with this engine, or an error that names the smallest one that would do."""
    cost = engine.cost
    total = config.max_memory or machine_memory() // 2
    if total < cost.minimum:
        least = f"{-(-cost.minimum // MB)} MB"
        what = f"{size(total)} is too little for the engine {engine.name}; the minimum is {least}"
        if by_auto:
            what = f"{size(total)} is too little: the smallest engine, {engine.name}, needs {least}"
        raise ConfigError(what, "max_memory")
    workers = cost.workers(total, config.num_workers or default_workers(), units)
    read_ahead = 0
    if cost.reads_ahead:
        # Half of what the workers do not need is for the kernel's cache of the next files.
        spare = (total - cost.base - workers * cost.per_worker) // 2
        read_ahead = min(READ_AHEAD_BYTES, spare // max(1, config.prefetch_files))
    share = (total - cost.base - read_ahead * config.prefetch_files) // workers
    spare = share - cost.per_worker
    windows = max(WINDOW_BYTES, spare // 2)
    return Budget(
        total=total,
        engine=engine.name,
        workers=workers,
        worker_bytes=share,
        worker_room=max(0, spare - windows),
        windows=windows,
        read_ahead=read_ahead,
        requested=config.num_workers or 1,
        of_machine=config.max_memory is None,
        description=engine.describe(workers, share),
        worker=engine.worker,
    )
