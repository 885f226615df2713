"""An output to verify."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, SmallUnits, jsonl

OPTIONS: dict[str, Any] = {"sequences_per_chunk": 4, "id_field": "id", "engine": "streaming"}


@pytest.fixture
def job(inputs: Path, small_units: SmallUnits) -> Path:
    """Four units, several chunks each, bad records, a document over three chunks, ids."""
    small_units(500, file_cost=400)
    records = [{"id": n, "text": f"document {n} " + "x" * (n % 7)} for n in range(20)]
    (inputs / "a.jsonl").write_bytes(jsonl(*records[:8]) + b"broken\n" + jsonl({"id": 99, "text": "long " * 20}))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(*records[8:15], {"text": ""})))
    (inputs / "c.jsonl").write_bytes(jsonl(*records[15:]))
    return inputs


@pytest.fixture
def output(job: Path, tmp_path: Path, run: Run) -> Path:
    assert job.exists()
    run(**OPTIONS)
    return tmp_path / "out"
