"""The contract of engines: the same bytes from each, whatever the workers, the interruptions and the order."""

from __future__ import annotations

import bz2
import gzip
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from tests.conftest import Run, jsonl, texts, tree
from tokenmill.config import ENGINES, RejectLimit
from tokenmill.encode.encoder import FastokensEncoder
from tokenmill.errors import Interrupted, TokenizerError, WorkerError
from tokenmill.progress import Meter
from tokenmill.records import TokenBatch

EVERY = pytest.mark.parametrize("engine", ENGINES)
WAYS = [(engine, workers) for engine in ("ultra", "extreme") for workers in (1, 2, 3, 7)]
OPTIONS: dict[str, Any] = {"sequences_per_chunk": 500, "id_field": "id", "seq_len": 16}


@pytest.fixture
def corpus(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every format, several units, bad records among them, ranges of a big file and of a big Parquet file."""
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 30_000)
    monkeypatch.setattr("tokenmill.plan.cut.FILE_COST_BYTES", 0)
    rng = random.Random(4)

    def records(count: int) -> list[dict[str, Any]]:
        return [{"id": n, "text": "".join(rng.choices("abc dé", k=rng.randrange(0, 400)))} for n in range(count)]

    bad = b"broken\n" + b'{"text": 3}\n' + b"\n" + b'{"text": "\xff"}\n' + texts("a <|endoftext|> b")
    (inputs / "a.jsonl").write_bytes(jsonl(*records(400)) + bad + jsonl(*records(400)))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(*records(300)) + bad))
    (inputs / "c.jsonl.gz").write_bytes(gzip.compress(jsonl(*records(300)))[:-2000])
    (inputs / "d.jsonl.zst").write_bytes(zstd.compress(jsonl(*records(300))) * 2)
    (inputs / "e.jsonl.bz2").write_bytes(bz2.compress(jsonl(*records(100))))
    pq.write_table(pa.Table.from_pylist(records(500)), inputs / "f.parquet", row_group_size=50)
    (inputs / "g.txt").write_text("one document\n")
    (inputs / "h.jsonl").write_bytes(b"")
    return inputs


@pytest.fixture
def expected(corpus: Path, tmp_path: Path, run: Run) -> dict[str, bytes]:  # noqa: ARG001 - it must be there
    result = run(engine="enhanced", output=tmp_path / "expected", **OPTIONS)
    assert len(tokenmill.open(tmp_path / "expected").manifest["units"]) > 8
    assert result.ledger.rejected == 7
    return tree(tmp_path / "expected")


def test_one_worker_or_seven_give_the_same_bytes(expected: dict[str, bytes], tmp_path: Path, run: Run) -> None:
    for engine, workers in [("streaming", 1), *WAYS]:
        output = tmp_path / f"{engine}-{workers}"
        run(engine=engine, num_workers=workers, output=output, **OPTIONS)
        assert tree(output) == expected, f"{engine} with {workers} workers"


@pytest.fixture
def one_file(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files, the second one of some hundred blocks, which threads without a file of their own help with."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 512)
    monkeypatch.setattr("tokenmill.read.ring.BUFFER_BYTES", 1024)
    rng = random.Random(5)
    (inputs / "a.jsonl").write_bytes(texts("short"))
    lines = texts(*("".join(rng.choices("abc dé", k=rng.randrange(1, 300))) for _ in range(600)))
    (inputs / "b.jsonl").write_bytes(lines)
    return inputs


def encode_slowly(monkeypatch: pytest.MonkeyPatch, fail_at: int = -1) -> set[str]:
    """Blocks finish in any order; the names of the threads that encoded."""
    right, rng, calls, threads = FastokensEncoder.encode, random.Random(6), itertools.count(), set()

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        threads.add(threading.current_thread().name)
        time.sleep(rng.random() * 0.01)
        if next(calls) == fail_at:
            raise TokenizerError("no more")
        return right(self, texts)

    monkeypatch.setattr(FastokensEncoder, "encode", encode)
    return threads


@pytest.mark.parametrize("workers", [2, 7])
def test_threads_of_extreme_share_the_blocks_of_one_file_and_keep_their_order(
    one_file: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    assert one_file.exists()
    run(engine="streaming", output=tmp_path / "expected", seq_len=16)
    threads = encode_slowly(monkeypatch)
    run(engine="extreme", num_workers=workers, seq_len=16)
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    assert len([name for name in threads if name.startswith("tokenmill-encode")]) == workers


@pytest.mark.parametrize("fail_at", [60, 61, 62, 63])
def test_a_block_that_fails_on_any_thread_of_extreme_ends_the_run_and_leaves_none(
    one_file: Path, run: Run, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    assert one_file.exists()
    encode_slowly(monkeypatch, fail_at)
    with pytest.raises(TokenizerError, match="no more"):
        run(engine="extreme", num_workers=7, seq_len=16)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("tokenmill-")]


@pytest.mark.parametrize("mode", ["reject", "match"])
def test_special_tokens_are_the_same_in_every_engine(corpus: Path, tmp_path: Path, run: Run, mode: str) -> None:
    (corpus / "s.jsonl.gz").write_bytes(gzip.compress(texts(*("x" * n + "<|endoftext|>" for n in range(400)))))
    trees = []
    for engine in ENGINES:
        output = tmp_path / engine
        run(engine=engine, num_workers=2, output=output, special_tokens_in_text=mode, **OPTIONS)
        trees.append(tree(output))
    assert all(t == trees[0] for t in trees)


def test_a_batch_that_completes_no_row_is_no_place_to_go_on_from(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str
) -> None:
    """The row began in the file before, and what there is of it is on no disk."""
    for name, text in (("a", "A" * 100), ("b", "bcd"), ("c", "C" * 100)):
        (inputs / f"{name}.jsonl").write_bytes(texts(text))

    class StopInTheSecondFile:
        calls = 0

        def is_set(self) -> bool:
            self.calls += 1
            return self.calls == 2

    config = tokenmill.Config(
        inputs=(str(inputs),), output=tmp_path / "out", tokenizer=tiny_tokenizer, engine="enhanced", seq_len=64
    )
    with pytest.raises(Interrupted):
        tokenmill.run(config, stop=cast(threading.Event, StopInTheSecondFile()))
    run(engine="enhanced", seq_len=64)
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
    expected: dict[str, bytes], tmp_path: Path, run: Run, tiny_tokenizer: str, corpus: Path, engine: str
) -> None:
    output = tmp_path / "out"
    config = tokenmill.Config(
        inputs=(str(corpus),), output=output, tokenizer=tiny_tokenizer, engine=engine, num_workers=2, **OPTIONS
    )
    for count in (1, 4):
        with pytest.raises(Interrupted):
            tokenmill.run(config, stop=cast(threading.Event, StopAt(output, count)))
        assert not (output / "manifest.json").exists()
    other = ENGINES[(ENGINES.index(engine) + 1) % len(ENGINES)]
    run(engine=other, num_workers=3, **OPTIONS)
    assert tree(output) == expected


@EVERY
def test_a_missing_file_is_the_same_in_every_engine(corpus: Path, tmp_path: Path, run: Run, engine: str) -> None:
    (corpus / "b2.jsonl").symlink_to(tmp_path / "nowhere")
    result = run(engine=engine, num_workers=2, **OPTIONS)
    assert list(result.missing) == ["b2.jsonl"]


@EVERY
def test_too_many_rejects_stop_every_engine(corpus: Path, run: Run, engine: str) -> None:
    assert corpus.exists()
    with pytest.raises(tokenmill.RejectLimitError):
        run(engine=engine, num_workers=2, **OPTIONS | {"max_rejects": 0})


@EVERY
def test_a_disk_that_fails_is_a_clear_error_in_every_engine(
    corpus: Path, tmp_path: Path, tiny_tokenizer: str, engine: str
) -> None:
    command = [sys.executable, "-m", "tokenmill", "run", corpus, tmp_path / "out", "--tokenizer", tiny_tokenizer]
    shell = " ".join(map(str, [*command, "--engine", engine, "--num-workers", 2, "--max-rejects", "100%"]))
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 60; exec {shell}"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr


def children() -> list[int]:
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


class Killer(threading.Thread):
    """Kills workers of this process with -9, as an out-of-memory killer would."""

    def __init__(self, output: Path, most: int) -> None:
        super().__init__(daemon=True)
        self._chunks = output / "chunks"
        self._most = most
        self.killed = 0
        self.done = False

    def run(self) -> None:
        while not self.done and self.killed < self._most:
            if self._chunks.exists():
                for child in children()[: self._most - self.killed]:
                    os.kill(child, signal.SIGKILL)
                    self.killed += 1
            time.sleep(0.005)


def test_a_killed_worker_changes_nothing_but_the_time(
    expected: dict[str, bytes], tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    killer = Killer(tmp_path / "out", most=2)
    killer.start()
    run(engine="ultra", num_workers=2, **OPTIONS)
    killer.done = True
    killer.join()
    assert killer.killed == 2
    assert "was killed by signal 9" in caplog.text
    assert tree(tmp_path / "out") == expected


def test_a_unit_that_keeps_failing_is_set_aside_and_can_be_run_later(
    expected: dict[str, bytes], tmp_path: Path, run: Run
) -> None:
    killer = Killer(tmp_path / "out", most=10_000)
    killer.start()
    with pytest.raises(WorkerError, match=r"failed 3 times and were set aside.*signal 9"):
        run(engine="ultra", num_workers=2, **OPTIONS)
    killer.done = True
    killer.join()
    run(engine="ultra", num_workers=2, **OPTIONS)
    assert tree(tmp_path / "out") == expected


def test_a_worker_over_its_share_of_memory_is_replaced_and_nothing_changes(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tokenmill")
    (inputs / "a.jsonl").write_bytes(texts(*("x" * 1000 for _ in range(4000))))
    options: dict[str, Any] = {"seq_len": 16, "sequences_per_chunk": 50_000}
    run(engine="streaming", output=tmp_path / "fresh", **options)
    for cost in ("SINGLE_BYTES", "PROCESS_BYTES"):
        monkeypatch.setattr(f"tokenmill.memory.{cost}", 1)
    run(engine="ultra", num_workers=1, max_memory="2MB", **options)
    assert caplog.text.count("over its share of memory: replaced at a checkpoint") >= 2
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@EVERY
def test_ctrl_c_stops_every_engine_and_leaves_no_process(inputs: Path, tmp_path: Path, engine: str) -> None:
    rng = random.Random(5)
    words = ["".join(rng.choices("abcdefghij", k=rng.randrange(2, 9))) for _ in range(3000)]
    for part in range(4):
        records = ({"text": " ".join(rng.choices(words, k=300))} for _ in range(8000))
        (inputs / f"{part}.jsonl.gz").write_bytes(gzip.compress(jsonl(*records), 1))
    command = [sys.executable, "-m", "tokenmill", "run", str(inputs), str(tmp_path / "out"), "--engine", engine]
    command += ["--num-workers", "2", "--sequences-per-chunk", "200"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(2000):
        if list((tmp_path / "out").glob("chunks/*")):
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "run the same command again to continue" in said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_progress_of_workers_is_live(corpus: Path, tmp_path: Path, tiny_tokenizer: str) -> None:
    """Reports arrive while units run, and in the end they add up to what the receipts say."""
    seen: list[Meter] = []

    def display(meter: Meter) -> Any:
        seen.append(meter)
        return threading.Lock()

    options = OPTIONS | {"engine": "ultra", "num_workers": 2, "max_rejects": RejectLimit(share=1.0)}
    config = tokenmill.Config(inputs=(str(corpus),), output=tmp_path / "out", tokenizer=tiny_tokenizer, **options)
    result = tokenmill.run(config, display=display)
    assert seen[0].done_bytes == seen[0].total_bytes
    assert seen[0].ledger.documents == result.ledger.documents
    assert set(seen[0].workers) == {0, 1}
    assert all(memory > 10_000_000 for _, memory in seen[0].workers.values())


# Not ru_maxrss, which a process inherits from the one that started it.
PEAK = """
import sys, tokenmill
from pathlib import Path
source, output, engine, tokenizer = sys.argv[1:]
tokenmill.run(tokenmill.Config(inputs=(source,), output=Path(output), engine=engine, tokenizer=tokenizer))
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("engine", ["enhanced", "streaming", "extreme"])
def test_memory_does_not_grow_with_the_corpus(inputs: Path, tmp_path: Path, tiny_tokenizer: str, engine: str) -> None:
    """The old fault of enhanced.

    The smaller input is large enough to fill every buffer; if the larger one's text and tokens (a token a byte here)
    were kept, that would be 300 MB and more.
    """
    rng = random.Random(6)
    lines = jsonl(*({"text": "".join(rng.choices("abcdef ", k=2000))} for _ in range(2500)))
    peaks = []
    for count in (4, 16):
        folder = inputs / str(count)
        folder.mkdir()
        for n in range(count):
            (folder / f"{n}.jsonl").write_bytes(lines)
        command = [sys.executable, "-c", PEAK, folder, tmp_path / f"out{count}", engine, tiny_tokenizer]
        peaks.append(int(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout))
    assert peaks[1] < peaks[0] + 80_000  # kB; the input grows by 60 MB
