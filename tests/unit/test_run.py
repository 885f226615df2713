"""run_unit: a file that is not, or does not stay, what was planned; and what is reported while a unit runs."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from time import thread_time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Run, texts, tree
from tests.support.mishaps import by_block
from tokenmill.config import Config, EncoderChoice, SpecialTokens
from tokenmill.encode import build_encoder, resolve_tokenizer
from tokenmill.engines.budget import derive_budget
from tokenmill.job.prepare import Job, open_job
from tokenmill.output.store import Checkpoint, Store
from tokenmill.plan.make import make_plan
from tokenmill.read.sniff import EDGE_BYTES
from tokenmill.records import Ledger, Receipt, StageSeconds, TokenBatch, Unit
from tokenmill.unit.run import UnitHooks, run_unit


@contextmanager
def planned(inputs: Path, tiny_tokenizer: str, **options: Any) -> Iterator[tuple[Job, Unit]]:
    """A job whose inputs were looked at, and of which nothing has been read yet: its only unit is all of them."""
    config = Config(inputs=(str(inputs),), output=inputs.parent / "out", tokenizer=tiny_tokenizer, seq_len=8, **options)
    plan = make_plan(config)
    (unit,) = plan.units()
    with open_job(config, plan, resolve_tokenizer(config), derive_budget("streaming", config)) as job, job.underway():
        yield job, unit


class Reported:
    """What a unit said of itself while it ran."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.bytes = 0
        self.most_documents = 0

    def update(self, ledger: Ledger, consumed: int, _: StageSeconds) -> None:
        self.ledger.add(ledger)
        self.bytes += consumed
        self.most_documents = max(self.most_documents, self.ledger.documents)


class Meanwhile:
    """An encoder, and what happens to the inputs while it is at a certain document."""

    name = "fastokens"

    def __init__(self, job: Job, document: str, happens: Callable[[], object]) -> None:
        self._encoder = build_encoder(job.tokenizer, EncoderChoice.AUTO, SpecialTokens.PLAIN)
        self._document = document
        self._happens = happens

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if self._document in texts:
            self._happens()
        return self._encoder.encode(texts)


def run_alone(
    job: Job, unit: Unit, at: str = "", happens: Callable[[], object] = lambda: None
) -> tuple[Receipt, Reported]:
    """Run a unit; while the document `at` is encoded, something happens."""
    reported = Reported()
    return run_unit(job, unit, Meanwhile(job, at, happens), reported.update), reported


def flip(path: Path, position: int) -> None:
    """Another letter in place of one, and so the same size."""
    with path.open("r+b") as file:
        file.seek(position)
        letter = file.read(1)
        file.seek(position)
        file.write(b"y" if letter == b"x" else b"x")


@pytest.mark.parametrize("place", ["head", "tail"])
def test_an_edit_after_the_plan_that_keeps_the_size_is_noticed(inputs: Path, tiny_tokenizer: str, place: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("x" * 3 * EDGE_BYTES))
    with planned(inputs, tiny_tokenizer) as (job, unit):
        size = (inputs / "b.jsonl").stat().st_size
        flip(inputs / "b.jsonl", 20 if place == "head" else size - 20)
        receipt, _ = run_alone(job, unit)
    assert (inputs / "b.jsonl").stat().st_size == size
    assert receipt.missing == {1: "b.jsonl changed since the job was planned: restore it, or use --overwrite"}
    assert receipt.ledger.documents == 1


def rewrite(path: Path) -> None:
    """In place: only the time is another one."""
    path.write_bytes(path.read_bytes().replace(b"first", b"other"))


