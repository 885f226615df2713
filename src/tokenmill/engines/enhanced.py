"""enhanced: one thread, one document at a time, a checkpoint after every batch. The plain reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenmill.encode import Encoder
from tokenmill.engines.base import Engine, Monitor
from tokenmill.engines.cost import SINGLE_BYTES, Cost
from tokenmill.read.block import ReadingWay
from tokenmill.records import TokenBatch
from tokenmill.unit.run import UnitHooks, run_unit


class EnhancedEngine(Engine):
    """What the other engines are compared with."""

    name = "enhanced"
    cost = Cost(per_worker=SINGLE_BYTES)

    def run(self, encoder: Encoder, monitor: Monitor) -> None:
        way = ReadingWay(windows=self.assignment.budget.windows)
        hooks = UnitHooks(way=way, checkpoint_batches=True)
        for unit in self.assignment.units:
            run_unit(self.assignment.setup, unit, OneAtATime(encoder), monitor.update, hooks)
            monitor.finished(unit)


class OneAtATime:
    """An encoder that is given one document per call."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.name = encoder.name

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        singles = [self._encoder.encode([text]).token_ids for text in texts]
        return TokenBatch(np.concatenate(singles), np.cumsum([0, *map(len, singles)]))
