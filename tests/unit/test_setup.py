"""What a worker process is given to run units."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.conftest import texts
from tests.support.units import unit_job


def test_a_worker_gets_all_that_running_units_takes_and_no_unit(tmp_path: Path) -> None:
    job = unit_job({f"{n}.jsonl": texts("a") for n in range(100)}, folder=tmp_path)
    sent = pickle.dumps(job.setup)
    assert pickle.loads(sent) == job.setup
    assert b"99.jsonl" not in sent
    assert len(sent) < 2000


def test_what_cannot_be_sent_to_a_worker_says_so() -> None:
    """An output in memory, say: nothing is silently dropped, or shared."""
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(unit_job({"a.jsonl": texts("a")}).setup)
