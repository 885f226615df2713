"""streaming: one process, one thread, the units in order; the lowest memory."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.encode import Encoder
from tokenmill.job import Job
from tokenmill.records import Unit
from tokenmill.unit import Update, run_unit


class StreamingEngine:
    """Holds one block and what is made of it, whatever the size of the corpus."""

    def run(self, job: Job, units: Sequence[Unit], encoder: Encoder, update: Update) -> None:
        for unit in units:
            run_unit(job, unit, encoder, update)
