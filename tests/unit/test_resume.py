"""A unit that was left and is taken up again: wherever that was, it ends as if nothing had happened."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from time import thread_time
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import jsonl, texts
from tests.support.jobs import tree_of
from tests.support.mishaps import by_block
from tests.support.units import Reports, StopError, UnitJob, stop_at, unit_job
from tokenmill.output.schema import Receipt
from tokenmill.records import StageSeconds
from tokenmill.storage.memory import MemoryStorage

SmallBlocks = Callable[[int], None]

LINES = (
    jsonl(*({"text": "abcdefghijklmnopqrstuvwxyz"[: 3 + n % 11], "id": n} for n in range(12)))
    + b"broken\n"
    + jsonl({"text": "a long one " * 9, "id": "long"}, {"text": " ", "id": 1}, {"text": "end", "id": 2})
)


@pytest.mark.parametrize(
    ("batches", "tail", "id_field"),
    [(False, "pad", None), (False, "drop", "id"), (True, "pad", "id"), (True, "drop", None)],
    ids=["chunks, padded", "chunks with ids, dropped", "batches with ids, padded", "batches, dropped"],
)
def test_a_unit_interrupted_after_any_checkpoint_ends_as_if_it_had_not_been(
    small_blocks: SmallBlocks, batches: bool, tail: str, id_field: str | None
) -> None:
    """After each of them once, and once again and again until it is done."""
    small_blocks(128)
    files = {"a.jsonl": LINES, "b.txt": b"between", "c.jsonl": b"[]\n" + LINES[:300]}
    job = unit_job(files, sequences_per_chunk=8, tail=tail, id_field=id_field, batch_size=3)

    def attempt(checkpointed: Callable[[], None]) -> tuple[Receipt | None, Reports]:
        reports = Reports()
        try:
            return job.run(reports, checkpoint_batches=batches, checkpointed=checkpointed), reports
        except StopError:
            return None, reports

    count = Counter[str]()
    wanted, first = attempt(lambda: count.update(["checkpoints"]))
    assert wanted is not None
    whole = job.published()
    # The tail becomes known only when all is read.
    at_the_end = {"padding": 0, "rows": 0, "dropped_tokens": 0, "dropped_documents": 0}
    assert first.ledger == msgspec.structs.replace(wanted.ledger, **at_the_end)
    assert count["checkpoints"] > 8
    for place in range(1, count["checkpoints"] + 1):
        job.setup.receipts.reset([job.unit])
        assert attempt(stop_at(place))[0] is None
        receipt, reports = attempt(lambda: None)
        assert receipt == wanted
        assert job.published() == whole
        # A resumed unit reports first what it had before, so that the second run reported everything.
        assert (reports.ledger, reports.bytes) == (first.ledger, job.unit.size)
        assert all(isinstance(stage_seconds, StageSeconds) for stage_seconds in reports.stage_seconds)
    job.setup.receipts.reset([job.unit])
    # After a restart the batches of the block come again: who stops at the first checkpoint each time gets nowhere.
    runs = 1
    while attempt(stop_at(6 if batches else 1))[0] is None:
        runs += 1
    assert runs > 3
    assert job.published() == whole
    assert job.drafts() == {}


RESUMED = texts(*(f"{n} " * (n % 5 + 1) for n in range(16))) + b"broken\n" + texts("a b c d e", "", "f")


def resumed_files() -> dict[str, bytes]:
    """Rejects, ids, a compressed file and row groups."""
    rows = io.BytesIO()
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(9)]}), rows, row_group_size=4)
    return {
        "a.jsonl": RESUMED,
        "b.jsonl.gz": gzip.compress(RESUMED[::-1] + b"\n" + RESUMED, mtime=0),
        "c.parquet": rows.getvalue(),
        "d.jsonl": b"broken at the end\n",
    }


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_a_unit_that_is_left_after_any_block_and_taken_up_again_is_the_same(
    small_blocks: SmallBlocks, monkeypatch: pytest.MonkeyPatch, batches: bool, times: int
) -> None:
    """Left once, or twice in a row; every chunk, or every batch too, is a place to go on from."""
    small_blocks(60)
    monkeypatch.setattr("tokenmill.read.decompress.OUTPUT_BYTES", 80)
    files = resumed_files()
    wanted: dict[str, bytes] = {}
    blocks = stop_after = 0  # the first time it is not left
    while blocks >= stop_after:
        job = unit_job(files, seq_len=8, sequences_per_chunk=3, batch_size=2, id_field="id")
        for stop in (*[stop_after] * times, None):
            reports, begun = Reports(stop), thread_time()
            with suppress(StopError):
                receipt = job.run(reports, checkpoint_batches=batches)
                break
        assert 0 < sum(sum(astuple(s)) for s in reports.stage_seconds) <= thread_time() - begun
        blocks = blocks or len(reports.calls) - 1  # the last one completes the bytes
        assert by_block(reports.ledger) == by_block(receipt.ledger), stop_after
        assert reports.bytes <= job.unit.size
        assert isinstance(job.storage, MemoryStorage)
        found = tree_of(job.storage)
        wanted = wanted or found
        assert found == wanted, f"left after block {stop_after}"
        stop_after += 1
    assert blocks > 15


def interrupted(**options: Any) -> UnitJob:
    """A unit that has a checkpoint with one chunk behind its first block, and a row of the next as a draft."""
    lines = b"broken\n" + texts("abc") + b"\n" * 200 + texts("defghi" * 3)
    job = unit_job({"a.jsonl": lines}, sequences_per_chunk=1, **options)
    with pytest.raises(StopError):
        job.run(checkpointed=stop_at(2))
    return job


def test_a_resumed_unit_reports_first_what_it_had_before(small_blocks: SmallBlocks) -> None:
    small_blocks(128)
    job = interrupted()
    checkpoint = job.setup.receipts.checkpoint(job.unit)
    assert checkpoint is not None
    assert (checkpoint.ledger.records, checkpoint.ledger.rejected) == (2, 1)
    reports = Reports()
    receipt = job.run(reports)
    assert reports.calls[0] == (2, 0)
    assert reports.stage_seconds[0] == StageSeconds()
    assert reports.bytes == job.unit.size
    assert (receipt.ledger.records, receipt.lines) == (3, (203,))
    assert len(job.rejects()) == 1


def test_a_resumed_unit_keeps_the_chunks_that_its_checkpoint_names(small_blocks: SmallBlocks) -> None:
    small_blocks(128)
    operations: list[tuple[str, str]] = []
    storage = MemoryStorage()
    job = interrupted(storage=storage)
    storage.watch = lambda operation, name: operations.append((operation, name))
    job.run()
    published = [name for operation, name in operations if operation == "publish_draft"]
    assert published[0] == "chunks/00000-0002.npy"


def test_a_unit_that_went_on_without_a_file_starts_over() -> None:
    files = {"a.jsonl": texts("a"), "b.jsonl": texts("bcdefgh" * 5)}
    job = unit_job(files, sequences_per_chunk=1)
    inputs = job.setup.inputs
    assert isinstance(inputs, MemoryStorage)
    inputs.remove(["a.jsonl"])
    with pytest.raises(StopError):
        job.run(checkpointed=stop_at(2))
    assert b'"missing": {\n  "0"' in job.published()["00000.checkpoint.json"]
    assert job.setup.receipts.checkpoint(job.unit) is None
    inputs.publish("a.jsonl", [files["a.jsonl"]])
    receipt = job.run()
    assert (receipt.missing, receipt.ledger.documents) == ({}, 2)


def test_chunks_that_a_dead_run_left_behind_its_checkpoint_go() -> None:
    job = unit_job({"a.jsonl": texts("abc")})
    job.storage.publish("chunks/00000-0000.ids.jsonl", [b"of a run with other options"])
    job.storage.publish("chunks/00000-0001.npy", [b"of a run that came further"])
    job.run()
    assert job.published("chunks").keys() == {"00000-0000.docs.npy", "00000-0000.npy"}


@pytest.mark.parametrize("published", [True, False])
def test_rejects_that_a_dead_run_left_behind_its_checkpoint_go(published: bool) -> None:
    """Also those that it had published, right before it would have committed the unit."""
    job = unit_job({"a.jsonl": texts("abc")})
    draft = job.storage.draft("units/00000.rejects.jsonl")
    draft.write(b"of a run that came further\n")
    if published:
        job.storage.publish_drafts([draft])
    receipt = job.run()
    assert (receipt.rejects_bytes, receipt.rejects_xxh3) == (0, None)
    assert job.published("units").keys() == {"00000.json"}
    assert job.drafts() == {}


@pytest.mark.parametrize("changed", ["00000-0000.npy", "00000-0000.docs.npy", "00000.rejects.jsonl"])
def test_a_unit_whose_drafts_were_changed_starts_over_and_says_so(
    small_blocks: SmallBlocks, caplog: pytest.LogCaptureFixture, changed: str
) -> None:
    small_blocks(128)
    files = {"a.jsonl": b"broken\n" + LINES}
    expected = unit_job(files, batch_size=3)
    expected.run()
    job = unit_job(files, batch_size=3)
    with pytest.raises(StopError):
        job.run(checkpoint_batches=True, checkpointed=stop_at(5))
    size = dict(job.storage.drafts())[changed]
    draft = job.storage.draft(changed, size)
    draft.seek(3 if "rejects" in changed else size - 2)
    draft.write(b"7")
    draft.close()
    job.run()
    assert "is not as it was written: unit 00000 starts over" in caplog.text
    assert job.published() == expected.published()
    assert job.published("chunks") == expected.published("chunks")
