"""Files in memory: they keep the contract, are watched at every step, and lose what was not synced."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from tests.storage.contract import CORPUS, ReadingContract, StorageContract
from tests.storage.contract_drafts import DraftContract
from tests.storage.contract_durability import DurabilityContract, Restart
from tokenmill.storage.base import Reading
from tokenmill.storage.memory import MemoryStorage


class TestReading(ReadingContract):
    @pytest.fixture
    def corpus(self) -> Reading:
        return MemoryStorage(CORPUS)


class InMemory:
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()


class TestStorage(InMemory, StorageContract):
    pass


class TestDrafts(InMemory, DraftContract):
    pass


class TestDurability(InMemory, DurabilityContract):
    @pytest.fixture
    def after_power_loss(self, storage: MemoryStorage) -> Restart:
        return storage.after_power_loss


# What can be watched


def steps(storage: MemoryStorage) -> list[tuple[str, str, Callable[[], object]]]:
    """Every operation with the name it is about."""
    draft = storage.draft("chunks/d")
    source = storage.open("a")
    return [
        ("list", "units", lambda: storage.list("units")),
        ("identify", "units", lambda: storage.identify("units")),
        ("stat", "a", lambda: storage.stat("a")),
        ("read", "a", lambda: storage.read("a", 0, 1)),
        ("open", "a", lambda: storage.open("a")),
        ("read", "a", lambda: source.read(1)),
        ("read", "a", lambda: source.readinto(bytearray(1))),
        ("map", "a", lambda: storage.map("a")),
        ("publish", "b", lambda: storage.publish("b", [b"x"])),
        ("create", "c", lambda: storage.create("c", [b"x"])),
        ("remove", "a", lambda: storage.remove(["a"])),
        ("make_folder", "new", lambda: storage.make_folder("new")),
        ("remove_folder", "units", lambda: storage.remove_folder("units")),
        ("sync", "units", lambda: storage.sync("units")),
        ("draft", "chunks/e", lambda: storage.draft("chunks/e")),
        ("write", "chunks/d", lambda: draft.write(b"x")),
        ("read", "chunks/d", lambda: draft.read(1)),
        ("drafts", "", lambda: list(storage.drafts())),
        ("open_draft", "chunks/d", lambda: storage.open_draft("chunks/d")),
        ("sync_draft", "chunks/d", lambda: storage.sync_drafts([draft])),
        ("publish_draft", "chunks/d", lambda: storage.publish_drafts([draft])),
        ("unpublish", "a", lambda: storage.unpublish("a")),
        ("remove_drafts", "", lambda: storage.remove_drafts()),
        ("append", "logs/a", lambda: storage.append("logs/a")),
        ("lock", "lock", lambda: storage.locked("lock").__enter__()),
    ]


def begun() -> MemoryStorage:
    return MemoryStorage({"a": b"abc", "units/a": b"x"})


@pytest.mark.parametrize("number", range(len(steps(begun()))))
def test_every_operation_is_told_before_it_happens_and_may_fail(number: int) -> None:
    storage = begun()
    operation, name, act = steps(storage)[number]
    seen = []

    def watch(operation: str, name: str) -> None:
        seen.append((operation, name))
        raise OSError(5, "Input/output error")

    files, drafts = storage.files(), dict(storage.drafts())
    storage.watch = watch
    with pytest.raises(OSError, match="Input/output error"):
        act()
    assert seen == [(operation, name)]
    storage.watch = lambda _operation, _name: None
    assert (storage.files(), dict(storage.drafts())) == (files, drafts)


def test_every_operation_of_the_protocol_can_be_watched() -> None:
    told = {"sync_drafts": "sync_draft", "publish_drafts": "publish_draft", "locked": "lock"}
    public = {name for name in vars(MemoryStorage) if not name.startswith("_")}
    operations = {told.get(name, name) for name in public - {"location", "describe", "files", "after_power_loss"}}
    assert operations == {operation for operation, _, _ in steps(begun())} - {"write"} | {"prefetch"}


def test_a_hint_is_told_and_never_fails() -> None:
    seen = []

    def watch(*step: str) -> None:
        seen.append(step)
        raise OSError(5, "Input/output error")

    MemoryStorage(watch=watch).prefetch("a", 0, 1)
    assert seen == [("prefetch", "a")]


def test_several_names_are_told_one_by_one_and_those_before_a_failure_are_done() -> None:
    storage = MemoryStorage({"a": b"", "b": b"", "c": b""})
    drafts = [storage.draft(name) for name in "xyz"]

    def watch(_operation: str, name: str) -> None:
        if name in ("b", "y"):
            raise OSError(28, "No space left on device")

    storage.watch = watch
    with pytest.raises(OSError, match="No space left"):
        storage.remove(["a", "b", "c"])
    with pytest.raises(OSError, match="No space left"):
        storage.publish_drafts(drafts)
    assert set(storage.files()) == {"b", "c", "x"}
    assert {name for name, _ in storage.drafts()} == {"y", "z"}


def test_what_is_published_can_be_had_as_a_whole() -> None:
    storage = MemoryStorage({"units/b": b"2", "a": b"1"})
    storage.draft("units/c")
    storage.make_folder("empty")
    assert list(storage.files().items()) == [("a", b"1"), ("units/b", b"2")]


# What is lost with the power


def test_what_is_given_at_the_beginning_is_there_for_good() -> None:
    found = MemoryStorage({"units/a": b"x", "b": b"y"}).after_power_loss().after_power_loss()
    assert found.files() == {"units/a": b"x", "b": b"y"}


def test_what_was_not_synced_is_as_it_was_before() -> None:
    storage = MemoryStorage({"a": b"1", "units/b": b"2", "units/deep/c": b"3", "chunks/d": b"4"})
    storage.remove(["a", "units/b"])
    storage.remove_folder("chunks")
    storage.make_folder("new")
    storage.publish("new/e", [b"5"])  # in a folder whose own name is lost
    storage.sync("units/deep")
    assert storage.after_power_loss().files() == {"a": b"1", "units/b": b"2", "units/deep/c": b"3", "chunks/d": b"4"}
    storage.sync()
    assert storage.after_power_loss().files() == {"units/b": b"2", "units/deep/c": b"3", "new/e": b"5"}
    storage.sync("units")
    assert storage.after_power_loss().files() == {"units/deep/c": b"3", "new/e": b"5"}


def test_a_folder_that_is_made_anew_has_nothing_of_the_one_before_it() -> None:
    storage = MemoryStorage({"units/a": b"old", "units/b": b"old"})
    storage.remove_folder("units")
    storage.make_folder("units")
    storage.publish("units/a", [b"new"])
    assert storage.after_power_loss().files() == {"units/a": b"old", "units/b": b"old"}
    storage.sync()
    assert storage.after_power_loss().files() == {"units/a": b"new"}


def test_drafts_are_lost_unless_they_were_synced_and_then_all_that_came_later() -> None:
    storage = MemoryStorage()
    draft, other = storage.draft("chunks/a"), storage.draft("chunks/b")
    draft.write(b"one")
    other.write(b"other")
    assert dict(storage.after_power_loss().drafts()) == {}
    storage.sync_drafts([draft])
    draft.write(b"two")
    assert dict(storage.after_power_loss().drafts()) == {"a": 3, "b": 0}
    with storage.after_power_loss().open_draft("chunks/a") as source:
        assert source.read() == b"one"


def test_drafts_that_were_moved_or_removed_may_be_back() -> None:
    storage = MemoryStorage({"chunks/c": b"ccc"})
    drafts = [storage.draft(f"chunks/{name}") for name in "ab"]
    for draft in drafts:
        draft.write(b"x")
    storage.sync_drafts(drafts)
    storage.publish_drafts(drafts[:1])
    storage.remove_drafts()
    storage.unpublish("chunks/c")
    found = storage.after_power_loss()
    assert dict(found.drafts()) == {"a": 1, "b": 1}
    assert found.files() == {"chunks/a": b"x"} | {"chunks/c": b"ccc"}


def test_a_log_is_lost() -> None:
    storage = MemoryStorage({"logs/old": b"x"})
    with storage.append("logs/new") as log:
        log.write(b"y")
    assert storage.files() == {"logs/old": b"x", "logs/new": b"y"}
    assert storage.after_power_loss().files() == {"logs/old": b"x"}


def test_files_in_memory_cannot_leave_their_process() -> None:
    with pytest.raises(TypeError, match="cannot be sent to another process: use a directory"):
        pickle.dumps(MemoryStorage())
