"""run_unit: what is written of a unit, what its receipt says, and what is reported while it runs."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict
from inspect import getgeneratorstate
from pathlib import Path

import pytest

from tests.conftest import BOS, EOS, PAD, jsonl, texts
from tests.support.units import Reports, StopError, stop_at, unit_job
from tokenmill.concat import Packer
from tokenmill.errors import LedgerError, OutputError
from tokenmill.read.block import ReadingWay
from tokenmill.read.ring import Ring
from tokenmill.records import Ledger, StageSeconds
from tokenmill.storage.memory import MemoryStorage
from tokenmill.unit import process as processing
from tokenmill.unit import run as unit_run
from tokenmill.unit.process import EncodedBlock, PartBlock

SmallBlocks = Callable[[int], None]


def test_a_unit_has_its_receipt_with_everything_that_was_written() -> None:
    job = unit_job({"a.jsonl": texts("abc", "", "defgh") + b"x\n"}, sequences_per_chunk=2, id_field="id")
    reports = Reports()
    receipt = job.run(reports)
    assert receipt.ledger == Ledger(
        records=4,
        documents=2,
        empty=1,
        rejected=1,
        text_bytes=8,
        tokens=8,
        separators=2,
        padding=2,
        rows=3,
        rejects_by_reason={"broken_json": 1},
    )
    assert [(c.name, c.rows, c.tokens, c.documents) for c in receipt.chunks] == [
        ("00000-0000", 2, 8, 1),
        ("00000-0001", 1, 2, 1),
    ]
    assert (receipt.unit, receipt.lines, receipt.missing) == (0, (4,), {})
    assert receipt.rejects_bytes == len(job.published()["00000.rejects.jsonl"])
    assert job.rejects() == [
        {
            "part": 0,
            "record": 3,
            "offset": len(texts("abc", "", "defgh")),
            "reason": "broken_json",
            "detail": "Expecting value: line 1 column 1 (char 0)",
            "records": 1,
            "head": "x",
        }
    ]
    assert job.rows("00000-0000") == [[*b"abc", EOS], [*b"defg"]]
    assert job.rows("00000-0001") == [[*b"h", EOS, PAD, PAD]]
    assert [job.array(f"00000-000{n}.docs.npy").tolist() for n in (0, 1)] == [[(4, 0, 0)], [(2, 2, 0)]]
    assert [job.published()[f"00000-000{n}.ids.jsonl"] for n in (0, 1)] == [b"null\n", b"null\n"]
    assert job.published("units").keys() == {"00000.json", "00000.rejects.jsonl"}
    assert job.drafts() == {}
    assert job.setup.receipts.receipt(job.unit) == receipt
    assert reports.bytes == job.unit.size
    assert sum(records for records, _ in reports.calls) == 4


def test_a_unit_without_rejects_leaves_no_list_of_them() -> None:
    job = unit_job({"a.jsonl": texts("abc")})
    receipt = job.run()
    assert (receipt.rejects_bytes, receipt.rejects_xxh3) == (0, None)
    assert [c.ids_xxh3 for c in receipt.chunks] == [None]
    assert len(job.published("chunks")) == 2
    assert job.published("units").keys() == {"00000.json"}


def test_a_dropped_tail_is_counted_and_written_nowhere() -> None:
    ledger = unit_job({"a.jsonl": texts("abcde", "f")}, tail="drop").run().ledger
    assert (ledger.rows, ledger.dropped_tokens, ledger.dropped_documents, ledger.padding) == (2, 0, 0, 0)
    job = unit_job({"a.jsonl": texts("abcd", "f", "g")}, tail="drop")
    ledger = job.run().ledger
    assert (ledger.rows, ledger.dropped_tokens, ledger.dropped_documents, ledger.documents) == (2, 1, 1, 3)
    assert job.rows("00000-0000") == [[*b"abcd"], [EOS, *b"f", EOS, *b"g"]]


def test_record_numbers_count_on_within_a_part_and_start_at_0_in_the_next(small_blocks: SmallBlocks) -> None:
    small_blocks(128)
    lines = texts(*(f"text {n}" for n in range(30)))
    job = unit_job({"a.jsonl": lines, "b.jsonl": b"\nbroken\n" + lines})
    assert job.run().lines == (30, 32)
    docs = job.array("00000-0000.docs.npy")
    assert docs["record"].tolist() == [*range(30), *range(2, 32)]
    assert docs["file"].tolist() == [0] * 30 + [1] * 30
    assert [(r["part"], r["record"]) for r in job.rejects()] == [(1, 1)]


def test_documents_are_framed_as_the_tokenizer_says() -> None:
    job = unit_job({"a.jsonl": texts("a", "b")}, eos=False, bos=True)
    assert job.run().ledger.separators == 2
    assert job.rows("00000-0000") == [[BOS, *b"a", BOS, *b"b"]]


def test_counts_that_do_not_add_up_are_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is planted: a packer that forgets what it drops."""
    monkeypatch.setattr(Packer, "drop", lambda _: (0, 0))
    job = unit_job({"a.jsonl": texts("abc", "d")}, tail="drop")
    with pytest.raises(LedgerError, match="unit 00000: tokens do not add up"):
        job.run()
    assert job.setup.receipts.receipt(job.unit) is None


