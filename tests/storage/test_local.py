"""Files on a disk: they keep the contract, and what only a disk has: links, pipes, handles, and locks.

What is left after a power loss is in test_local_durability.py.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.storage.contract import CORPUS, ReadingContract, StorageContract, names
from tests.storage.contract_drafts import DraftContract
from tests.support.alarm import within
from tokenmill.storage import local
from tokenmill.storage.base import Entry, Reading
from tokenmill.storage.local import PREFETCH_BYTES, LocalSource, LocalStorage


def storage_in(folder: Path) -> LocalStorage:
    return LocalStorage(folder, folder / "tmp")


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = storage_in(tmp_path / "out")
    storage.make_folder("tmp")
    return storage


class TestReading(ReadingContract):
    @pytest.fixture
    def corpus(self, tmp_path: Path) -> Reading:
        for name, data in CORPUS.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
        return LocalStorage(tmp_path)


class OnDisk:
    @pytest.fixture
    def storage(self, storage: LocalStorage) -> LocalStorage:
        return storage


class TestStorage(OnDisk, StorageContract):
    pass


class TestDrafts(OnDisk, DraftContract):
    pass


# Handles


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_stays_open(storage: LocalStorage) -> None:
    storage.publish("a", [b"x"])
    before = handles()
    storage.publish("a", [b"x"])
    with pytest.raises(FileExistsError):
        storage.create("a", [b"x"])
    storage.create("b", [b"x"])
    storage.read("a")
    storage.prefetch("a", 0, 1)
    storage.sync()
    storage.publish_drafts([storage.draft("c")])
    with pytest.raises(FileNotFoundError):
        storage.draft("c", 1)
    storage.draft("d").close()
    with pytest.raises(FileNotFoundError):
        storage.draft("d", 1)
    with pytest.raises(NotADirectoryError):
        storage.sync("a")
    with storage.locked("lock"):
        with pytest.raises(BlockingIOError), storage.locked("lock"):
            pass
        assert handles() == before + 1
    assert handles() == before


def test_a_lock_is_held_by_who_inherits_it_for_as_long_as_that_lives(storage: LocalStorage) -> None:
    with storage.locked("lock") as inherited:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=inherited
        )
    try:
        with pytest.raises(BlockingIOError), storage.locked("lock"):
            pass
    finally:
        child.kill()
        child.communicate()
    with storage.locked("lock"):
        pass


def test_a_storage_is_sent_to_another_process_as_it_is(storage: LocalStorage) -> None:
    storage.publish("a", [b"x"])
    assert pickle.loads(pickle.dumps(storage)) == storage
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"x"


# What a disk does


class SlowFile(io.FileIO):
    """A file of which the kernel takes as many bytes as it likes: here three, and now and then none."""

    calls = 0

    def write(self, data: Any, /) -> int:
        self.calls += 1
        return 0 if self.calls % 3 == 0 else super().write(memoryview(data).cast("B")[:3])


@pytest.mark.parametrize("data", [bytes(range(50)), memoryview(array("H", range(50)))], ids=["bytes", "items"])
def test_a_short_write_is_continued(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, data: bytes | memoryview
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(io, "FileIO", SlowFile)
        draft = storage.draft("a")
        draft.write(data)
        storage.publish_drafts([draft])
    assert storage.read("a") == bytes(data)


def test_a_short_read_is_continued(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.publish("a", [bytes(range(50))])

    class NetworkFile(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(3, size or 0)) or b""

    class NetworkSource(LocalSource, NetworkFile):
        """Which asks its disk, and gets three bytes at a time."""

    monkeypatch.setattr(local, "LocalSource", NetworkSource)
    assert storage.read("a", 5, 40) == bytes(range(5, 40))
    assert storage.read("a", 40, 90) == bytes(range(40, 50))
    with storage.open("a") as source:
        assert source.read(20) == bytes(range(20))
        assert source.read(100) == bytes(range(20, 50))
        assert source.read(1) == b""


def test_a_file_is_published_by_way_of_the_draft_folder(storage: LocalStorage, tmp_path: Path) -> None:
    """And nothing is ever written anywhere else, or under a name that a crash would leave for good."""
    seen = []

    def pieces() -> Iterator[bytes]:
        yield b"x"
        seen.append({path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")})

    storage.make_folder("units")
    storage.publish("units/a", pieces())
    storage.create("units/b", pieces())
    assert seen[0] == {"out", "out/tmp", "out/units", "out/tmp/a"}
    (temporary,) = seen[1] - {"out", "out/tmp", "out/units", "out/units/a"}
    assert temporary.startswith("out/tmp/b.")


def test_links_lead_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file").symlink_to("real/a")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    storage = LocalStorage(tmp_path)
    links = {Entry(name, is_folder=name == "folder", is_link=True) for name in ("folder", "file", "broken", "loop")}
    assert set(storage.list()) == links | {Entry("real", is_folder=True)}
    assert storage.identify("folder") == storage.identify("real") != storage.identify("")
    assert storage.identify("real/..") == storage.identify("")
    assert storage.stat("file") == storage.stat("real/a")
    with pytest.raises(FileNotFoundError):
        storage.stat("broken")
    with pytest.raises(OSError, match="symbolic links"):
        storage.stat("loop")


def test_a_pipe_is_not_a_file_and_a_hint_does_not_wait_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    storage = LocalStorage(tmp_path)
    assert not storage.stat("pipe").is_file
    storage.prefetch("pipe", 0, 10)


def test_a_file_that_is_written_to_has_another_version(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    storage = LocalStorage(tmp_path)
    versions = [storage.stat("a").version]
    with (tmp_path / "a").open("ab") as file:
        file.write(b"d")
    versions.append(storage.stat("a").version)
    os.utime(tmp_path / "a", ns=(1, 1))
    versions.append(storage.stat("a").version)
    os.utime(tmp_path / "a", ns=(1, 2))
    versions.append(storage.stat("a").version)
    (tmp_path / "b").write_bytes(b"abcd")
    os.utime(tmp_path / "b", ns=(1, 2))
    (tmp_path / "b").rename(tmp_path / "a")
    versions.append(storage.stat("a").version)
    assert len(set(versions)) == 5


def test_a_place_is_named_as_a_user_would_name_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "a\nb")
    assert storage.location == f"{tmp_path}/a\nb"
    assert storage.describe() == f"{tmp_path}/a\\nb"
    assert storage.describe("c") == f"{tmp_path}/a\\nb/c"


Hints = list[tuple[int, int, int]]


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> Hints:
    given: Hints = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _handle, *hint: given.append(hint), raising=False)
    return given


def test_a_hint_covers_its_range_in_pieces_that_the_kernel_takes(storage: LocalStorage, hints: Hints) -> None:
    storage.publish("a", [b"x"])
    end = 2 * PREFETCH_BYTES + 17
    storage.prefetch("a", 10, end)
    wanted = os.POSIX_FADV_WILLNEED
    assert hints == [
        (10, PREFETCH_BYTES, wanted),
        (10 + PREFETCH_BYTES, PREFETCH_BYTES, wanted),
        (10 + 2 * PREFETCH_BYTES, 7, wanted),
    ]
    storage.prefetch("a", 10, 10)
    assert len(hints) == 3


def test_a_system_without_hints_does_without(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    storage.publish("a", [b"x"])
    before = handles()
    storage.prefetch("a", 0, 1)
    assert handles() == before


# Drafts


def test_there_are_no_drafts_where_there_is_no_folder_of_them(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    assert list(storage.drafts()) == []
    storage.remove_drafts()
    storage.remove_drafts(["a"])
    (tmp_path / "tmp").write_bytes(b"a file")
    assert list(storage.drafts()) == []


def test_whatever_is_among_the_drafts_is_listed(storage: LocalStorage, tmp_path: Path) -> None:
    """Also a link that leads nowhere, which nobody can read."""
    (tmp_path / "out" / "tmp" / "link").symlink_to("nowhere")
    assert [name for name, _ in storage.drafts()] == ["link"]
    storage.remove_drafts(["link"])
    assert list(storage.drafts()) == []


def test_drafts_that_go_while_they_are_listed_hide_no_others(storage: LocalStorage) -> None:
    """Workers publish theirs while another looks for its own."""
    for number in range(20):
        storage.draft(f"draft-{number}").close()
    listed = []
    for name, _ in storage.drafts():
        listed.append(name)
        if len(listed) == 1:
            gone = sorted({f"draft-{number}" for number in range(20)} - {name})[::2]
            storage.remove_drafts(gone)
    assert names(storage, "tmp") <= set(listed)


def test_a_draft_that_cannot_be_removed_is_no_reason_to_fail_in_the_end(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("a", "c"):
        storage.draft(name).close()
    (tmp_path / "out" / "tmp" / "b").mkdir()
    storage.remove_drafts()
    assert names(storage, "tmp") == {"b"}
    with pytest.raises(OSError, match=r"Is a directory|not permitted"):
        storage.remove_drafts(["b"])


def test_a_storage_that_is_opened_to_be_read_has_no_drafts(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    refused: list[Callable[[], object]] = [
        lambda: storage.publish("a", [b"x"]),
        lambda: storage.create("a", [b"x"]),
        lambda: storage.draft("a"),
        lambda: list(storage.drafts()),
        lambda: storage.open_draft("a"),
        lambda: storage.unpublish("a"),
        lambda: storage.remove_drafts(),
        lambda: storage.remove_drafts(["a"]),
    ]
    for action in refused:
        with pytest.raises(io.UnsupportedOperation, match="was opened to be read only"):
            action()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("use", ["open", "read", "map", "append", "publish", "draft", "open_draft"])
def test_a_pipe_is_refused_before_anybody_waits_for_its_other_end(tmp_path: Path, use: str) -> None:
    (tmp_path / "tmp").mkdir()
    for folder in ("", "tmp"):
        os.mkfifo(tmp_path / folder / "name")
    storage = LocalStorage(tmp_path, tmp_path / "tmp")
    with within(5), pytest.raises(OSError, match="it is a pipe, not a file") as error:
        getattr(storage, use)("name", *([[b"x"]] if use == "publish" else []))
    assert str(error.value.filename).endswith("/name")
