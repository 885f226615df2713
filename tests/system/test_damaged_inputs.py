"""Jobs over damaged files: the output says what it lacks, whichever engine wrote it and after any stop."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, SmallUnits, documents, texts, tree
from tests.support.compression import COMPRESS
from tests.support.sources import arrow_bytes, parquet_file
from tests.support.stops import stop_at_units
from tests.support.units import StopError, stop_at, unit_job
from tokenmill.check.verify import verify
from tokenmill.config import ENGINES
from tokenmill.errors import Interrupted
from tokenmill.output.finish import summarize
from tokenmill.output.plan_file import Plan
from tokenmill.records import Codec, Reason

RANDOM = random.Random(7)
VALUES = [f"{n} {RANDOM.getrandbits(200):x}" for n in range(400)]
BATCHES = [{"text": VALUES[i : i + 40]} for i in range(0, 400, 40)]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def damaged_parquet() -> bytes:
    """The fourth and sixth of ten row groups have a page that does not match its checksum."""
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    data = parquet_file(VALUES, row_group_size=40, write_page_checksum=True, **options)
    for n in (130, 230):
        data = flipped(data, data.index(VALUES[n].encode()))
    return data


def corpus() -> dict[str, bytes]:
    xz = COMPRESS[Codec.XZ](texts(*VALUES))
    return {
        "a-cut.jsonl.gz": gzip.compress(texts(*VALUES))[:5000],
        "b-corrupt.jsonl.xz": xz[:6000] + b"\xa5" * 2000 + xz[8000:],
        "c-groups.parquet": damaged_parquet(),
        "d-cut.parquet": parquet_file(VALUES)[:10_000],
        "e-cut.arrow": arrow_bytes(BATCHES)[:11_000],
        "f.txt.gz": flipped(gzip.compress(b"some text"), -8),
        "g.jsonl": texts("whole") * 200,
    }


@pytest.fixture
def damaged(inputs: Path) -> dict[str, bytes]:
    files = corpus()
    for name, data in files.items():
        (inputs / name).write_bytes(data)
    return files


def test_the_output_says_what_it_lacks_of_every_format(damaged: dict[str, bytes], run: Run, tmp_path: Path) -> None:
    result = run()
    assert not result.complete
    told = {name: (d.reason, d.record, d.lost_rows) for name, d in result.damaged.items()}
    lines = Counter(d for d in documents(tmp_path / "out"))
    assert told == {
        "a-cut.jsonl.gz": (Reason.TRUNCATED_FILE, told["a-cut.jsonl.gz"][1], None),
        "b-corrupt.jsonl.xz": (Reason.CORRUPT_FILE, told["b-corrupt.jsonl.xz"][1], None),
        "c-groups.parquet": (Reason.CORRUPT_FILE, 121, 80),
        "d-cut.parquet": (Reason.CORRUPT_FILE, 1, None),
        "e-cut.arrow": (Reason.TRUNCATED_FILE, 161, 40),
        "f.txt.gz": (Reason.CORRUPT_FILE, 1, None),
    }
    assert lines[b"whole"] == 200
    found = result.damaged
    assert found["a-cut.jsonl.gz"].unread_bytes is None
    share = (found["b-corrupt.jsonl.xz"].unread_bytes or 0) / len(damaged["b-corrupt.jsonl.xz"])
    assert 0.1 < share <= 1
    assert (found["c-groups.parquet"].places, found["d-cut.parquet"].unread_bytes) == (2, 10_000)
    assert 0 < (found["e-cut.arrow"].unread_bytes or 0) < 4_000
    stored = json.loads((tmp_path / "out" / "manifest.json").read_text())["damaged"]
    assert stored.keys() == told.keys()
    assert stored["c-groups.parquet"]["lost_rows"] == 80
    faults = [f.what for f in verify(tmp_path / "out").faults]
    assert len(faults) == len(told)
    assert any("the input c-groups.parquet is damaged" in f and "80 rows are missing" in f for f in faults)
    assert all("start over with --overwrite" in f for f in faults)


def test_with_whole_copies_and_overwrite_nothing_is_missing(
    inputs: Path, damaged: dict[str, bytes], run: Run, tmp_path: Path
) -> None:
    assert run().damaged
    for name in damaged:
        (inputs / name).unlink()
    (inputs / "a.jsonl.gz").write_bytes(gzip.compress(texts(*VALUES)))
    assert run(overwrite=True).complete
    assert "damaged" not in json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert verify(tmp_path / "out").good


@pytest.mark.usefixtures("damaged")
def test_every_engine_tells_the_same_after_any_stop(run: Run, tmp_path: Path, small_units: SmallUnits) -> None:
    small_units(4000, file_cost=0)
    options: dict[str, Any] = {"sequences_per_chunk": 20, "num_workers": 2}
    first = run(output=tmp_path / "first", engine="streaming", **options)
    wanted = tree(tmp_path / "first")
    assert len(first.damaged) == 6
    for engine in ENGINES:
        output = tmp_path / engine
        with pytest.raises(Interrupted):
            run(output=output, stop=stop_at_units(output, 3), engine=engine, **options)
        assert run(output=output, engine=engine, **options).damaged == first.damaged
        assert tree(output) == wanted


@pytest.mark.parametrize("batches", [False, True], ids=["a checkpoint per chunk", "a checkpoint per batch"])
def test_a_unit_that_is_resumed_forgets_no_damage_and_counts_none_twice(batches: bool) -> None:
    job = unit_job(corpus(), sequences_per_chunk=300, batch_size=50)
    count = Counter[str]()
    wanted = job.run(checkpoint_batches=batches, checkpointed=lambda: count.update(["checkpoints"]))
    assert [d.part for d in wanted.damaged] == [0, 1, 2, 3, 4, 5]
    whole = job.published()
    assert count["checkpoints"] > 5
    for place in range(1, count["checkpoints"] + 1):
        job.setup.receipts.reset([job.unit])
        with pytest.raises(StopError):
            job.run(checkpoint_batches=batches, checkpointed=stop_at(place))
        assert job.run(checkpoint_batches=batches) == wanted
        assert job.published() == whole
    summary = summarize(job.setup.receipts, Plan.of([job.unit]), "id")
    assert list(summary.damaged) == sorted(corpus())[:6]
