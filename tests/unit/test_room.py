"""Room for large documents: small ones never wait, large ones wait until there is room, and the largest are alone."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, SmallUnits, texts, tree
from tests.support.mishaps import PATIENCE_SECONDS
from tests.support.processes import python
from tokenmill.encode.encoder import FastokensEncoder
from tokenmill.records import TokenBatch
from tokenmill.unit.room import COST, ORDINARY_BYTES, ProcessRoom, ThreadRoom

SMALL, LARGE = ORDINARY_BYTES, ORDINARY_BYTES + 1000
NEED = COST * 1000
"""What LARGE takes beyond what a worker has for itself."""


def holds(room: ThreadRoom, size: int, while_held: Callable[[], object]) -> bool:
    """Whether another thread gets this room, before or only after something is done."""
    got = threading.Event()

    def take() -> None:
        with room.hold(size):
            got.set()

    thread = threading.Thread(target=take)
    thread.start()
    at_once = got.wait(0.05)
    while_held()
    thread.join(PATIENCE_SECONDS)
    assert got.is_set(), "it never gets the room"
    return at_once


@pytest.mark.parametrize(
    ("total", "size", "at_once"),
    [(0, SMALL, True), (0, LARGE, False), (2 * NEED - 1, LARGE, False), (2 * NEED, LARGE, True)],
)
def test_a_thread_waits_while_there_is_no_room_for_its_block(total: int, size: int, at_once: bool) -> None:
    room = ThreadRoom(total)
    held = room.hold(LARGE)
    held.__enter__()
    assert holds(room, size, lambda: held.__exit__(None, None, None)) is at_once


def test_a_block_that_fails_gives_its_room_back() -> None:
    room = ThreadRoom(0)
    with pytest.raises(RuntimeError), room.hold(LARGE):
        raise RuntimeError
    assert holds(room, LARGE, lambda: None)


HOLDER = """
import sys
from tokenmill.unit.room import ProcessRoom
with ProcessRoom({descriptor}, {share}).hold({size}):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("share", "size", "shared", "alone"),
    [(0, SMALL, True, True), (NEED, LARGE, True, False), (NEED - 1, LARGE, False, False)],
)
def test_a_process_shares_the_room_within_its_part_of_it_and_has_it_alone_beyond(
    share: int, size: int, shared: bool, alone: bool
) -> None:
    with tempfile.TemporaryFile() as lock:
        program = HOLDER.format(descriptor=lock.fileno(), share=share, size=size)
        command = python("-c", program)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lock.fileno()]
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            assert can_lock(lock.fileno(), fcntl.LOCK_SH) is shared
            assert can_lock(lock.fileno(), fcntl.LOCK_EX) is alone
            holder.kill()  # whatever ends it, the room is free again
        with ProcessRoom(lock.fileno(), 0).hold(LARGE):
            pass


def can_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
    return True


def test_threads_of_extreme_encode_large_documents_one_at_a_time_if_there_is_no_more_room(
    inputs: Path, tmp_path: Path, run: Run, small_units: SmallUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_units(50, 0)
    monkeypatch.setattr("tokenmill.unit.room.ORDINARY_BYTES", 100)
    for n in range(4):
        (inputs / f"{n}.jsonl").write_bytes(texts(*["x" * 200] * 3, "small"))
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 50)
    run(engine="streaming", output=tmp_path / "expected")
    right, at_once, most, changed = FastokensEncoder.encode, [0], [0], threading.Condition()

    def encode(self: FastokensEncoder, given: list[str]) -> TokenBatch:
        large = any(len(text) > 100 for text in given)
        with changed:
            at_once[0] += large
            most[0] = max(most[0], at_once[0])
            changed.notify_all()
            changed.wait_for(lambda: most[0] > 1, 0.02)  # for another that may come meanwhile
        try:
            return right(self, given)
        finally:
            with changed:
                at_once[0] -= large

    monkeypatch.setattr(FastokensEncoder, "encode", encode)
    run(engine="extreme", num_workers=3, max_memory="780MB")  # what three threads need, and nothing beyond it
    assert most == [1]
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    run(engine="extreme", num_workers=3, max_memory="2GB", output=tmp_path / "roomy")
    assert most[0] > 1
