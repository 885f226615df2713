"""Interrupted anywhere, resumed, and the same to the byte."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import jsonl, tree

PROJECT = Path(__file__).parents[1]


def python(*arguments: object) -> list[str]:
    return [sys.executable, *map(str, arguments)]


@pytest.fixture
def small_job(inputs: Path) -> Path:
    """Every format, bad records, ids, several chunks."""
    rng = random.Random(1)
    records = [{"id": n, "text": "x" * rng.randrange(0, 60)} for n in range(60)]
    half = jsonl(*records[:25]) + b"broken\n" + jsonl(*records[25:30])
    (inputs / "a.jsonl").write_bytes(half)
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(*records[30:45])))
    pq.write_table(pa.Table.from_pylist(records[45:]), inputs / "c.parquet", row_group_size=4)
    return inputs


def go_wrong(*arguments: object) -> int:
    """How many steps went wrong, one after another, each mended by running again."""
    driver = python("-m", "tests.crash_driver", *arguments)
    done = subprocess.run(driver, cwd=PROJECT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(("engine", "stride"), [("streaming", 1), ("enhanced", 8)])
def test_a_crash_at_any_write_step_changes_nothing(
    small_job: Path, tmp_path: Path, tiny_tokenizer: str, engine: str, stride: int
) -> None:
    assert go_wrong(small_job, tmp_path, tiny_tokenizer, engine, stride) > 30


@pytest.mark.parametrize(("error", "stride"), [("ENOSPC", 3), ("EIO", 8), ("EROFS", 11)])
def test_a_write_step_that_fails_is_a_clear_error_and_the_job_goes_on_afterwards(
    small_job: Path, tmp_path: Path, tiny_tokenizer: str, error: str, stride: int
) -> None:
    """Chunk, sidecar, ids, rejects, checkpoint, receipt, manifest: every write, flush, rename and removal of a job."""
    assert go_wrong(small_job, tmp_path, tiny_tokenizer, "streaming", stride, error) > 9


@pytest.fixture
def big_job(inputs: Path, tmp_path: Path) -> list[str]:
    """A job of some seconds, with many chunks."""
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdefghij", k=rng.randrange(2, 9))) for _ in range(5000)]
    for part in range(3):
        records = ({"text": " ".join(rng.choices(words, k=rng.randrange(20, 400)))} for _ in range(8000))
        (inputs / f"{part}.jsonl.gz").write_bytes(gzip.compress(jsonl(*records), 1))
    return python(
        "-m", "tokenmill", "run", inputs, tmp_path / "out", "--sequences-per-chunk", 200, "--log-format", "json"
    )


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    assert callable(condition)
    for _ in range(3000):
        if condition() or process.poll() is not None:
            return
        time.sleep(0.01)
    raise AssertionError("the job did not get anywhere")


def chunks(output: Path) -> int:
    return len(list((output / "chunks").glob("*.docs.npy"))) if output.exists() else 0


KILLS = int(os.environ.get("TOKENMILL_TEST_KILLS", "50"))


def test_kills_at_random_moments_lose_nothing_whichever_engine_goes_on(big_job: list[str], tmp_path: Path) -> None:
    """The whole process group, or (ultra) first a single worker; whenever a job is done, another one is begun."""
    subprocess.run([*in_folder(big_job, "fresh"), "--engine", "streaming"], check=True, capture_output=True)
    expected = tree(tmp_path / "fresh")
    rng = random.Random(3)
    kills: Counter[str] = Counter()
    finished = 0
    while kills.total() < KILLS:
        engine = ("enhanced", "streaming", "ultra", "extreme")[kills.total() % 4]
        command = [*in_folder(big_job, f"out{finished}"), "--engine", engine, "--num-workers", "2"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(0.3 + rng.random() * 1.4)
        if engine == "ultra" and rng.random() < 0.5:
            for child in children_of(process.pid)[:1]:
                os.kill(child, signal.SIGKILL)
            time.sleep(rng.random() * 0.5)
        os.killpg(process.pid, signal.SIGKILL)
        if process.wait() == 0:
            assert tree(tmp_path / f"out{finished}") == expected
            finished += 1
        else:
            kills[engine] += 1
    subprocess.run([*in_folder(big_job, f"out{finished}"), "--engine", "ultra"], check=True, capture_output=True)
    assert tree(tmp_path / f"out{finished}") == expected
    assert set(kills) == {"enhanced", "streaming", "ultra", "extreme"}


def in_folder(job: list[str], name: str) -> list[str]:
    return [str(Path(a).with_name(name)) if a.endswith("/out") else a for a in job]


def children_of(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []  # it is done already


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_says_how_to_resume(
    big_job: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(big_job, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: chunks(tmp_path / "out") > 2, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "run the same command again to continue" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out" / "manifest.json").exists()
    again = subprocess.run(big_job, capture_output=True, text=True)
    assert again.returncode == 0


def test_a_signal_stops_even_while_one_huge_document_is_encoded(inputs: Path, tmp_path: Path) -> None:
    """12 MB of one letter keep the tokenizer busy for seconds, without a step of Python in between."""
    (inputs / "a.jsonl").write_bytes(jsonl({"text": "a" * 12_000_000}))
    command = python("-m", "tokenmill", "run", inputs, tmp_path / "out")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "out" / "units").exists(), process)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to continue" in said


def test_temporary_files_of_a_dead_run_are_cleaned_up(tmp_path: Path, big_job: list[str]) -> None:
    process = subprocess.Popen(big_job, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: chunks(tmp_path / "out") > 1, process)
    process.kill()
    process.communicate()
    (tmp_path / "out" / "tmp" / "leftover").write_text("x")
    subprocess.run(big_job, check=True, capture_output=True)
    assert not (tmp_path / "out" / "tmp").exists()
    assert not list((tmp_path / "out" / "units").glob("*checkpoint*"))


def test_a_second_process_in_the_directory_is_refused(big_job: list[str], tmp_path: Path) -> None:
    first = subprocess.Popen(big_job, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: chunks(tmp_path / "out") > 1, first)
    first.send_signal(signal.SIGSTOP)  # or it might be done before the second one looks
    second = subprocess.run(big_job, capture_output=True, text=True)
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=120)
    assert second.returncode == 1
    assert "another run is writing" in second.stderr
    assert first.returncode == 0


def test_a_full_disk_is_a_clear_error_and_the_job_goes_on_afterwards(big_job: list[str], tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the middle of a chunk."""
    big_job = [*big_job, "--sequences-per-chunk", "2000"]  # larger than the tokenizer, which is written first
    limited = ["bash", "-c", f"trap '' XFSZ; ulimit -f 3000; exec {' '.join(big_job)}"]
    stopped = subprocess.run(limited, capture_output=True, text=True)
    assert stopped.returncode == 1
    assert "cannot write unit" in stopped.stderr
    assert "run the same command again" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    subprocess.run(big_job, check=True, capture_output=True)
    fresh = [a if a != str(tmp_path / "out") else str(tmp_path / "fresh") for a in big_job]
    subprocess.run(fresh, check=True, capture_output=True)
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