def test_a_unit_that_cannot_be_written_says_so_and_what_to_do() -> None:
    def full(operation: str, name: str) -> None:
        if operation == "draft" and name.startswith("chunks/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job = unit_job({"a.jsonl": texts("abc")}, storage=MemoryStorage(watch=full))
    with pytest.raises(OutputError) as error:
        job.run()
    assert str(error.value) == (
        "cannot write unit 00000 to memory:: No space left on device. Everything committed is safe: fix this and run "
        "the same command again"
    )
    assert isinstance(error.value.__cause__, OSError)
    assert error.value.__cause__.errno == errno.ENOSPC


def test_an_output_error_of_a_unit_is_passed_on_as_it_is() -> None:
    def unreadable(_operation: str, name: str) -> None:
        if name.endswith(".checkpoint.json"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    job = unit_job({"a.jsonl": texts("abc")}, storage=MemoryStorage(watch=unreadable))
    with pytest.raises(OutputError, match=r"^memory:units/00000\.checkpoint\.json cannot be read: Input/output error"):
        job.run()


# what is reported


def test_blocks_are_reported_with_the_cpu_time_of_every_stage(
    small_blocks: SmallBlocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(128)
    lines = jsonl(*({"text": "abcdefghijklm"[: 3 + n % 11]} for n in range(40)))
    job = unit_job({"a.jsonl": lines + b"broken\n"})
    clock = itertools.count()  # which a second passes on each time it is looked at
    monkeypatch.setattr(processing, "thread_time", lambda: float(next(clock)))
    monkeypatch.setattr(unit_run, "thread_time", lambda: float(next(clock)))
    reports = Reports()
    job.run(reports)
    assert len(reports.stage_seconds) > 3
    total = StageSeconds()
    for stage_seconds in reports.stage_seconds:
        assert min(asdict(stage_seconds).values()) >= 0
        total.add(stage_seconds)
    assert min(asdict(total).values()) > 0
    assert sum(asdict(total).values()) < next(clock)


def test_rejects_can_be_read_as_soon_as_they_are_reported() -> None:
    """For a job with too many of them stops there, and lists them."""
    job = unit_job({"a.jsonl": texts("abc") + b"broken\n"})
    found = []

    def update(ledger: Ledger, *_: object) -> None:
        if ledger.rejected:
            found.append(job.storage.open_draft("00000.rejects.jsonl").read())

    job.run(update)
    assert found == [job.published()["00000.rejects.jsonl"]]


def test_the_head_of_a_reject_is_readable_whatever_it_was() -> None:
    job = unit_job({"a.jsonl": '{"text": "é'.encode() + b'\xff"}\n'})
    job.run()
    assert [r["head"] for r in job.rejects()] == ['{"text": "é\\xff"}']


# what a unit holds while it runs


def test_blocks_are_read_into_the_buffers_of_a_ring_if_there_is_one() -> None:
    lent = []

    class Watched(Ring):
        def lend(self, size: int = 0) -> tuple[memoryview, Callable[[], None]]:
            lent.append(size)
            return super().lend(size)

    assert unit_job({"a.jsonl": texts("abc")}).run(way=ReadingWay(ring=Watched())).ledger.documents == 1
    assert lent


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_unit_that_is_stopped_lets_go_of_its_results_then_of_its_blocks_then_of_its_files(tmp_path: Path) -> None:
    """Whatever computes results must have let go of a block before the file that it is from is closed."""
    job = unit_job({"a.jsonl": texts("abc" * 9)}, folder=tmp_path, sequences_per_chunk=2, id_field="id")
    before = descriptors()
    closed = []

    def ordered(function: Callable[[PartBlock], EncodedBlock], items: Iterable[PartBlock]) -> Iterator[EncodedBlock]:
        assert isinstance(items, Generator)
        try:
            yield from map(function, items)
        finally:
            closed.append((getgeneratorstate(items), descriptors() > before))

    with pytest.raises(StopError) as error:
        job.run(Reports(stop_after=1), ordered_map=ordered)
    assert closed == [("GEN_SUSPENDED", True)]
    assert descriptors() == before
    assert error.tb is not None  # which keeps everything alive: nothing was closed by going out of use


def test_a_unit_that_is_stopped_as_it_is_resumed_leaves_no_file_open(tmp_path: Path, small_blocks: SmallBlocks) -> None:
    small_blocks(128)
    lines = b"broken\n" + texts("abc") + b"\n" * 200 + texts("defghi" * 3)
    job = unit_job({"a.jsonl": lines}, folder=tmp_path, sequences_per_chunk=1)
    with pytest.raises(StopError):
        job.run(checkpointed=stop_at(2))
    before = descriptors()
    with pytest.raises(StopError) as error:
        job.run(Reports(stop_after=1))
    assert error.tb is not None
    assert descriptors() == before


def test_a_unit_that_cannot_go_on_with_its_chunk_leaves_no_file_open(tmp_path: Path) -> None:
    job = unit_job({"a.jsonl": texts("abcdefghi")}, folder=tmp_path)
    with pytest.raises(StopError):
        job.run(checkpoint_batches=True, checkpointed=stop_at(1))
    sidecar = tmp_path / "out" / "tmp" / "00000-0000.docs.npy"
    sidecar.unlink()  # of no document, so that nobody misses it
    sidecar.mkdir()
    before = descriptors()
    with pytest.raises(OutputError, match=r"cannot write unit 00000 to .*: Is a directory") as error:
        job.run()
    assert error.tb is not None
    assert descriptors() == before
