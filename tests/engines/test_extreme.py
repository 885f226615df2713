"""extreme: threads share the blocks of a unit, keep their order, and wait for each other when one fails."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, documents, texts, tree
from tests.engines.conftest import Setting, Watch, apply
from tests.support.mishaps import assert_reports_agree
from tokenmill.encode.encoder import FastokensEncoder
from tokenmill.errors import TokenizerError
from tokenmill.job.progress import Meter
from tokenmill.read import lines, ring
from tokenmill.records import TokenBatch
from tokenmill.storage.local import LocalSource, LocalStorage

TINY_BLOCKS: list[Setting] = [(lines, "BLOCK_BYTES", 512), (ring, "BUFFER_BYTES", 1024)]


@pytest.fixture
def one_file(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files, the second one of some hundred blocks, which threads without a file of their own help with."""
    apply(TINY_BLOCKS, monkeypatch)
    rng = random.Random(5)
    (inputs / "a.jsonl").write_bytes(texts("short"))
    long = texts(*("".join(rng.choices("abc dé", k=rng.randrange(1, 300))) for _ in range(300)))
    (inputs / "b.jsonl").write_bytes(long)
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
    tmp_path: Path, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk goes bad while a helping thread is at a block: nothing is taken back before that thread is done."""
    helping, taken_back = threading.Event(), threading.Event()
    order: list[str] = []
    right = FastokensEncoder.encode

    class EndlessSource(LocalSource):
        """Gives the file again and again, until the disk goes bad."""

        def readinto(self, buffer: Any) -> int:
            if helping.is_set():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.tell() == self.stat.size:
                self.seek(0)
            return super().readinto(buffer) or 0

    class Disk(LocalStorage):
        def open(self, name: str) -> LocalSource:
            return EndlessSource(self.root / name) if name == "b.jsonl" else super().open(name)

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        if is_helping() and texts != ["short"]:
            helping.set()
            taken_back.wait(0.5)  # which it must not be; so it cannot be waited for as long as it takes
            order.append("helped")
        return right(self, texts)

    bytes_before = 0

    def look(meter: Meter) -> None:
        nonlocal bytes_before
        if meter.done_bytes < bytes_before:
            order.append("taken back")
            taken_back.set()
        bytes_before = meter.done_bytes

    monkeypatch.setattr(FastokensEncoder, "encode", encode)
    result = Watch(look).run(Disk(tmp_path / "in"), engine="extreme", num_workers=2, seq_len=16, **job)
    assert list(result.missing) == ["b.jsonl"]
    assert order[0] == "helped"
    assert order[-1] == "taken back"
    assert order.count("taken back") == 1
    assert documents(tmp_path / "out") == [b"short"]
    assert_reports_agree(result)