def swap(path: Path) -> None:
    """By a copy that keeps size and time, as `rsync -t` puts it there: only the file is another one."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def append(path: Path) -> None:
    """With the time set back: only the size is another one."""
    before = path.stat()
    with path.open("ab") as file:
        file.write(texts("more"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [rewrite, swap, append], ids=["time", "identity", "size"])
def test_a_change_while_a_file_is_read_is_noticed_by_time_identity_or_size(
    inputs: Path, tiny_tokenizer: str, change: Callable[[Path], None]
) -> None:
    path = inputs / "a.jsonl"
    path.write_bytes(texts("first"))
    os.utime(path, (1, 1))  # long ago: whatever is written now has another time
    with planned(inputs, tiny_tokenizer) as (job, unit):
        receipt, _ = run_alone(job, unit, "first", lambda: change(path))
    assert receipt.missing == {0: "a.jsonl changed while it was read: restore it, or use --overwrite"}
    assert receipt.ledger == Ledger()


def test_a_file_that_stays_as_it_was_is_read(inputs: Path, tiny_tokenizer: str) -> None:
    """Another name for it is no change."""
    path = inputs / "a.jsonl"
    path.write_bytes(texts("first"))
    with planned(inputs, tiny_tokenizer) as (job, unit):
        receipt, _ = run_alone(job, unit, "first", lambda: os.link(path, inputs.parent / "link"))
    assert receipt.missing == {}
    assert receipt.ledger.documents == 1


def test_what_was_reported_of_a_file_that_goes_missing_is_taken_back(
    inputs: Path, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents, rejects and bytes of it were counted before it was found out."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 16)  # a line is a block
    (inputs / "a.jsonl").write_bytes(texts("before") + b"bad\n")
    (inputs / "b.jsonl").write_bytes(texts("one") + b"bad\n" + b'{"text": ""}\n' + texts("two"))
    (inputs / "c.jsonl").write_bytes(texts("after") + b'{"no": "text"}\n')
    with planned(inputs, tiny_tokenizer) as (job, unit):
        receipt, reported = run_alone(job, unit, "one", lambda: append(inputs / "b.jsonl"))
    assert list(receipt.missing) == [1]
    assert reported.most_documents == 4  # "before", and of what is taken back even what was appended
    assert by_block(reported.ledger) == by_block(receipt.ledger)
    assert receipt.ledger.rejects_by_reason == {"broken_json": 1, "no_text_field": 1}
    assert reported.bytes == unit.size


@pytest.mark.parametrize(("engine", "batches"), [("streaming", False), ("enhanced", True)])
def test_a_checkpoint_is_made_for_every_chunk_and_in_enhanced_for_every_batch(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str, batches: bool
) -> None:
    made: list[Checkpoint] = []
    save = Store.save_checkpoint

    def save_and_note(store: Store, unit: Unit, checkpoint: Checkpoint) -> None:
        made.append(checkpoint)
        save(store, unit, checkpoint)

    monkeypatch.setattr(Store, "save_checkpoint", save_and_note)
    (inputs / "a.jsonl").write_bytes(texts(*["x" * 7] * 20))
    run(engine=engine, sequences_per_chunk=10, batch_size=2)
    assert [len(c.chunks) for c in made if not c.partial.tokens] == [1, 2]
    assert any(c.partial.tokens for c in made) == batches


class StoppedError(Exception):
    """What `update` raises to leave a unit."""


RESUMED = texts(*(f"{n} " * (n % 5 + 1) for n in range(16))) + b"broken\n" + texts("a b c d e", "", "f")


@pytest.fixture
def resumed_inputs(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rejects, ids, a compressed file and row groups, in blocks of a few records each."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 60)
    monkeypatch.setattr("tokenmill.read.decompress.OUTPUT_BYTES", 80)
    (inputs / "a.jsonl").write_bytes(RESUMED)
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(RESUMED[::-1] + b"\n" + RESUMED, mtime=0))
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(9)]}), inputs / "c.parquet", row_group_size=4)
    (inputs / "d.jsonl").write_bytes(b"broken at the end\n")
    return inputs


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_a_unit_that_is_left_after_any_block_and_taken_up_again_is_the_same(
    resumed_inputs: Path, tmp_path: Path, tiny_tokenizer: str, batches: bool, times: int
) -> None:
    """Left once, or twice in a row; every chunk, or every batch too, is a place to go on from."""
    options: dict[str, Any] = {"sequences_per_chunk": 3, "batch_size": 2, "id_field": "id"}
    wanted: dict[str, bytes] = {}
    blocks = stop_after = 0  # the first time it is not left
    while blocks >= stop_after:
        with planned(resumed_inputs, tiny_tokenizer, **options) as (job, unit):
            encoder = build_encoder(job.tokenizer, EncoderChoice.AUTO, SpecialTokens.PLAIN)
            for stop in (*[stop_after] * times, 1 << 30):
                reported, begun = Left(stop), thread_time()
                with suppress(StoppedError):
                    receipt = run_unit(job, unit, encoder, reported.update, UnitHooks(checkpoint_batches=batches))
                    break
            assert 0 < sum(astuple(reported.stage_seconds)) <= thread_time() - begun
            blocks = blocks or reported.calls - 1  # the last one completes the bytes
        assert by_block(reported.ledger) == by_block(receipt.ledger), stop_after
        assert reported.bytes <= unit.size
        found = tree(tmp_path / "out")
        wanted = wanted or found
        assert found == wanted, f"left after block {stop_after}"
        shutil.rmtree(tmp_path / "out")
        stop_after += 1
    assert blocks > 15


class Left(Reported):
    """Leaves a unit when it reports for the n-th time in this run: what a checkpoint knew is not counted again."""

    def __init__(self, stop_after: int) -> None:
        super().__init__()
        self.calls = 0
        self.stage_seconds = StageSeconds()
        self._stop_after = stop_after

    def update(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        super().update(ledger, consumed, stage_seconds)
        self.calls += 1
        self.stage_seconds.add(stage_seconds)
        if self.calls == self._stop_after:
            raise StoppedError
