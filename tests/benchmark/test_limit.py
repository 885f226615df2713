"""The limit does the work of a run, and no more."""

from __future__ import annotations

import gzip
import itertools
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import MakeConfig, Run, texts
from tests.support.sources import arrow_bytes
from tokenmill.benchmark import limit as measuring
from tokenmill.benchmark.limit import Limit
from tokenmill.plan.make import make_plan
from tokenmill.read.corpus import Corpus


def test_the_limit_does_the_work_of_a_run(
    inputs: Path, tmp_path: Path, run: Run, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many tokens come out of the kernels as of a run, for every format; a bad line is passed over in both."""
    (inputs / "a.jsonl").write_bytes(texts("one", "two") + b"broken\n" + b'{"text": "\xe9"}\n' + texts("three"))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts(*("four" * n for n in range(1, 50)))))
    (inputs / "c.txt").write_text("five")
    pq.write_table(pa.table({"text": ["six", "", "seven"]}), inputs / "d.parquet")
    for kind in ("file", "stream"):
        (inputs / f"{kind}.arrow").write_bytes(arrow_bytes([{"text": ["eight", ""]}, {"text": ["nine", None]}], kind))
    ledger = run().ledger
    options = config(output=tmp_path / "none")
    clock = itertools.count()  # which a second passes on each time it is looked at
    monkeypatch.setattr(measuring, "thread_time", lambda: float(next(clock)))
    with (tmp_path / "tokens").open("wb", buffering=0) as out:
        limit = Limit(options, out)
        planned = make_plan(options.inputs, options.output, Corpus)
        for _, file in planned.plan.inputs():
            limit.add(planned.inputs, file)
    assert (tmp_path / "tokens").stat().st_size == 2 * (ledger.tokens + ledger.separators)
    assert min(asdict(limit.stage_seconds).values()) > 0
