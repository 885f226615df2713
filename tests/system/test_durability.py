"""What a power loss leaves, looked at before anything runs again: a unit with a receipt is whole, and on disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, SmallUnits, jsonl, tree
from tests.support.power_loss import Disk, Remains
from tests.support.stops import StopWhen
from tests.support.whole import CHECKPOINT, RECEIPT, Files, faults, lost_progress
from tokenmill.errors import DifferentJobError

OPTIONS: dict[str, Any] = {"sequences_per_chunk": 16, "id_field": "id", "engine": "streaming"}


@pytest.fixture
def corpus(inputs: Path, small_units: SmallUnits, small_blocks: Callable[[int], None]) -> Path:
    """Three units: of one file with rejects, of two files, of one; each of several chunks and many blocks."""
    small_units(1000, file_cost=0)
    small_blocks(200)
    records = [{"id": n, "text": f"{n} " * (n % 9)} for n in range(100, 180)]
    (inputs / "a.jsonl").write_bytes(jsonl(*records[:8]) + b"broken\n" + jsonl(*records[8:18]) + b"broken again\n")
    (inputs / "b.jsonl").write_bytes(jsonl(*records[20:32]))
    (inputs / "c.jsonl").write_bytes(jsonl(*records[32:44]))
    (inputs / "d.jsonl").write_bytes(jsonl(*records[60:]))
    return inputs


@dataclass(frozen=True)
class Watched:
    """A run on a disk that may lose power: the output before and after it, and all that may be found in between."""

    before: Files
    after: Files
    remains: list[Remains]
    saved: Files
    """What is found if power is lost as soon as the run has ended."""


Watch = Callable[[Callable[[], object]], Watched]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk" / "out"


@pytest.fixture
def watch(out: Path) -> Watch:
    def watched(act: Callable[[], object]) -> Watched:
        before = tree(out)
        disk = Disk(out.parent)
        try:
            with disk.watched():
                act()
            return Watched(before, tree(out), disk.remains, disk.saved().below(out.name))
        finally:
            disk.close()

    return watched


# what must hold for whatever is found


def check(watched: Watched) -> None:
    """Nothing that may be found says more than is true, and all that was done is found once the run has ended."""
    versions = [watched.before, watched.after]
    for remains in watched.remains:
        files = remains.below("out")
        wrong = [*faults(files, versions), *(lost_progress(files, watched.after) if remains.least else ())]
        assert not wrong, f"power lost at: {remains.step}{'' if remains.least else ', more saved than was forced'}"
    assert {n: data for n, data in watched.saved.items() if not n.startswith("tmp/")} == watched.after


# the disk


def test_the_disk_of_these_tests_keeps_what_was_forced_to_it_and_no_more(tmp_path: Path) -> None:
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.mkdir()
    (kept / "old").write_bytes(b"old")
    (kept / "gone").write_bytes(b"gone")
    disk = Disk(tmp_path)

    def found() -> Files:
        disk.note("")
        return disk.saved().files

    before = {"kept/": b"", "kept/old": b"old", "kept/gone": b"gone"}
    with disk.watched():
        (kept / "gone").unlink()
        (kept / "new").write_bytes(b"new")
        made.mkdir()
        (made / "old").write_bytes(b"new")
        sync(made / "old")
        (made / "old").rename(kept / "old")
        assert found() == before  # neither names nor content, nor the name of the content that was forced to disk
        sync(kept)
        assert found() == {"kept/": b"", "kept/old": b"new", "kept/new": b""}  # nobody forced the content of new
        sync(kept / "new")
        assert found() == {"kept/": b"", "kept/old": b"new", "kept/new": b"new"}
        sync(tmp_path)
        assert found() == {"kept/": b"", "kept/old": b"new", "kept/new": b"new", "made/": b""}
    disk.close()
    assert before in [r.files for r in disk.remains if r.least]
    early = {"kept/": b"", "kept/old": b"new", "kept/new": b"", "made/": b""}
    assert early in [r.files for r in disk.remains if not r.least]  # saved although nobody had asked for it


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# runs that lose power

AfterLoss = Callable[[list[Remains]], Iterator[Path]]


@pytest.fixture
def after_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AfterLoss:
    """The output directories that remain, one after another, on a disk that need not be waited for."""

    def directories(remains: list[Remains]) -> Iterator[Path]:
        monkeypatch.setattr(os, "fsync", lambda _: None)
        for number, each in enumerate(remains):
            each.write(tmp_path / "found" / str(number))
            yield tmp_path / "found" / str(number) / "out"

    return directories


def some(watched: Watched, count: int) -> list[Remains]:
    """So many of what is found if nothing is saved but what was forced to disk, and as many of the others."""
    least = [r for r in watched.remains if r.least]
    more = [r for r in watched.remains if not r.least]
    return least[:: max(1, len(least) // count)] + more[:: max(1, len(more) // count)]


@pytest.mark.parametrize("engine", ["streaming", "enhanced", "extreme"])
def test_a_power_loss_at_any_step_leaves_nothing_that_is_not_whole_and_the_job_goes_on_from_there(
    corpus: Path, out: Path, watch: Watch, after_loss: AfterLoss, run: Run, engine: str
) -> None:
    assert corpus.exists()
    watched = watch(lambda: run(output=out, **OPTIONS | {"engine": engine, "num_workers": 2}))
    check(watched)
    found = [r.below("out") for r in watched.remains if r.least]
    assert {sum(bool(RECEIPT.fullmatch(name)) for name in files) for files in found} == {0, 1, 2, 3}
    assert {"manifest.json" in files for files in found} == {False, True}
    for output in after_loss(some(watched, 6)):
        run(output=output, **OPTIONS)
        assert tree(output) == watched.after


def test_a_power_loss_while_an_interrupted_job_goes_on_leaves_nothing_that_is_not_whole(
    corpus: Path, out: Path, watch: Watch, run: Run
) -> None:
    """It is lost twice: the second run begins with what the first one left, also where that is a chunk too many."""
    assert corpus.exists()
    options = OPTIONS | {"engine": "enhanced"}
    first = watch(lambda: run(output=out, **options))
    whole = [r for r in first.remains if not [*lost_progress(r.below("out"), first.after)]]
    begun = [r for r in whole if next_chunk(r.below("out"))]
    beyond = [r for r in begun if next_chunk(files := r.below("out")) in files]
    for each in begun[:: len(begun) // 3] + beyond[:: len(beyond) // 3]:
        shutil.rmtree(out)
        each.write(out.parent)
        again = watch(lambda: run(output=out, **options))
        check(again)
        assert again.after == first.after


def next_chunk(files: Files) -> str:
    """The chunk at which an interrupted unit goes on, if there is one."""
    for match in filter(None, map(CHECKPOINT.fullmatch, files)):
        return f"chunks/{match[1]}-{len(json.loads(files[match[0]])['chunks']):04d}.npy"
    return ""


def test_a_power_loss_while_a_unit_is_done_again_leaves_no_receipt_and_no_manifest_for_what_is_gone(
    corpus: Path, out: Path, watch: Watch, after_loss: AfterLoss, run: Run
) -> None:
    assert corpus.exists()
    run(output=out, **OPTIONS)
    watched = watch(lambda: run(output=out, redo=(0, 2), **OPTIONS))
    check(watched)
    for output in after_loss(some(watched, 4)):
        run(output=output, **OPTIONS)
        assert tree(output) == watched.after


def test_a_power_loss_while_a_job_is_overwritten_mixes_nothing_of_the_old_with_the_new(
    corpus: Path, out: Path, watch: Watch, after_loss: AfterLoss, run: Run
) -> None:
    assert corpus.exists()
    run(output=out, seq_len=16, **OPTIONS)
    watched = watch(lambda: run(output=out, overwrite=True, **OPTIONS))
    check(watched)
    for output in after_loss(some(watched, 4)):
        try:
            run(output=output, **OPTIONS)
        except DifferentJobError:
            run(output=output, seq_len=16, **OPTIONS)
            assert tree(output) == watched.before
        else:
            assert tree(output) == watched.after


def test_a_power_loss_while_a_file_that_was_missing_is_read_leaves_no_receipt_of_before_over_new_chunks(
    corpus: Path, tmp_path: Path, out: Path, watch: Watch, after_loss: AfterLoss, run: Run
) -> None:
    (corpus / "b.jsonl").rename(tmp_path / "away")
    (corpus / "b.jsonl").symlink_to(tmp_path / "back")
    assert not run(output=out, **OPTIONS).complete
    (tmp_path / "away").rename(tmp_path / "back")
    watched = watch(lambda: run(output=out, **OPTIONS))
    assert watched.after["units/00000.json"] != watched.before["units/00000.json"]
    check(watched)
    for output in after_loss(some(watched, 4)):
        run(output=output, **OPTIONS)
        assert tree(output) == watched.after


def test_a_power_loss_while_a_unit_starts_over_without_a_file_leaves_no_checkpoint_over_other_chunks(
    corpus: Path, out: Path, watch: Watch, after_loss: AfterLoss, run: Run
) -> None:
    """The file changes while it is read, after chunks of it were written; the next chunks are as large as they were."""

    def touch() -> bool:
        if (out / "units" / "00001.checkpoint.json").exists():
            os.utime(corpus / "b.jsonl", (0, 0))
        return False

    watched = watch(lambda: run(output=out, stop=StopWhen(touch), **OPTIONS))
    assert list(json.loads(watched.after["manifest.json"])["missing"]) == ["b.jsonl"]
    check(watched)
    run(output=out, **OPTIONS)
    for output in after_loss(some(watched, 4)):
        run(output=output, **OPTIONS)
        assert tree(output) == tree(out)
