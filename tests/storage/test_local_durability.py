"""Files on a disk that loses power: what was forced to it is there, and nothing is there by halves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.storage.contract_durability import DurabilityContract, Restart
from tests.support.power_loss import Disk
from tokenmill.storage.local import LocalStorage


def storage_in(folder: Path) -> LocalStorage:
    return LocalStorage(folder, folder / "tmp")


class TestDurability(DurabilityContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Disk]:
        (tmp_path / "disk").mkdir()
        disk = Disk(tmp_path / "disk")
        with disk.watched():
            yield disk
        disk.close()

    @pytest.fixture
    def storage(self, tmp_path: Path, disk: Disk) -> LocalStorage:
        storage = storage_in(tmp_path / "disk" / "out")
        storage.make_folder("tmp")
        storage.sync()
        assert disk.saved().files == {"out/": b"", "out/tmp/": b""}
        return storage

    @pytest.fixture
    def after_power_loss(self, tmp_path: Path, disk: Disk) -> Restart:
        losses = iter(range(100))

        def restart() -> LocalStorage:
            top = tmp_path / f"found-{next(losses)}"
            disk.saved().write(top)
            return storage_in(top / "out")

        return restart


# A power loss on the way


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """What is there when the test begins is on it."""
    (tmp_path / "out" / "tmp").mkdir(parents=True)
    (tmp_path / "out" / "chunks").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"old")
    disk = Disk(tmp_path / "out")
    yield disk
    disk.close()


def found(disk: Disk, name: str) -> set[bytes | None]:
    """All that may be found under a name after a loss at any step."""
    return {remains.files.get(name) for remains in disk.remains}


def test_a_power_loss_while_a_file_is_published_leaves_the_old_one_or_the_new(tmp_path: Path, disk: Disk) -> None:
    with disk.watched():
        storage_in(tmp_path / "out").publish("a", [b"n", b"ew"])
    assert found(disk, "a") == {b"old", b"new"}


def test_a_power_loss_while_a_file_is_created_leaves_none_or_all_of_it(tmp_path: Path, disk: Disk) -> None:
    storage = storage_in(tmp_path / "out")
    with disk.watched():
        storage.create("b", [b"n", b"ew"])
        with pytest.raises(FileExistsError):
            storage.create("a", [b"n", b"ew"])
    assert found(disk, "b") == {None, b"new"}
    assert found(disk, "a") == {b"old"}


def test_a_power_loss_while_drafts_are_published_leaves_none_or_all_of_each(tmp_path: Path, disk: Disk) -> None:
    storage = storage_in(tmp_path / "out")
    with disk.watched():
        drafts = [storage.draft(f"chunks/{name}") for name in ("a", "b")]
        for draft in drafts:
            draft.write(b"begun")
        storage.sync_drafts(drafts)
        for draft in drafts:
            draft.write(b" and done")
        storage.publish_drafts(drafts)
    for name in ("a", "b"):
        assert found(disk, f"chunks/{name}") == {None, b"begun and done"}
        assert found(disk, f"tmp/{name}") >= {b"", b"begun"}


def test_the_names_of_drafts_are_forced_to_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch of documents syncs the drafts: a sync of their folder each time would be felt."""
    storage = storage_in(tmp_path / "out")
    storage.make_folder("tmp")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.path.basename(target(handle))))
    drafts = [storage.draft(name) for name in ("a", "b")]
    storage.sync_drafts(drafts)
    storage.sync_drafts(drafts)
    assert synced == ["a", "b", "tmp", "a", "b"]
    with closing(storage.draft("c")) as new:
        storage.sync_drafts([drafts[0], new])
    assert synced[5:] == ["a", "c", "tmp"]
    storage.publish_drafts(drafts)
    assert synced[8:] == ["a", "b", "out"]


def target(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}")


def test_the_way_to_a_new_root_is_forced_to_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with disk.watched():
        storage_in(tmp_path / "disk" / "one" / "two").make_folder("three")
        assert disk.saved().files == {"one/": b"", "one/two/": b""}
        storage_in(tmp_path / "disk" / "four").make_folder("")
        assert disk.saved().files == {"one/": b"", "one/two/": b"", "four/": b""}
    disk.close()


def test_a_root_is_made_in_a_folder_that_may_be_written_to_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.open

    def no_entry(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", no_entry)
    storage_in(tmp_path / "out").make_folder("logs")
    assert (tmp_path / "out" / "logs").is_dir()
