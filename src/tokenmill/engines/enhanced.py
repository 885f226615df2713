"""enhanced: one thread, one document at a time, a checkpoint after every batch. The plain reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenmill.encode import Encoder
from tokenmill.engines.base import Engine, Monitor
from tokenmill.job.prepare import Job
from tokenmill.output.plan_file import Units
from tokenmill.records import TokenBatch
from tokenmill.unit.run import UnitHooks, run_unit


class EnhancedEngine(Engine):
    """What the other engines are compared with."""

    def run(self, job: Job, units: Units, encoder: Encoder, monitor: Monitor) -> None:
        for unit in units:
            run_unit(job, unit, OneAtATime(encoder), monitor.update, UnitHooks(checkpoint_batches=True))


class OneAtATime:
    """An encoder that is given one document per call."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.name = encoder.name

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        singles = [self._encoder.encode([text]).ids for text in texts]
        return TokenBatch(np.concatenate(singles), np.cumsum([0, *map(len, singles)]))
