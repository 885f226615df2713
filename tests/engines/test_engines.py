"""The contract of engines: the same bytes from each, whatever the workers, the interruptions and the order."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import itertools
import logging
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from tests.conftest import Run, documents, jsonl, rejects, texts, tree
from tests.support import mishaps
from tests.support.mishaps import PATIENCE_SECONDS, Gate, Hold, assert_reports_agree
from tokenmill.config import ENGINES
from tokenmill.encode.encoder import FastokensEncoder
from tokenmill.engines import ultra, worker
from tokenmill.engines.budget import BLOCKS_PER_THREAD
from tokenmill.errors import Interrupted, OutputBusyError, TokenizerError, WorkerError
from tokenmill.job import execute, interrupt
from tokenmill.job.progress import Meter
from tokenmill.records import Ledger, TokenBatch

EVERY = pytest.mark.parametrize("engine", ENGINES)
OPTIONS: dict[str, Any] = {"sequences_per_chunk": 300, "id_field": "id", "seq_len": 16}
UNITS = {"tokenmill.plan.cut.MIN_UNIT_BYTES": 15_000, "tokenmill.plan.cut.FILE_COST_BYTES": 0}


# the same bytes


@pytest.fixture(scope="session")
def corpus_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every format, several units, bad records among them, ranges of a big file and of a big Parquet file."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(4)

    def records(count: int) -> list[dict[str, Any]]:
        return [{"id": n, "text": "".join(rng.choices("abc dé", k=rng.randrange(0, 400)))} for n in range(count)]

    bad = b"broken\n" + b'{"text": 3}\n' + b"\n" + b'{"text": "\xff"}\n' + texts("a <|endoftext|> b")
    (folder / "a.jsonl").write_bytes(jsonl(*records(200)) + bad + jsonl(*records(200)))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(*records(150)) + bad))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(jsonl(*records(150)))[:-2000])
    (folder / "d.jsonl.zst").write_bytes(zstd.compress(jsonl(*records(150))) * 2)
    (folder / "e.jsonl.bz2").write_bytes(bz2.compress(jsonl(*records(50))))
    pq.write_table(pa.Table.from_pylist(records(250)), folder / "f.parquet", row_group_size=25)
    (folder / "g.txt").write_text("one document\n")
    (folder / "h.jsonl").write_bytes(b"")
    return folder


@pytest.fixture(scope="session")
def expected(corpus_files: Path, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: str) -> dict[str, bytes]:
    """What the plain reference makes of the corpus."""
    output = tmp_path_factory.mktemp("expected") / "out"
    inputs = (str(corpus_files),)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in UNITS.items():
            patch.setattr(name, value)
        options = OPTIONS | {"engine": "enhanced", "max_rejects": "100%", "tokenizer": tiny_tokenizer}
        result = tokenmill.run(tokenmill.Config(inputs=inputs, output=output, **options))
    manifest = tokenmill.open(output).manifest
    assert len(manifest["units"]) > 8
    assert len(manifest["chunks"]) > 2 * len(manifest["units"])
    assert result.ledger.rejected == 7
    return tree(output)


@pytest.fixture
def corpus(corpus_files: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus as the inputs of a test, which may add to them, in many units."""
    small_units(monkeypatch)
    shutil.copytree(corpus_files, inputs, copy_function=os.link, dirs_exist_ok=True)
    return inputs


def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in UNITS.items():
        monkeypatch.setattr(name, value)


@pytest.mark.usefixtures("corpus")
@pytest.mark.parametrize(
    ("engine", "workers"),
    [("streaming", 1), ("ultra", 1), ("ultra", 3), ("extreme", 1), ("extreme", 2), ("extreme", 7)],
)
def test_one_worker_or_seven_give_the_same_bytes(
    expected: dict[str, bytes], tmp_path: Path, run: Run, engine: str, workers: int
) -> None:
    result = run(engine=engine, num_workers=workers, **OPTIONS)
    assert tree(tmp_path / "out") == expected
    assert_reports_agree(result)


