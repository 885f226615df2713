"""Engines: where and when units run. The same bytes come from each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tokenmill.config import nearest
from tokenmill.encode import Encoder
from tokenmill.errors import ConfigError
from tokenmill.job import Job
from tokenmill.records import Unit
from tokenmill.unit import Update


class Engine(Protocol):
    """Runs units with `run_unit`; it schedules, and contains no stage."""

    def run(self, job: Job, units: Sequence[Unit], encoder: Encoder, update: Update) -> None:
        """Run all units. `encoder` is the one to use, `update` is told of progress and may raise to stop the run."""
        ...


def _streaming() -> Engine:
    from tokenmill.engines.streaming import StreamingEngine

    return StreamingEngine()


ENGINES: dict[str, Callable[[], Engine]] = {"streaming": _streaming}


def get_engine(name: str) -> Engine:
    if name not in ENGINES:
        raise ConfigError(f"engine: there is no engine {name!r}{nearest(name, ENGINES)}")
    return ENGINES[name]()
