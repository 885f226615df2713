"""Reading that fails, clocks that jump, locks that are left, machines that change, bombs and other hostile input."""

from __future__ import annotations

import errno
import gc
import gzip
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

import tokenmill
from tests.conftest import Run, documents, jsonl, rejects, texts, tree
from tokenmill.check.verify import ALL, verify
from tokenmill.config import ENGINES
from tokenmill.errors import Interrupted

LINES = texts(*(f"line {n} " + "x" * 200 for n in range(2000)))


class FailingFile(io.FileIO):
    """A file on a disk that goes bad: everything from a position on cannot be read."""

    broken_from = 0
    error = errno.EIO

    def _check(self) -> None:
        if self.tell() >= self.broken_from:
            raise OSError(self.error, os.strerror(self.error))

    def read(self, size: int | None = -1) -> bytes:
        self._check()
        return super().read(-1 if size is None else size) or b""

    def readinto(self, buffer: Any) -> int:
        self._check()
        return super().readinto(buffer) or 0


def break_file(
    monkeypatch: pytest.MonkeyPatch, name: str, broken_from: int, error: int, kind: type[FailingFile] = FailingFile
) -> None:
    original = Path.open

    def opened(self: Path, mode: str = "r", buffering: int = -1, **options: Any) -> Any:
        if self.name != name or mode != "rb" or buffering != 0:  # whoever plans may still look at it
            return original(self, mode, buffering, **options)
        file = kind(self, "rb")
        file.broken_from, file.error = broken_from, error
        return file

    monkeypatch.setattr(Path, "open", opened)


IN_PROCESS = [name for name in ENGINES if name != "ultra"]  # whose workers cannot be given a broken file


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("broken_from", [0, 3000])
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("engine", IN_PROCESS)
def test_a_file_that_cannot_be_read_to_its_end_leaves_nothing_behind_and_is_read_later(
    inputs: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    broken_from: int,
    suffix: str,
    engine: str,
) -> None:
    import random

    noise = random.Random(1).randbytes(20_000).hex()
    (inputs / "a.jsonl").write_bytes(texts("before"))
    lines = texts(*[noise] * 30, "end")
    (inputs / f"b.jsonl{suffix}").write_bytes(gzip.compress(lines) if suffix else lines)
    (inputs / "c.jsonl").write_bytes(texts("after"))
    options = {"engine": engine, "seq_len": 64}
    run(output=tmp_path / "fresh", **options)
    with monkeypatch.context() as broken:
        break_file(broken, f"b.jsonl{suffix}", broken_from, error)
        result = run(**options)
    assert list(result.missing) == [f"b.jsonl{suffix}"]
    assert os.strerror(error) in result.missing[f"b.jsonl{suffix}"]
    assert documents(tmp_path / "out") == [b"before", b"after"]
    assert run(**options).complete
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


class ShrinkingFile(FailingFile):
    """A file that another program cuts off as soon as some of it is read."""

    def _check(self) -> None:
        if self.tell() >= self.broken_from:
            os.truncate(self.name, self.broken_from)


@pytest.mark.parametrize("engine", IN_PROCESS)
def test_a_file_that_is_cut_off_while_it_is_read_is_named_and_nothing_of_it_is_mixed_in(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("before"))
    (inputs / "b.jsonl").write_bytes(LINES * 10)
    with monkeypatch.context() as broken:
        break_file(broken, "b.jsonl", 1 << 20, 0, ShrinkingFile)
        result = run(engine=engine)
    assert "changed while it was read" in result.missing["b.jsonl"]
    assert documents(tmp_path / "out") == [b"before"]