@pytest.fixture
def one_file(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files, the second one of some hundred blocks, which threads without a file of their own help with."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 512)
    monkeypatch.setattr("tokenmill.read.ring.BUFFER_BYTES", 1024)
    rng = random.Random(5)
    (inputs / "a.jsonl").write_bytes(texts("short"))
    lines = texts(*("".join(rng.choices("abc dé", k=rng.randrange(1, 300))) for _ in range(300)))
    (inputs / "b.jsonl").write_bytes(lines)
    return inputs


def is_helping() -> bool:
    """Whether this thread encodes a block of a unit that another thread runs."""
    runs_a_unit = any(frame.f_code.co_name == "run_unit" for frame, _ in traceback.walk_stack(None))
    return threading.current_thread().name.startswith("tokenmill-encode") and not runs_a_unit


def finish_out_of_order(monkeypatch: pytest.MonkeyPatch, fail_at: int = -1) -> set[str]:
    """Have threads that help be done with a block only after a later one is; the names of the threads that encoded."""
    right, calls, threads = FastokensEncoder.encode, itertools.count(), set()
    done = -1
    changed, helped = threading.Condition(), threading.Event()

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        nonlocal done
        number = next(calls)
        threads.add(threading.current_thread().name)
        if number == fail_at:
            raise TokenizerError("no more")
        batch = right(self, texts)
        with changed:
            if is_helping():
                helped.set()
                changed.wait_for(lambda: done > number, 0.1)  # in vain only at the end, when there is no later one
            else:
                changed.wait_for(helped.is_set, 0.01)  # so that it is not done before the others have begun
            done = max(done, number)
            changed.notify_all()
        return batch

    monkeypatch.setattr(FastokensEncoder, "encode", encode)
    return threads


@pytest.mark.usefixtures("one_file")
@pytest.mark.parametrize("workers", [2, 7])
def test_threads_of_extreme_share_the_blocks_of_one_file_and_keep_their_order(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    run(engine="streaming", output=tmp_path / "expected", seq_len=16)
    threads = finish_out_of_order(monkeypatch)
    run(engine="extreme", num_workers=workers, seq_len=16)
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    encoding = [name for name in threads if name.startswith("tokenmill-encode")]
    assert min(workers, 3) <= len(encoding) <= workers  # of seven, one may find nothing left to do


@pytest.mark.usefixtures("one_file")
@pytest.mark.parametrize("fail_at", [60, 61, 62, 63])
def test_a_block_that_fails_on_any_thread_of_extreme_ends_the_run_and_leaves_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    finish_out_of_order(monkeypatch, fail_at)
    with pytest.raises(TokenizerError, match="no more"):
        run(engine="extreme", num_workers=7, seq_len=16)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("tokenmill-")]


@pytest.mark.usefixtures("one_file")
def test_a_unit_that_fails_waits_for_the_threads_that_are_at_its_blocks(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk goes bad while a helping thread is at a block: nothing is taken back before that thread is done."""
    helping, taken_back = threading.Event(), threading.Event()
    order: list[str] = []
    right = FastokensEncoder.encode

    class Disk(mishaps.FailingFile):
        """Gives the file again and again, until it goes bad."""

        def readinto(self, buffer: Any) -> int:
            if helping.is_set():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.tell() == os.stat(self.name).st_size:
                self.seek(0)
            return io.FileIO.readinto(self, buffer) or 0

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        if is_helping() and texts != ["short"]:
            helping.set()
            taken_back.wait(0.5)  # which it must not be; so it cannot be waited for as long as it takes
            order.append("helped")
        return right(self, texts)

    class Watched(Meter):
        def add(self, ledger: Ledger, consumed: int) -> None:
            super().add(ledger, consumed)
            if consumed < 0:
                order.append("taken back")
                taken_back.set()

    mishaps.break_file("b.jsonl", 1 << 40, errno.EIO, Disk, monkeypatch.setattr)
    monkeypatch.setattr(FastokensEncoder, "encode", encode)
    monkeypatch.setattr(execute, "Meter", Watched)
    result = run(engine="extreme", num_workers=2, seq_len=16)
    assert list(result.missing) == ["b.jsonl"]
    assert order[0] == "helped"
    assert order[-1] == "taken back"
    assert order.count("taken back") == 1
    assert documents(tmp_path / "out") == [b"short"]
    assert_reports_agree(result)


@pytest.mark.parametrize("mode", ["plain", "reject", "match"])
def test_special_tokens_are_the_same_in_every_engine(inputs: Path, tmp_path: Path, run: Run, mode: str) -> None:
    forged = ["x" * n + "<|endoftext|>" for n in range(100)]
    (inputs / "a.jsonl").write_bytes(texts(*forged, "good"))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts("good", *forged)))
    pq.write_table(pa.table({"text": forged}), inputs / "c.parquet")
    trees = []
    for engine in ENGINES:
        output = tmp_path / engine
        result = run(engine=engine, num_workers=2, output=output, special_tokens_in_text=mode)
        assert result.ledger.special_tokens_in_text == 300
        assert result.ledger.rejects_by_reason == ({"special_token": 300} if mode == "reject" else {})
        trees.append(tree(output))
    assert all(t == trees[0] for t in trees)
    in_text = [256 in document.tokens[:-1] for document in tokenmill.open(output).documents()]
    assert in_text.count(True) == (300 if mode == "match" else 0)


def test_a_missing_file_is_the_same_in_every_engine(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a") + b"bad\n")
    (inputs / "b.jsonl").symlink_to(tmp_path / "nowhere")
    (inputs / "c.jsonl").write_bytes(texts("c"))
    for engine in ENGINES:
        result = run(engine=engine, num_workers=2, output=tmp_path / engine)
        assert result.missing == {"b.jsonl": "b.jsonl cannot be read: No such file or directory"}
        assert documents(tmp_path / engine) == [b"a", b"c"]
        assert tree(tmp_path / engine) == tree(tmp_path / ENGINES[0])


@EVERY
def test_too_many_rejects_stop_every_engine(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """At the first one, not when all is read."""
    small_units(monkeypatch)
    for n in range(9):
        (inputs / f"{n}.jsonl").write_bytes(b"bad\n" + texts("x" * 15_000))
    with pytest.raises(tokenmill.RejectLimitError):
        run(engine=engine, num_workers=2, max_rejects=0)
    begun = {path.name[:5] for path in (tmp_path / "out" / "units").iterdir()}
    assert len(begun) <= (2 if engine in ("ultra", "extreme") else 1)
    assert {r["reason"] for r in rejects(tmp_path / "out")} == {"broken_json"}
    assert not (tmp_path / "out" / "manifest.json").exists()


@EVERY
def test_a_disk_that_fails_is_a_clear_error_in_every_engine(
    corpus_files: Path, tmp_path: Path, tiny_tokenizer: str, engine: str
) -> None:
    command = [sys.executable, "-m", "tokenmill", "run", corpus_files, tmp_path / "out", "--tokenizer", tiny_tokenizer]
    shell = " ".join(map(str, [*command, "--engine", engine, "--num-workers", 2, "--max-rejects", "100%"]))
    limited = ["bash", "-c", f"trap '' XFSZ; ulimit -f 60; exec {shell}"]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=10 * PATIENCE_SECONDS)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr


# interrupted


class StopInTheSecondFile:
    calls = 0

    def is_set(self) -> bool:
        self.calls += 1
        return self.calls == 2


def run_until(stop: object, display: execute.Display | None = None, **options: Any) -> None:
    """Run a job that is to be stopped."""
    config = tokenmill.Config(**{"max_rejects": "100%"} | options)
    with pytest.raises(Interrupted, match="run the same command again to continue"):
        tokenmill.run(config, stop=cast(threading.Event, stop), display=display)


def test_a_batch_that_completes_no_row_is_no_place_to_go_on_from(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str
) -> None:
    """The row began in the file before, and what there is of it is on no disk."""
    for name, text in (("a", "A" * 100), ("b", "bcd"), ("c", "C" * 100)):
        (inputs / f"{name}.jsonl").write_bytes(texts(text))
    options: dict[str, Any] = {"engine": "enhanced", "seq_len": 64}
    run_until(
        StopInTheSecondFile(), inputs=(str(inputs),), output=tmp_path / "out", tokenizer=tiny_tokenizer, **options
    )
    run(**options)
    run(engine="streaming", seq_len=64, output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


class StopAt:
    """An event that is set once so many checkpoints and receipts were seen."""

    def __init__(self, output: Path, count: int) -> None:
        self._units = output / "units"
        self._count = count

    def is_set(self) -> bool:
        return len(list(self._units.glob("*.json"))) >= self._count


@EVERY
def test_an_interrupted_job_is_finished_by_another_engine(
    expected: dict[str, bytes], corpus: Path, tmp_path: Path, run: Run, tiny_tokenizer: str, engine: str
) -> None:
    output = tmp_path / "out"
    options = OPTIONS | {"inputs": (str(corpus),), "output": output, "tokenizer": tiny_tokenizer, "num_workers": 2}
    for count in (1, 4):
        run_until(StopAt(output, count), engine=engine, **options)
        assert not (output / "manifest.json").exists()
    other = ENGINES[(ENGINES.index(engine) + 1) % len(ENGINES)]
    result = run(engine=other, num_workers=2, **OPTIONS)
    assert tree(output) == expected
    assert_reports_agree(result)


BLOCKS = 60
HOLD = "hold".ljust(64, ".")
SMALL_BLOCKS = UNITS | {
    "tokenmill.plan.cut.MIN_UNIT_BYTES": 4000,  # a file is a unit
    "tokenmill.read.lines.BLOCK_BYTES": 64,  # a line is a block
    "tokenmill.engines.worker.REPORT_SECONDS": 0.0,  # a worker reports every block, and looks for its parent
}
BLOCK_OPTIONS: dict[str, Any] = {"seq_len": 8, "sequences_per_chunk": 100}


def write_blocks(inputs: Path, patch: pytest.MonkeyPatch) -> None:
    """Two units of many blocks, of a document each; after the first ones, and a checkpoint, comes the document HOLD."""
    for name, value in SMALL_BLOCKS.items():
        patch.setattr(name, value)
    for name in ("a", "b"):
        lines = [f"{name}{n}".ljust(64, ".") for n in range(BLOCKS)]
        (inputs / f"{name}.jsonl").write_bytes(texts(*lines[:20], HOLD, *lines[20:]))


@pytest.fixture
def blocks(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_blocks(inputs, monkeypatch)
    return inputs


@pytest.fixture(scope="session")
def blocks_expected(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: str) -> dict[str, bytes]:
    """What an undisturbed run makes of them."""
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        write_blocks(folder / "in", patch)
        options = BLOCK_OPTIONS | {"inputs": (str(folder / "in"),), "tokenizer": tiny_tokenizer}
        tokenmill.run(tokenmill.Config(output=folder / "out", engine="enhanced", **options))
    return tree(folder / "out")


def asking(gate: Gate, monkeypatch: pytest.MonkeyPatch, folder: Path, *statements: str) -> None:
    """Have every process that is started ask the gate before each block."""
    small = (f"mishaps.set_to({name!r}, {value})" for name, value in SMALL_BLOCKS.items())
    mishaps.in_new_processes(monkeypatch, folder, *small, f"mishaps.ask({gate.address!r})", *statements)


MOST_BLOCKS_AFTER_A_STOP = {
    "enhanced": 0,
    "streaming": 0,
    "extreme": 2 * BLOCKS_PER_THREAD,
    "ultra": 2,  # each worker asks once more, and is held until its parent has ended it
}


@EVERY
def test_a_stop_lets_no_engine_go_on_for_more_than_a_few_blocks(
    blocks: Path,
    blocks_expected: dict[str, bytes],
    tmp_path: Path,
    run: Run,
    tiny_tokenizer: str,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    stop, ended = threading.Event(), threading.Event()
    asked_before: list[int] = []

    def answer(_: int, document: str) -> None:
        if document == HOLD and not stop.is_set():
            asked_before.append(len(gate.asked))
            stop.set()
        if stop.is_set() and engine == "ultra":
            ended.wait(PATIENCE_SECONDS)

    options = BLOCK_OPTIONS | {"inputs": (str(blocks),), "tokenizer": tiny_tokenizer, "num_workers": 2}
    with Gate(answer) as gate, monkeypatch.context() as held:
        asking(gate, held, tmp_path)
        mishaps.ask(gate.address, held.setattr)
        run_until(stop, engine=engine, output=tmp_path / "out", **options)
        assert len(gate.asked) - asked_before[0] <= MOST_BLOCKS_AFTER_A_STOP[engine]
        ended.set()
    assert workers() == []
    result = run(engine="streaming", **BLOCK_OPTIONS)
    assert tree(tmp_path / "out") == blocks_expected
    assert_reports_agree(result)


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


def test_workers_that_do_not_stop_are_ended(
    blocks: Path, tmp_path: Path, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are at a block that does not end when the run is stopped."""
    hold = Hold(HOLD)
    stop = StopInSilence(hold)
    options = BLOCK_OPTIONS | {"inputs": (str(blocks),), "tokenizer": tiny_tokenizer, "num_workers": 2}
    with Gate(hold) as gate:
        asking(gate, monkeypatch, tmp_path)
        run_until(stop, stop.display, engine="ultra", output=tmp_path / "out", **options)
        assert workers() == []
        assert gate.asked[-1] == HOLD, "somebody got further"
        assert not hold.gave_up
        hold.open()


def test_what_ends_a_block_that_takes_too_long_does_so_within_two_seconds() -> None:
    """The other tests show that it does; how long it waits before is a matter of these."""
    assert ultra.POLL_SECONDS + ultra.STOP_SECONDS < interrupt.GRACE_SECONDS < 2
    assert worker.REPORT_SECONDS < ultra.STOP_SECONDS


@EVERY
@pytest.mark.parametrize(
    ("number", "goes_on"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGTERM, False)],
    ids=["Ctrl-C", "SIGTERM", "a block that does not end"],
)
def test_ctrl_c_stops_every_engine_and_leaves_no_process(
    blocks: Path,
    blocks_expected: dict[str, bytes],
    tmp_path: Path,
    run: Run,
    tiny_tokenizer: str,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    number: signal.Signals,
    goes_on: bool,
) -> None:
    """Ctrl-C goes to every process of the group, as a terminal sends it; SIGTERM to the one that was started."""
    hold = Hold(HOLD)
    command = [sys.executable, "-m", "tokenmill", "run", blocks, tmp_path / "out", "--tokenizer", tiny_tokenizer]
    command += ["--engine", engine, "--num-workers", 2, "--seq-len", 8, "--sequences-per-chunk", 100]
    with Gate(hold) as gate, monkeypatch.context() as held:
        asking(gate, held, tmp_path)
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, start_new_session=True)
        for _ in range(2 if engine in ("ultra", "extreme") else 1):
            hold.wait()
        asked = len(gate.asked)
        (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
        if goes_on:
            hold.open()
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        # How many they are exactly, the test of a stop says; here the workers and the signal are in a race.
        assert len(gate.asked) < 2 * (BLOCKS + 1) if goes_on else len(gate.asked) == asked
        assert not hold.gave_up
        hold.open()
    assert process.returncode == 130, said
    assert "run the same command again to continue" in said
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert not (tmp_path / "out" / "manifest.json").exists()
    result = run(engine="streaming", **BLOCK_OPTIONS)
    assert tree(tmp_path / "out") == blocks_expected
    assert_reports_agree(result)


# workers that die


def workers() -> list[int]:
    """Worker processes of this process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
            command = (entry.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"tokenmill.engines.worker" in command:
            found.append(int(entry.parent.name))
    return found


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
        asking(gate, monkeypatch, tmp_path)
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


def test_a_unit_that_keeps_failing_is_set_aside_and_can_be_run_later(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit kills its worker again and again; the others are committed."""
    small_units(monkeypatch)
    for name, first in (("a", "good"), ("b", "poison"), ("c", "good")):
        (inputs / f"{name}.jsonl").write_bytes(texts(first, "x" * 10_000))
    run(engine="streaming", output=tmp_path / "fresh")

    def answer(process: int, document: str) -> None:
        if document == "poison":
            os.kill(process, signal.SIGKILL)

    with Gate(answer) as gate, monkeypatch.context() as poisoned:
        asking(gate, poisoned, tmp_path)
        with pytest.raises(
            WorkerError, match=r"^1 unit\(s\) failed 3 times and were set aside: unit 00001: .*signal 9"
        ):
            run(engine="ultra", num_workers=1)
    assert gate.asked.count("poison") == 3
    assert sorted(path.name for path in (tmp_path / "out" / "units").glob("?????.json")) == ["00000.json", "00002.json"]
    run(engine="streaming")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


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
        asking(gate, held, tmp_path)
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
    for cost in ("SINGLE_BYTES", "PROCESS_BYTES"):
        monkeypatch.setattr(f"tokenmill.engines.budget.{cost}", 1)
    result = run(engine="ultra", num_workers=1, max_memory="2MB", **options)
    assert caplog.text.count("over its share of memory: replaced at a checkpoint") >= 2
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    assert_reports_agree(result)


# what is seen of a run


@EVERY
@pytest.mark.usefixtures("blocks")
def test_progress_is_live(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """No unit can be committed before a report of half-done ones has arrived; in the end all reports add up."""
    receipts = tmp_path / "out" / "units"
    reported = threading.Event()
    seen: list[tuple[int, int]] = []

    class Watched(Meter):
        def add(self, ledger: Ledger, consumed: int) -> None:
            super().add(ledger, consumed)
            if 0 < self.done_bytes < self.total_bytes and not list(receipts.glob("?????.json")):
                seen.append((self.done_bytes, self.ledger.documents))
                reported.set()

    def answer(_: int, document: str) -> None:
        if document == HOLD:
            reported.wait(PATIENCE_SECONDS)

    monkeypatch.setattr(execute, "Meter", Watched)
    with Gate(answer) as gate:
        asking(gate, monkeypatch, tmp_path)
        mishaps.ask(gate.address, monkeypatch.setattr)
        result = run(engine=engine, num_workers=2, **BLOCK_OPTIONS)
    assert len(seen) >= 10
    assert seen == sorted(seen)
    assert all(0 < documents < result.ledger.documents for _, documents in seen)
    assert_reports_agree(result)
    assert result.meter.workers.keys() == ({0, 1} if engine == "ultra" else set())
    assert all(memory > 10_000_000 for _, memory in result.meter.workers.values())


# memory

# Not ru_maxrss, which a process inherits from the one that started it.
PEAKS = """
import sys, tokenmill
from pathlib import Path
engine, tokenizer, folder = sys.argv[1:]
for count in ("4", "12"):
    source, output = Path(folder, "in", count), Path(folder, f"out{count}")
    options = {"engine": engine, "tokenizer": tokenizer, "batch_size": 1000}
    tokenmill.run(tokenmill.Config(inputs=(str(source),), output=output, **options))
    print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("engine", ["enhanced", "streaming", "extreme"])
def test_memory_does_not_grow_with_the_corpus(inputs: Path, tmp_path: Path, tiny_tokenizer: str, engine: str) -> None:
    """The old fault of enhanced.

    The smaller input is large enough to fill every buffer; if the larger one's text and tokens (a token a byte here)
    were kept, that would be 100 MB and more.
    """
    rng = random.Random(6)
    lines = texts(*(rng.randbytes(1000).hex() for _ in range(1500)))
    for count in (4, 12):
        (inputs / str(count)).mkdir()
        for n in range(count):
            (inputs / str(count) / f"{n}.jsonl").write_bytes(lines)
    command = [sys.executable, "-c", PEAKS, engine, tiny_tokenizer, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10 * PATIENCE_SECONDS)
    first, second = map(int, done.stdout.split())
    assert second < first + 40_000  # kB; the input grows by 24 MB
