"""ultra: worker processes that die, do not stop, outlive their parent or use too much memory."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, texts, tree
from tests.engines.conftest import BLOCK_OPTIONS, HOLD, ask_before_blocks, run_until, worker_processes
from tests.support import mishaps
from tests.support.mishaps import PATIENCE_SECONDS, Gate, Hold, assert_reports_agree
from tokenmill.engines import ultra, worker
from tokenmill.engines.cost import Cost
from tokenmill.errors import OutputBusyError, WorkerError
from tokenmill.job import interrupt
from tokenmill.job.progress import Meter

# workers that die


@pytest.mark.usefixtures("blocks")
def test_a_killed_worker_changes_nothing_but_the_time(
    blocks_expected: dict[str, bytes],
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Killed as an out-of-memory killer would, after it has reported some blocks: they are not counted twice."""
    killed: list[int] = []

    def answer(process: int, document: str) -> None:
        if document == HOLD and len(killed) < 2:
            killed.append(process)
            os.kill(process, signal.SIGKILL)

    with Gate(answer) as gate:
        ask_before_blocks(gate, monkeypatch, tmp_path)
        result = run(engine="ultra", num_workers=2, **BLOCK_OPTIONS)
    assert len(killed) == 2
    assert caplog.text.count("was killed by signal 9") == 2
    assert tree(tmp_path / "out") == blocks_expected
    assert_reports_agree(result)


@pytest.mark.parametrize("missing", [False, True])
def test_a_worker_that_dies_when_its_unit_is_committed_is_counted_by_the_receipt(
    blocks: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    missing: bool,
) -> None:
    """Its last reports were never sent, its checkpoint is still there, and nobody does the unit again.

    Not even if the receipt names a missing file: that is for the next run.
    """
    (blocks / "b.jsonl").unlink()
    if missing:
        (blocks / "b.jsonl").symlink_to(tmp_path / "nowhere")
    run(engine="streaming", output=tmp_path / "fresh", **BLOCK_OPTIONS)
    mishaps.in_new_processes(monkeypatch, tmp_path, "mishaps.die_after_commit()")
    result = run(engine="ultra", num_workers=1, **BLOCK_OPTIONS)
    assert "failed" not in caplog.text
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    assert_reports_agree(result)


@pytest.mark.usefixtures("small_units")
def test_a_unit_that_keeps_failing_is_set_aside_and_can_be_run_later(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit kills its worker again and again; the others are committed."""
    for name, first in (("a", "good"), ("b", "poison"), ("c", "good")):
        (inputs / f"{name}.jsonl").write_bytes(texts(first, "x" * 10_000))
    run(engine="streaming", output=tmp_path / "fresh")

    def answer(process: int, document: str) -> None:
        if document == "poison":
            os.kill(process, signal.SIGKILL)

    with Gate(answer) as gate, monkeypatch.context() as poisoned:
        ask_before_blocks(gate, poisoned, tmp_path)
        with pytest.raises(WorkerError, match=r"^1 unit failed 3 times and was set aside: unit 00001: .*signal 9"):
            run(engine="ultra", num_workers=1)
    assert gate.asked.count("poison") == 3
    assert sorted(path.name for path in (tmp_path / "out" / "units").glob("?????.json")) == ["00000.json", "00002.json"]
    run(engine="streaming")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.usefixtures("blocks")
def test_a_worker_that_cannot_start_ends_the_run_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one could not start either; only a worker that was killed may have been unlucky."""
    mishaps.in_new_processes(monkeypatch, tmp_path, "__import__('os')._exit(7)")
    with pytest.raises(WorkerError, match=r"^a worker ended with exit code 7 before it was ready: see its message"):
        run(engine="ultra", num_workers=2)
    assert worker_processes() == []


def test_a_worker_that_outlives_its_parent_keeps_others_out_until_it_has_ended(
    blocks: Path, tmp_path: Path, run: Run, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent alone is killed, while a worker is at a block."""
    hold = Hold(HOLD)
    (blocks / "b.jsonl").unlink()
    run(engine="streaming", output=tmp_path / "fresh", **BLOCK_OPTIONS)
    command = [sys.executable, "-m", "tokenmill", "run", blocks, tmp_path / "out", "--tokenizer", tiny_tokenizer]
    command += ["--engine", "ultra", "--seq-len", 8, "--sequences-per-chunk", 100]
    with Gate(hold) as gate, monkeypatch.context() as held:
        ask_before_blocks(gate, held, tmp_path)
        parent = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
        outliving = os.pidfd_open(hold.wait())
        asked = len(gate.asked)
        parent.kill()
        parent.wait()
        with pytest.raises(OutputBusyError, match="another run is writing"):
            run(engine="streaming", **BLOCK_OPTIONS)
        hold.open()
        ended, _, _ = select.select([outliving], [], [], PATIENCE_SECONDS)
        os.close(outliving)
        assert ended
        assert len(gate.asked) - asked <= 1, "it goes on without its parent"
    assert not list((tmp_path / "out" / "units").glob("?????.json"))
    run(engine="streaming", **BLOCK_OPTIONS)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_worker_over_its_share_of_memory_is_replaced_and_nothing_changes(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tokenmill")
    (inputs / "a.jsonl").write_bytes(texts(*("x" * 1000 for _ in range(320))))
    options: dict[str, Any] = {"seq_len": 16, "sequences_per_chunk": 5000}
    run(engine="streaming", output=tmp_path / "fresh", **options)
    mishaps.in_new_processes(monkeypatch, tmp_path, "mishaps.set_to('tokenmill.read.lines.BLOCK_BYTES', 64 << 10)")
    monkeypatch.setattr(ultra.UltraEngine, "cost", Cost(per_worker=1, parallel=True))
    result = run(engine="ultra", num_workers=1, max_memory="2MB", **options)
    assert caplog.text.count("over its share of memory: replaced at a checkpoint") >= 2
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    assert_reports_agree(result)


# workers that are stopped


class StopInSilence:
    """An event that is set when all workers are held, everything they said was heard, and so nobody will say more."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._is_silent = False
        self.heard = Meter(total_bytes=0)

    def is_set(self) -> bool:
        before, self._is_silent = self._is_silent, self._hold.count == 2 and self.heard.ledger.documents == 2 * 20
        return before

    def display(self, meter: Meter) -> AbstractContextManager[None]:
        self.heard = meter
        return nullcontext()


@pytest.mark.usefixtures("blocks")
def test_workers_that_do_not_stop_are_ended(
    tmp_path: Path, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are at a block that does not end when the run is stopped."""
    hold = Hold(HOLD)
    stop = StopInSilence(hold)
    with Gate(hold) as gate:
        ask_before_blocks(gate, monkeypatch, tmp_path)
        run_until(stop, stop.display, engine="ultra", num_workers=2, **job, **BLOCK_OPTIONS)
        assert worker_processes() == []
        assert gate.asked[-1] == HOLD, "somebody got further"
        assert not hold.gave_up
        hold.open()


def test_what_ends_a_block_that_takes_too_long_does_so_within_two_seconds() -> None:
    """The other tests show that it does; how long it waits before is a matter of these."""
    assert ultra.POLL_SECONDS + ultra.STOP_SECONDS < interrupt.GRACE_SECONDS < 2
    assert worker.REPORT_SECONDS < ultra.STOP_SECONDS