def test_a_clock_that_jumps_changes_nothing(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inputs / "a.jsonl").write_bytes(LINES)
    run(output=tmp_path / "fresh")
    jumps = iter([1e9, 0.0, 4e9, 1.0] * 10_000)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    run()
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def interrupt(tmp_path: Path, tiny_tokenizer: str, **options: Any) -> None:
    """Stop a run after its first chunks."""
    stop = threading.Event()
    config = tokenmill.Config(
        inputs=(str(tmp_path / "in"),), output=tmp_path / "out", tokenizer=tiny_tokenizer, seq_len=8, **options
    )

    def watch() -> None:
        while not list((tmp_path / "out").glob("units/*.checkpoint.json")):
            time.sleep(0.001)
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    with pytest.raises(Interrupted):
        tokenmill.run(config, stop=stop)


def test_a_restart_on_another_machine_goes_on_where_the_first_stopped(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str
) -> None:
    """Other folders, a lock that nobody holds, logs of another host: none of it decides anything."""
    (inputs / "a.jsonl.gz").write_bytes(gzip.compress(LINES * 5))
    options = {"sequences_per_chunk": 500, "engine": "streaming"}
    run(output=tmp_path / "fresh", **options)
    interrupt(tmp_path, tiny_tokenizer, **options)
    assert list((tmp_path / "out" / "units").glob("*.checkpoint.json"))
    there = tmp_path / "another" / "machine"
    shutil.copytree(tmp_path / "out", there / "tokens")
    shutil.copytree(inputs, there / "texts")
    (there / "tokens" / "logs" / "lock").write_text("host elsewhere, process 1")
    run(inputs=(str(there / "texts"),), output=there / "tokens", **options | {"engine": "extreme"})
    assert tree(there / "tokens") == tree(tmp_path / "fresh")


# bombs and other hostile content

