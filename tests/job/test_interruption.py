"""Interrupted anywhere, resumed, and the same to the byte."""

from __future__ import annotations

import gzip
import json
import os
import random
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import jsonl, texts, tree
from tests.support.processes import PROJECT, python
from tests.support.whole import faults
from tokenmill.config import ENGINES
from tokenmill.job.interrupt import GRACE_SECONDS


@pytest.fixture
def small_job(inputs: Path) -> Path:
    """Every format, bad records, ids; two units, of three chunks and of two."""
    rng = random.Random(1)
    records = [{"id": n, "text": "x" * rng.randrange(0, 60)} for n in range(44)]
    half = jsonl(*records[:15]) + b"broken\n" + jsonl(*records[15:20])
    (inputs / "a.jsonl").write_bytes(half)
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(*records[20:29])))
    pq.write_table(pa.Table.from_pylist(records[29:]), inputs / "c.parquet", row_group_size=4)
    return inputs


def go_wrong(*arguments: object) -> int:
    """How many steps went wrong, one after another, each fixed by running again."""
    driver = python("-m", "tests.support.crash_driver", *arguments)
    done = subprocess.run(driver, cwd=PROJECT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(("engine", "stride", "least"), [("streaming", 1, 130), ("enhanced", 8, 35)])
def test_a_crash_at_any_write_step_changes_nothing(
    small_job: Path, tmp_path: Path, tiny_tokenizer: str, engine: str, stride: int, least: int
) -> None:
    assert go_wrong(small_job, tmp_path, tiny_tokenizer, engine, stride) >= least


@pytest.mark.parametrize(("error", "stride"), [("ENOSPC", 3), ("EIO", 8), ("EROFS", 10)])
def test_a_write_step_that_fails_is_a_clear_error_and_the_job_goes_on_afterwards(
    small_job: Path, tmp_path: Path, tiny_tokenizer: str, error: str, stride: int
) -> None:
    """Chunk, sidecar, ids, rejects, checkpoint, receipt, manifest: writes, flushes, renames and removals of a job."""
    assert go_wrong(small_job, tmp_path, tiny_tokenizer, "streaming", stride, error) > 9


KILLS = int(os.environ.get("TOKENMILL_TEST_KILLS", "50"))


def test_kills_at_random_moments_lose_nothing_whichever_engine_goes_on(
    inputs: Path, tmp_path: Path, tiny_tokenizer: str
) -> None:
    """The whole process group, or (ultra) first a single worker; whenever a job is done, another one is begun."""
    rng = random.Random(2)
    letters = "".join(rng.choices("abcdefghij  ", k=200_000))
    for part in range(3):
        starts = (rng.randrange(len(letters) - 2000) for _ in range(1500))
        records = ({"text": letters[start : start + rng.randrange(2000)]} for start in starts)
        (inputs / f"{part}.jsonl.gz").write_bytes(gzip.compress(jsonl(*records), 1))
    driver = python("-m", "tests.support.kill_driver", inputs, tmp_path, tiny_tokenizer, KILLS)
    done = subprocess.run(driver, cwd=PROJECT, capture_output=True, text=True, timeout=60 + 20 * KILLS)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["kills"]) == set(ENGINES)
    assert sum(told["kills"].values()) == KILLS
    for engine in ENGINES:
        assert told["at_work"][engine] >= told["kills"][engine] // 4, told


@pytest.fixture
def job(inputs: Path, tmp_path: Path, tiny_tokenizer: str) -> list[str]:
    """The arguments of a run over four files, each of which gives some chunks and is read at once."""
    for name in "abcd":
        (inputs / f"{name}.jsonl.gz").write_bytes(gzip.compress(texts(*(f"{name} {n} " * 20 for n in range(40)))))
    options = ("--tokenizer", tiny_tokenizer, "--seq-len", 64, "--sequences-per-chunk", 12, "--engine", "streaming")
    return [str(a) for a in ("run", inputs, tmp_path / "out", *options, "--log-format", "json")]


IN_THE_SECOND_FILE = "00000-0006.docs.npy"  # each gives four chunks and a part of a fifth
STUCK = 120  # seconds, after which a process is taken to hang; tests/engines has how soon it stops


def tokenmill(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(python("-m", "tokenmill", *arguments), capture_output=True, text=True, timeout=STUCK)


Process = subprocess.Popen[str]
Stopped = Callable[[str, object, list[str]], Process]


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    """Starts runs that stop themselves, see tests.support.self_stopping, and returns when they have."""
    with ExitStack() as processes:

        def start(how: str, what: object, arguments: list[str]) -> Process:
            command = python("-m", "tests.support.self_stopping", how, what, *arguments)
            process = processes.enter_context(Process(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True))
            processes.callback(process.kill)
            found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert found is not None
            assert found.si_code == os.CLD_STOPPED, process.communicate()[1]
            return process

        yield start


def go_on(process: Process) -> str:
    """What it says until it ends."""
    process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=STUCK)[1]


