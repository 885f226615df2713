"""`--read mmap`: the same bytes, blocks that are slices of the file, and a run that a file kills is continued."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import MakeConfig, Run, texts, tree
from tests.engines.conftest import EVERY
from tests.support import mishaps
from tests.support.processes import python
from tests.support.stops import LookAfterEachBlock
from tokenmill.config import ReadOptions
from tokenmill.errors import DifferentJobError, Interrupted
from tokenmill.output import layout
from tokenmill.read import lines
from tokenmill.read.block import ReadingWay
from tokenmill.read.formats import open_reader
from tokenmill.read.jsonl import LinesBlock
from tokenmill.read.sniff import inspect_file
from tokenmill.records import Part
from tokenmill.storage.local import LocalStorage

MAPPED = ReadingWay(mapped=True)


@pytest.fixture
def corpus(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lines that end and do not end in what is mapped at a time, in ranges; a text file, an empty and a packed one."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 64)
    monkeypatch.setattr("tokenmill.read.lines.MAP_BYTES", 300)
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 2000)
    (inputs / "a.jsonl").write_bytes(texts(*("x" * (n % 90) for n in range(200)), "y" * 1000, *["z"] * 50) + b"junk")
    (inputs / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + texts("bom") + b"\n\n")
    (inputs / "c.txt").write_bytes(b"\xef\xbb\xbfa text")
    (inputs / "d.txt").write_bytes(b"")
    (inputs / "e.jsonl").write_bytes(b"")
    (inputs / "f.txt").write_bytes(b"bad \xff")
    return inputs


@EVERY
@pytest.mark.usefixtures("corpus")
def test_a_mapped_corpus_gives_the_same_bytes(tmp_path: Path, run: Run, engine: str) -> None:
    run(engine="enhanced", output=tmp_path / "expected")
    run(engine=engine, num_workers=2, read="mmap")
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    assert not (tmp_path / "out" / layout.MAPPED).exists()


def test_a_block_is_a_slice_of_the_map(inputs: Path) -> None:
    data = texts(*["some text"] * 10)
    (inputs / "a.jsonl").write_bytes(data)
    storage = LocalStorage(inputs)
    file = inspect_file(storage, "a.jsonl").file
    assert file is not None
    with storage.open("a.jsonl") as source:
        (block,) = open_reader(source, file, Part(0), ReadOptions(), MAPPED).blocks(None)
    assert isinstance(block, LinesBlock)
    assert isinstance(block.lines.data, memoryview)
    with (inputs / "a.jsonl").open("r+b") as changed:  # what is changed in place shows: it is the file, not a copy
        changed.write(b"?")
    assert bytes(block.lines.data) == b"?" + data[1:]


def test_only_a_stretch_of_a_file_is_mapped_at_a_time() -> None:
    assert lines.MAP_BYTES >= 16 * lines.BLOCK_BYTES
    assert lines.MAP_BYTES <= 1 << 28


KILL = """
import os
from tokenmill.storage.local import LocalSource
right = LocalSource.map

def map_and_cut_off(self, start, end):
    view = right(self, start, end)
    if end - start > 100_000:
        os.truncate(self.name, 0)
    return view

LocalSource.map = map_and_cut_off
"""


@EVERY
def test_a_run_that_a_mapped_file_kills_is_continued_and_the_next_run_says_so(
    inputs: Path,
    tmp_path: Path,
    config: MakeConfig,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    engine: str,
) -> None:
    big = texts(*["some text of a line"] * 5_000)
    (inputs / "a.jsonl").write_bytes(texts("first"))
    (inputs / "b.jsonl").write_bytes(big)
    run(engine="streaming", output=tmp_path / "expected")
    made = config(read="mmap")
    command = python("-m", "tokenmill", "run", inputs, made.output, "--tokenizer", made.tokenizer, "--seq-len", 8)
    command += ["--read", "mmap", "--engine", engine, "--max-rejects", "100%"]
    with monkeypatch.context() as patch:
        mishaps.in_new_processes(patch, tmp_path, KILL)
        ended = subprocess.run(command, stderr=subprocess.PIPE, check=False, text=True)
    if engine == "ultra":  # only a worker is killed; its unit is done again without the file, which changed
        assert ended.returncode == 3
        assert f"killed by signal {signal.SIGBUS.value} (a file that was mapped by --read mmap" in ended.stderr
        assert not (made.output / layout.MAPPED).exists()
    else:
        assert ended.returncode == -signal.SIGBUS
        assert (made.output / layout.MAPPED).exists()
    killed = engine != "ultra"
    if killed:  # as long as the file is not what it was, the job cannot be continued, and that is said, too
        with caplog.at_level(logging.WARNING), pytest.raises(DifferentJobError, match=r"input changed: b\.jsonl"):
            run(engine=engine)
        assert "with --read mmap and was killed" in caplog.text
    caplog.clear()
    (inputs / "b.jsonl").write_bytes(big)
    with caplog.at_level(logging.WARNING):
        run(engine=engine)
    assert ("with --read mmap and was killed" in caplog.text) is killed
    assert tree(made.output) == tree(tmp_path / "expected")
    assert not (made.output / layout.MAPPED).exists()


def test_a_file_that_is_shorter_than_planned_when_it_is_mapped_is_named(inputs: Path, tmp_path: Path) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a" * 100))
    with LocalStorage(inputs).open("a.jsonl") as source:
        size = source.stat.size
        os.truncate(inputs / "a.jsonl", 10)
        with pytest.raises(OSError, match="shorter than it was"):
            source.map(0, size)
    assert tmp_path.exists()


def test_a_run_that_is_interrupted_was_not_killed(
    inputs: Path, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 64)
    (inputs / "a.jsonl").write_bytes(texts(*["some text"] * 100))
    stop = LookAfterEachBlock(stop_after=3)
    with pytest.raises(Interrupted):
        run(engine="streaming", read="mmap", stop=stop)
    with caplog.at_level(logging.WARNING):
        run(engine="streaming", read="mmap")
    assert "killed" not in caplog.text