# Not ru_maxrss, which a process inherits from the one that started it.
PEAK = """
import sys, tokenmill
tokenmill.run(tokenmill.Config(inputs=(sys.argv[1],), output=sys.argv[2], engine=sys.argv[3], max_rejects="100%"))
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def bomb(line_bytes: int) -> bytes:
    """One line of so many bytes between two good ones, as zstd."""
    compressor = zstd.ZstdCompressor(level=3)
    letters = b"a" * (1 << 20)
    pieces = [compressor.compress(texts("before") + b'{"text": "')]
    pieces += [compressor.compress(letters) for _ in range(line_bytes >> 20)]
    return b"".join([*pieces, compressor.compress(b'"}\n' + texts("after")), compressor.flush()])


@pytest.mark.parametrize("engine", ["streaming", "extreme"])
def test_a_decompression_bomb_is_a_reject_within_the_budget(inputs: Path, tmp_path: Path, engine: str) -> None:
    data = bomb(2 << 30)
    assert len(data) < 400_000
    (inputs / "bomb.jsonl.zst").write_bytes(data)
    command = [sys.executable, "-c", PEAK, str(inputs), str(tmp_path / "out"), engine]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 600_000_000
    (reject,) = rejects(tmp_path / "out")
    assert reject["reason"] == "too_large"
    assert reject["line"] == 2
    assert "2,147,483,6" in reject["detail"]
    assert tokenmill.open(tmp_path / "out").manifest["ledger"]["documents"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_many_empty_documents_are_counted(inputs: Path, tmp_path: Path, run: Run, engine: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("first") + b'{"text": ""}\n' * 200_000 + texts("last"))
    result = run(engine=engine)
    assert (result.ledger.documents, result.ledger.empty) == (2, 200_000)
    assert documents(tmp_path / "out") == [b"first", b"last"]


def test_no_text_can_forge_a_special_token_whatever_the_batch(inputs: Path, tmp_path: Path, run: Run) -> None:
    """Every special token of the bundled tokenizer, in every surrounding, in blocks and batches of every size."""
    vocabulary = json.loads(Path(tokenmill.__file__).with_name("data").joinpath("gpt-neox-20b.json").read_text())
    special = {t["content"]: t["id"] for t in vocabulary["added_tokens"] if t["special"]}
    assert len(special) >= 2
    forms = [form.format(t) for t in special for form in ("{0}", "a{0}b", " {0} ", "{0}{0}", "\n{0}\n", "<{0}>")]
    halves = [part for t in special for part in (t[: len(t) // 2], t[len(t) // 2 :])]  # of two documents in a row
    (inputs / "a.jsonl").write_bytes(texts(*forms, *halves) * 50)
    expected = None
    for batch in (1, 2, 7, 1000):
        output = tmp_path / f"out{batch}"
        run(output=output, tokenizer="gpt-neox-20b", batch_size=batch, engine="streaming", seq_len=128)
        for document in tokenmill.open(output).documents():
            assert not set(document.tokens[:-1].tolist()) & set(special.values())
        assert expected in (None, tree(output))
        expected = tree(output)
        assert verify(output, against_source=ALL).good


def test_nothing_is_unpickled_or_evaluated(inputs: Path, tmp_path: Path, run: Run) -> None:
    """A pickle that would write a file, as every kind of input."""
    target = tmp_path / "ran"
    program = f"cposix\nsystem\n(S'touch {target}'\ntR.".encode()
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.txt"):
        (inputs / name).write_bytes(program)
    (inputs / "e.jsonl").write_bytes(jsonl({"text": "__import__('os').system('touch ran')"}))
    run()
    assert not target.exists()
    assert len(documents(tmp_path / "out")) == 2  # the text file, and the last one


def test_the_output_never_leaves_its_directory(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a..jsonl").write_bytes(texts("a"))
    (inputs / "%2e%2e%2fx.jsonl").write_bytes(texts("b"))
    before = {p for p in tmp_path.rglob("*") if "out" not in p.parts}
    run()
    assert {p for p in tmp_path.rglob("*") if "out" not in p.relative_to(tmp_path).parts} == before


def test_descriptors_are_given_back(inputs: Path, tmp_path: Path, run: Run) -> None:
    for n in range(30):
        (inputs / f"{n}.jsonl").write_bytes(texts("a"))
    run(output=tmp_path / "warm")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 25, limits[1]))
    try:
        for engine in ("streaming", "extreme"):
            run(output=tmp_path / engine, engine=engine)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= used


# a disk that is full

PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many pages, or gives the one that was made as many."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root only; test_interruption.py has the disk full without")

    def resize(pages: int) -> Path:
        subprocess.run(["mount", "-o", f"remount,size={pages * PAGE}", str(path)], check=True)
        return path / "out"

    yield resize
    gc.collect()  # the plan's file is closed with the plan
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_disk_that_fills_up_anywhere_is_a_clear_error_and_with_room_the_job_goes_on(
    inputs: Path, tmp_path: Path, run: Run, small_disk: Callable[[int], Path], engine: str
) -> None:
    """From a disk on which nothing fits to one on which all does: so it fills up in every file there is."""
    (inputs / "a.jsonl").write_bytes(LINES[:60_000] + b"no JSON\n")
    (inputs / "b.jsonl").write_bytes(LINES[:20_000])
    options = {"engine": engine, "num_workers": 2, "seq_len": 64, "sequences_per_chunk": 64, "max_rejects": "100%"}
    run(output=tmp_path / "fresh", **options)
    said = set()
    for pages in range(2, 200, 3 if engine == "streaming" else 23):
        output = small_disk(pages)
        try:
            run(output=output, **options)
            break
        except tokenmill.OutputError as error:
            said.add(str(error).split(":")[0])
            assert os.strerror(errno.ENOSPC) in str(error)
        assert not (output / "manifest.json").exists()
        small_disk(1000)
        assert run(output=output, **options).complete
        assert tree(output) == tree(tmp_path / "fresh")
        assert verify(output).good
        shutil.rmtree(output)
    assert tree(output) == tree(tmp_path / "fresh")
    assert said == {f"cannot write unit 00000 to {output}", f"cannot write to {output}"}
