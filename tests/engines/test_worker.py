"""The worker of ultra, on a thread of this process: what it sends its parent, and when it stops."""

from __future__ import annotations

import pickle
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import texts
from tests.engines.conftest import SMALL_BLOCKS, apply
from tests.support.mishaps import PATIENCE_SECONDS, by_block
from tokenmill.config import Config, EncoderChoice
from tokenmill.encode import resolve_tokenizer
from tokenmill.encode.encoder import FastokensEncoder, HuggingFaceEncoder
from tokenmill.engines.protocol import Done, Failed, Ready, Retire, Task, UnitReport, WorkerSetup
from tokenmill.engines.worker import main, picklable
from tokenmill.errors import OutputError
from tokenmill.job.prepare import Job, open_job
from tokenmill.output import layout
from tokenmill.output.open import output_storage
from tokenmill.plan.make import make_plan
from tokenmill.read.corpus import Corpus
from tokenmill.records import Ledger, TokenBatch, Unit


@dataclass(frozen=True)
class Parent:
    """The other side of a worker: its job, its only unit, and the connection."""

    job: Job
    unit: Unit
    connection: Connection
    thread: threading.Thread

    def receive(self) -> Any:
        assert self.connection.poll(PATIENCE_SECONDS)
        return self.connection.recv()

    def run_unit(self, encoder: str = "fastokens") -> tuple[list[UnitReport], Any]:
        """Have the unit run: the reports, and what came after them."""
        self.connection.send(Task(self.unit, encoder))
        reports = []
        while isinstance(message := self.receive(), UnitReport):
            reports.append(message)
        return reports, message


@contextmanager
def worker_of(config: Config, share: int = 1 << 40) -> Iterator[Parent]:
    """A worker that may use so many bytes, and is ready."""
    planned = make_plan(config.inputs, config.output, Corpus)
    ours, theirs = socket.socketpair()
    with (
        open_job(config, planned, resolve_tokenizer(config), output_storage(config.output)) as job,
        job.underway(),
        tempfile.TemporaryFile() as file,
    ):
        setup = WorkerSetup(setup=job.unit_setup(), encoder=EncoderChoice.AUTO, memory=share, room=0, windows=None)
        assert pickle.loads(pickle.dumps(setup)) == setup  # nothing of it is dropped on the way
        pickle.dump(setup, file)
        file.flush()
        thread = threading.Thread(target=main, args=(theirs.detach(), file.fileno()))
        thread.start()
        with Connection(ours.detach()) as connection:
            parent = Parent(job, planned.plan.unit(0), connection, thread)
            assert isinstance(parent.receive(), Ready)
            yield parent
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "it does not stop when its parent hangs up"


@pytest.fixture
def config(inputs: Path, tmp_path: Path, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A job of one unit, of a block for each of its ten documents."""
    apply(SMALL_BLOCKS, monkeypatch)
    (inputs / "a.jsonl").write_bytes(texts(*(f"{n}" * 60 for n in range(10))))
    return Config(inputs=(str(inputs),), output=tmp_path / "out", tokenizer=tiny_tokenizer, seq_len=8)


def test_reports_add_up_to_the_receipt(config: Config) -> None:
    with worker_of(config) as parent:
        reports, end = parent.run_unit()
        assert end == Done(retire=False)
        receipt = parent.job.receipts.receipt(parent.unit)
    total = Ledger()
    for report in reports:
        total.add(report.ledger)
    assert len(reports) >= 10
    assert receipt is not None
    assert by_block(total) == by_block(receipt.ledger)
    assert sum(report.consumed for report in reports) == parent.unit.size
    assert all(report.memory > 10_000_000 for report in reports)


@pytest.mark.parametrize("kind", [FastokensEncoder, HuggingFaceEncoder])
def test_a_worker_encodes_with_the_encoder_that_its_parent_has_checked(
    config: Config, monkeypatch: pytest.MonkeyPatch, kind: type[FastokensEncoder | HuggingFaceEncoder]
) -> None:
    """Even if it guessed that it would be another one."""
    encoded: list[str] = []
    encode = kind.encode

    def encode_and_note(self: Any, texts: Sequence[str]) -> TokenBatch:
        encoded.extend(texts)
        return encode(self, texts)

    monkeypatch.setattr(kind, "encode", encode_and_note)
    with worker_of(config) as parent:
        parent.run_unit(kind.name)
    assert len(encoded) == 10


def test_a_worker_over_its_share_retires_when_its_unit_is_done(config: Config) -> None:
    with worker_of(config, share=1) as parent:
        _, end = parent.run_unit()
    assert end == Done(retire=True)


def test_a_worker_over_its_share_retires_at_a_checkpoint_from_which_another_continues(config: Config) -> None:
    config = replace(config, sequences_per_chunk=40)
    with worker_of(config, share=1) as parent:
        reports, end = parent.run_unit()
        assert end == Retire()
        assert parent.job.receipts.receipt(parent.unit) is None
    with worker_of(config) as parent:
        more, end = parent.run_unit()
        receipt = parent.job.receipts.receipt(parent.unit)
    assert end == Done(retire=False)
    assert receipt is not None
    assert sum(report.ledger.documents for report in more) == receipt.ledger.documents == 10
    assert 0 < sum(report.ledger.documents for report in reports) < 10


def test_an_error_is_sent_to_the_parent_and_the_worker_is_ready_for_another_unit(config: Config) -> None:
    with worker_of(config) as parent:
        checkpoint = config.output / layout.checkpoint_file(parent.unit)
        checkpoint.mkdir()
        _, end = parent.run_unit()
        assert isinstance(end, Failed)
        assert isinstance(end.error, OutputError)
        assert f"{checkpoint} cannot be read" in str(end.error)
        checkpoint.rmdir()
        _, end = parent.run_unit()
        assert end == Done(retire=False)


def test_an_error_that_cannot_be_sent_is_sent_as_its_text() -> None:
    class Odd(Exception):  # noqa: N818 - of a class that the parent does not know
        pass

    same = OutputError("disk full")
    assert picklable(same) is same
    sent = picklable(Odd("what happened"))
    assert isinstance(sent, RuntimeError)
    assert "what happened" in str(sent)