def output_of(job: list[str], folder: Path) -> dict[str, bytes]:
    """What the same job makes in another folder if nobody disturbs it."""
    done = tokenmill([*job[:2], str(folder), *job[3:]])
    assert done.returncode == 0, done.stderr
    return tree(folder)


def chunks(output: Path) -> int:
    return len(list((output / "chunks").glob("*.docs.npy")))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_says_how_to_resume(
    job: list[str], stopped: Stopped, tmp_path: Path, number: signal.Signals
) -> None:
    """It comes in the middle of the second file, which is one block, and no other block is begun after it."""
    fresh = output_of(job, tmp_path / "fresh")
    process = stopped("after", IN_THE_SECOND_FILE, job)
    process.send_signal(number)
    said = go_on(process)
    assert process.returncode == 130, said
    assert "run the same command again to continue" in said
    assert "Traceback" not in said
    assert 7 <= chunks(tmp_path / "out") <= chunks(tmp_path / "fresh") // 2
    assert not [*faults(tree(tmp_path / "out"), [fresh])]
    assert not (tmp_path / "out" / "manifest.json").exists()
    again = tokenmill(job)
    assert again.returncode == 0, again.stderr
    assert tree(tmp_path / "out") == fresh


def test_a_signal_stops_even_while_one_huge_document_is_encoded(inputs: Path, stopped: Stopped, tmp_path: Path) -> None:
    """Megabytes of one letter keep the tokenizer busy for a second, without a step of Python in between.

    The run is given a tenth of a second to stop by itself, so that it need not be busy for longer.
    """
    assert GRACE_SECONDS < 2, "what is promised"
    (inputs / "a.jsonl").write_bytes(texts("a" * 4_000_000))
    encoded = tmp_path / "encoded"
    process = stopped("encoding", encoded, ["run", str(inputs), str(tmp_path / "out"), "--engine", "streaming"])
    process.send_signal(signal.SIGINT)
    said = go_on(process)
    assert process.returncode == 130, said
    assert "run the same command again to continue" in said
    assert not encoded.exists()  # it did not wait for it
    assert not any((tmp_path / "out" / "units").glob("*.json"))


def test_temporary_files_of_a_dead_run_are_cleaned_up(job: list[str], stopped: Stopped, tmp_path: Path) -> None:
    process = stopped("after", "00000.checkpoint.json", job)
    process.kill()
    process.communicate()
    (tmp_path / "out" / "tmp" / "leftover").write_text("x")
    (tmp_path / "out" / "tmp" / "00000-0001.npy").write_text("a chunk that was begun after the checkpoint")
    (tmp_path / "out" / "tmp" / "00001-0000.npy").write_text("of a unit that no checkpoint tells of")
    again = tokenmill(job)
    assert again.returncode == 0, again.stderr
    assert tree(tmp_path / "out") == output_of(job, tmp_path / "fresh")
    assert {p.name for p in (tmp_path / "out").iterdir() if p.is_dir()} == {"chunks", "units", "logs"}


def test_a_second_process_in_the_directory_is_refused(job: list[str], stopped: Stopped, tmp_path: Path) -> None:
    """Whatever it wants; and the first one goes on undisturbed."""
    first = stopped("after", IN_THE_SECOND_FILE, job)
    before = tree(tmp_path / "out")
    for second in (tokenmill(job), tokenmill([*job, "--overwrite"])):
        assert second.returncode == 1
        assert "another run is writing" in second.stderr
        assert tree(tmp_path / "out") == before
    said = go_on(first)
    assert first.returncode == 0, said
    assert tree(tmp_path / "out") == output_of(job, tmp_path / "fresh")


def test_a_full_disk_is_a_clear_error_and_the_job_goes_on_afterwards(job: list[str], tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the middle of a chunk."""
    job = [*job, "--sequences-per-chunk", "200"]  # 25 kB, and larger than the tokenizer, which is written first
    limited = ["bash", "-c", f"trap '' XFSZ; ulimit -f 12; exec {shlex.join(python('-m', 'tokenmill', *job))}"]
    failed = subprocess.run(limited, capture_output=True, text=True)
    assert failed.returncode == 1
    assert "cannot write unit" in failed.stderr
    assert "run the same command again" in failed.stderr
    assert "Traceback" not in failed.stderr
    again = tokenmill(job)
    assert again.returncode == 0, again.stderr
    assert tree(tmp_path / "out") == output_of(job, tmp_path / "fresh")
