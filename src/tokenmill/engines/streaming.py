"""streaming: one process, one thread, batches of documents, the units in order; the lowest memory."""

from __future__ import annotations

from tokenmill.encode import Encoder
from tokenmill.engines.base import Engine, Monitor
from tokenmill.job.prepare import Job
from tokenmill.output.plan_file import Units
from tokenmill.unit.run import run_unit


class StreamingEngine(Engine):
    """Holds one block and what is made of it, whatever the size of the corpus."""

    def run(self, job: Job, units: Units, encoder: Encoder, monitor: Monitor) -> None:
        for unit in units:
            run_unit(job, unit, encoder, monitor.update)
