"""Every single operation on the output of a job: it fails, or power is lost there; what is left, and a second run.

The output is in memory, so that each operation is seen, and each can be the one: tests/system/test_durability.py and
tests/job/test_interruption.py do this on a disk, where an operation has several steps.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeConfig, SmallUnits, jsonl
from tests.support.jobs import PreparedJob, prepare, tree_of
from tests.support.whole import Files, faults, lost_progress
from tokenmill.errors import OutputError
from tokenmill.storage.memory import MemoryStorage


class Watcher:
    """Counts the operations on a storage; at one of them something happens first."""

    def __init__(self, at: int = 0, happens: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self.step = ""
        self._at = at
        self._happens = happens
        self._lock = threading.Lock()

    def __call__(self, operation: str, name: str) -> None:
        with self._lock:
            self.count += 1
            is_now = self.count == self._at
        if is_now:
            self.step = f"{operation} {name}"
            self._happens()


def fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class PowerLossError(Exception):
    """Ends a run; what is left of it was kept before."""


@dataclass(frozen=True)
class Scene:
    """A job, what is in its output before it is run, and what is there when it is done."""

    job: PreparedJob
    options: dict[str, Any]
    before: MemoryStorage
    after: Files

    def storage(self) -> MemoryStorage:
        """As it is before the run, for one run."""
        return self.before.after_power_loss()

    def run(self, storage: MemoryStorage, **options: Any) -> None:
        self.job.run(storage, **{"engine": "streaming", "num_workers": 2, **self.options, **options})

    def count(self, **options: Any) -> int:
        """How many operations the run takes."""
        storage = self.storage()
        storage.watch = watcher = Watcher()
        self.run(storage, **options)
        return watcher.count

    def faults(self, left: Files) -> list[str]:
        """What is wrong with what is left of a run."""
        return [*faults(left, [tree_of(self.before), self.after])]

    def finish(self, storage: MemoryStorage, step: str) -> None:
        """A second run, by another engine, must complete what is left."""
        self.run(storage, engine="extreme" if self.options.get("engine") == "enhanced" else "enhanced")
        assert tree_of(storage) == self.after, step


@pytest.fixture
def job(inputs: Path, config: MakeConfig, small_units: SmallUnits, small_blocks: Callable[[int], None]) -> PreparedJob:
    """Two units of three chunks and two, with ids, empty documents and rejects in both, and blocks of a few lines."""
    small_units(400, file_cost=0)
    small_blocks(200)
    records = [{"id": n, "text": f"{n} " * (n % 7)} for n in range(100, 122)]
    (inputs / "a.jsonl").write_bytes(jsonl(*records[:9]) + b"broken\n" + jsonl(*records[9:12]) + b"broken again\n")
    (inputs / "b.jsonl").write_bytes(b"broken\n" + jsonl(*records[12:]))
    return prepare(config(sequences_per_chunk=8, id_field="id", batch_size=4))


def finished(job: PreparedJob, **options: Any) -> MemoryStorage:
    storage = MemoryStorage()
    job.run(storage, **{"engine": "streaming", **options})
    return storage


def interrupted(job: PreparedJob) -> MemoryStorage:
    """Power was lost when both units had a checkpoint in the middle of a chunk, one of them with rejects."""
    found: list[MemoryStorage] = []

    def keep_if_so(operation: str, name: str) -> None:
        if operation == "draft" and name == "chunks/00000-0002.npy":
            found.append(storage.after_power_loss())

    storage = MemoryStorage(watch=keep_if_so)
    job.run(storage, engine="enhanced")
    assert {"units/00000.checkpoint.json", "tmp/00000.rejects.jsonl"} <= tree_of(found[0]).keys()
    return found[0]


SCENES: dict[str, Callable[[PreparedJob], tuple[MemoryStorage, dict[str, Any]]]] = {
    "enhanced": lambda _: (MemoryStorage(), {"engine": "enhanced"}),
    "streaming": lambda _: (MemoryStorage(), {"engine": "streaming"}),
    "extreme": lambda _: (MemoryStorage(), {"engine": "extreme"}),
    "interrupted": lambda job: (interrupted(job), {}),
    "a unit is done again": lambda job: (finished(job), {"redo": (0,)}),
    "overwritten": lambda job: (finished(job, seq_len=16), {"overwrite": True}),
}


@pytest.fixture(params=SCENES)
def scene(request: pytest.FixtureRequest, job: PreparedJob) -> Scene:
    before, options = SCENES[request.param](job)
    after = tree_of(finished(job))
    assert len([name for name in after if name.startswith("chunks/")]) == 15
    assert {"units/00000.rejects.jsonl", "units/00001.rejects.jsonl", "manifest.json"} <= after.keys()
    return Scene(job, options, before, after)


def steps(scene: Scene) -> Iterator[int]:
    count = scene.count()
    assert count > 80
    return iter(range(1, count + 1))


WAYS_OUT = ("again", "--overwrite", "choose another directory")


def test_an_operation_that_fails_is_an_error_with_a_way_out_and_the_next_run_completes_the_job(scene: Scene) -> None:
    for number in steps(scene):
        storage = scene.storage()
        storage.watch = watcher = Watcher(number, fail)
        try:
            scene.run(storage)
        except OutputError as error:
            assert os.strerror(errno.ENOSPC) in str(error), watcher.step
            assert any(way_out in str(error) for way_out in WAYS_OUT), f"{watcher.step}: {error}"
        else:  # whether the output is ours shows in other files, too
            assert (watcher.step, number) == ("read job.json", 2)
        storage.watch = Watcher()
        assert not (wrong := scene.faults(tree_of(storage))), f"{watcher.step}: {wrong}"
        scene.finish(storage, watcher.step)


def test_a_power_loss_at_any_operation_leaves_what_is_true_and_the_next_run_completes_the_job(scene: Scene) -> None:
    for number in steps(scene):
        left, step = lose_power(scene, number)
        found = tree_of(left)
        wrong = [*scene.faults(found), *lost_progress(found, scene.after)]
        assert not wrong, f"{step}: {wrong}"
        scene.finish(left, step)


def lose_power(scene: Scene, number: int) -> tuple[MemoryStorage, str]:
    """What is found if power is lost right before this operation, and which one that was."""
    left: list[MemoryStorage] = []
    storage = scene.storage()

    def keep() -> None:
        left.append(storage.after_power_loss())
        raise PowerLossError

    storage.watch = watcher = Watcher(number, keep)
    with pytest.raises(PowerLossError):
        scene.run(storage)
    return left[0], watcher.step
