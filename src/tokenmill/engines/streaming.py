"""streaming: one process, one thread, batches of documents, the units in order; the lowest memory."""

from __future__ import annotations

from tokenmill.encode import Encoder
from tokenmill.engines.base import Engine, Monitor
from tokenmill.engines.cost import SINGLE_BYTES, Cost
from tokenmill.read.block import ReadingWay
from tokenmill.unit.run import UnitHooks, run_unit


class StreamingEngine(Engine):
    """Holds one block and what is made of it, whatever the size of the corpus."""

    name = "streaming"
    cost = Cost(per_worker=SINGLE_BYTES)

    def run(self, encoder: Encoder, monitor: Monitor) -> None:
        hooks = UnitHooks(way=ReadingWay(windows=self.assignment.budget.windows))
        for unit in self.assignment.units:
            run_unit(self.assignment.setup, unit, encoder, monitor.update, hooks)
            monitor.finished(unit)
