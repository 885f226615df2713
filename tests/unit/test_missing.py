"""Files that are not, or do not stay, what was planned: nothing of them is written, and the receipt names them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.conftest import EOS, PAD, texts
from tests.support.changes import append, rewrite, swap
from tests.support.mishaps import by_block
from tests.support.units import Meanwhile, Reports, UnitJob, unit_job
from tokenmill.read.source import EDGE_BYTES
from tokenmill.records import Ledger, StageSeconds
from tokenmill.storage.memory import MemoryStorage
from tokenmill.unit.process import EncodedBlock, PartBlock


def inputs_of(job: UnitJob) -> MemoryStorage:
    assert isinstance(job.setup.inputs, MemoryStorage)
    return job.setup.inputs


def test_a_file_that_cannot_be_read_leaves_nothing_behind_and_is_named() -> None:
    job = unit_job({"a.jsonl": texts("abc"), "b.jsonl": texts("gone"), "c.jsonl": texts("def") + b"x\n"})
    inputs_of(job).remove(["b.jsonl"])
    reports = Reports()
    receipt = job.run(reports)
    assert receipt.missing == {1: "b.jsonl cannot be read: No such file or directory"}
    assert (receipt.lines, receipt.ledger.documents, receipt.ledger.records) == ((1, 0, 2), 2, 3)
    assert job.rows("00000-0000") == [[*b"abc", EOS], [*b"def", EOS]]
    # What was reported before the failure was taken back.
    assert reports.ledger == msgspec.structs.replace(receipt.ledger, rows=0, padding=0)
    assert reports.bytes == job.unit.size


@pytest.mark.parametrize("data", [texts("other"), texts("abcdef")], ids=["same size", "other size"])
def test_a_file_that_is_not_what_was_planned_is_not_read(data: bytes) -> None:
    job = unit_job({"a.jsonl": texts("first"), "b.jsonl": texts("b")})
    inputs_of(job).publish("a.jsonl", [data])
    receipt = job.run()
    assert receipt.missing == {0: "a.jsonl changed since the job was planned: restore it, or use --overwrite"}
    assert receipt.ledger.documents == 1


def test_a_file_that_changes_while_it_is_read_leaves_nothing_behind() -> None:
    """Though some of it was in chunks and in a checkpoint by then."""
    job = unit_job({"a.jsonl": texts("first" * 5), "b.jsonl": texts("b")}, sequences_per_chunk=1)

    def touch_first(
        function: Callable[[PartBlock], EncodedBlock], items: Iterable[PartBlock]
    ) -> Iterator[EncodedBlock]:
        for found in items:
            if found.part == 0:
                inputs_of(job).publish("a.jsonl", [texts("first" * 5)])
            yield function(found)

    checkpoints = Counter[str]()
    reports = Reports()
    receipt = job.run(reports, ordered_map=touch_first, checkpointed=lambda: checkpoints.update(["made"]))
    assert checkpoints["made"] == 6
    assert receipt.missing == {0: "a.jsonl changed while it was read: restore it, or use --overwrite"}
    assert (receipt.ledger.documents, receipt.lines, len(receipt.chunks)) == (1, (0, 1), 1)
    assert job.rows("00000-0000") == [[*b"b", EOS, PAD, PAD]]
    assert len(job.published("chunks")) == 2
    assert (reports.ledger.records, reports.bytes) == (1, job.unit.size)
    assert all(isinstance(stage_seconds, StageSeconds) for stage_seconds in reports.stage_seconds)


def test_a_file_that_could_not_be_read_when_it_was_planned_is_not_tried(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").symlink_to(tmp_path / "later.jsonl")
    job = unit_job({"b.jsonl": texts("b")}, folder=tmp_path)
    (tmp_path / "later.jsonl").write_bytes(texts("here by now"))
    receipt = job.run()
    assert receipt.missing == {0: "a.jsonl cannot be read: No such file or directory"}
    assert receipt.ledger.documents == 1


def flip(path: Path, position: int) -> None:
    """Another letter in place of one, and so the same size."""
    with path.open("r+b") as file:
        file.seek(position)
        letter = file.read(1)
        file.seek(position)
        file.write(b"y" if letter == b"x" else b"x")


@pytest.mark.parametrize("place", ["head", "tail"])
def test_an_edit_after_the_plan_that_keeps_the_size_is_noticed(tmp_path: Path, place: str) -> None:
    job = unit_job({"a.jsonl": texts("a"), "b.jsonl": texts("x" * 3 * EDGE_BYTES)}, folder=tmp_path)
    path = tmp_path / "in" / "b.jsonl"
    size = path.stat().st_size
    flip(path, 20 if place == "head" else size - 20)
    receipt = job.run()
    assert path.stat().st_size == size
    assert receipt.missing == {1: "b.jsonl changed since the job was planned: restore it, or use --overwrite"}
    assert receipt.ledger.documents == 1


@pytest.mark.parametrize("change", [rewrite, swap, append], ids=["time", "identity", "size"])
def test_a_change_while_a_file_is_read_is_noticed_by_time_identity_or_size(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "in" / "a.jsonl"
    job = unit_job({"a.jsonl": texts("first")}, folder=tmp_path)
    os.utime(path, (1, 1))  # long ago: whatever is written now has another time
    receipt = job.run(encoder=Meanwhile("first", lambda: change(path)))
    assert receipt.missing == {0: "a.jsonl changed while it was read: restore it, or use --overwrite"}
    assert receipt.ledger == Ledger()


def test_a_file_that_stays_as_it_was_is_read(tmp_path: Path) -> None:
    """Another name for it is no change."""
    job = unit_job({"a.jsonl": texts("first")}, folder=tmp_path)
    path = tmp_path / "in" / "a.jsonl"
    receipt = job.run(encoder=Meanwhile("first", lambda: os.link(path, tmp_path / "link")))
    assert receipt.missing == {}
    assert receipt.ledger.documents == 1


def test_what_was_reported_of_a_file_that_goes_missing_is_taken_back(
    tmp_path: Path, small_blocks: Callable[[int], None]
) -> None:
    """Documents, rejects and bytes of it were counted before it was found out."""
    small_blocks(16)  # a line is a block
    files = {
        "a.jsonl": texts("before") + b"bad\n",
        "b.jsonl": texts("one") + b"bad\n" + b'{"text": ""}\n' + texts("two"),
        "c.jsonl": texts("after") + b'{"no": "text"}\n',
    }
    job = unit_job(files, folder=tmp_path)
    reports = Reports()
    receipt = job.run(reports, Meanwhile("one", lambda: append(tmp_path / "in" / "b.jsonl")))
    assert list(receipt.missing) == [1]
    assert reports.most_documents == 4  # "before", and of what is taken back even what was appended
    assert by_block(reports.ledger) == by_block(receipt.ledger)
    assert receipt.ledger.rejects_by_reason == {"broken_json": 1, "no_text_field": 1}
    assert reports.bytes == job.unit.size
