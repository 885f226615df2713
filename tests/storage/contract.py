"""What any storage must do. An implementation inherits these classes in its own tests and gives them one of its kind.

ReadingContract     what inputs need, of a storage that holds CORPUS
StorageContract     whole files, folders, logs and locks, of one that is empty
DraftContract       files that grow, of one that is empty: contract_drafts.py
DurabilityContract  what is left after a power loss, of one that can lose power: contract_durability.py
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tokenmill.storage.base import Entry, Reading, Storage

NOT_UNICODE = os.fsdecode(b"caf\xe9.txt")
CORPUS = {
    "a.jsonl": b"0123456789",
    "empty": b"",
    "sub/b": b"bb",
    "sub/deep/c": b"c",
    "sub2/d": b"dd",
    NOT_UNICODE: b"latin",
    "line\nend \x1b[31m": b"red",
}


def names(storage: Reading, folder: str = "") -> set[str]:
    return {entry.name for entry in storage.list(folder)}


class ReadingContract:
    @pytest.fixture
    def corpus(self) -> Reading:
        """CORPUS."""
        raise NotImplementedError

    def test_a_folder_lists_what_is_directly_in_it(self, corpus: Reading) -> None:
        files = {Entry(name, False) for name in CORPUS if "/" not in name}
        assert set(corpus.list()) == files | {Entry("sub", True), Entry("sub2", True)}
        assert set(corpus.list("sub")) == {Entry("b", False), Entry("deep", True)}
        assert corpus.list("sub/deep") == [Entry("c", False)]

    def test_only_a_folder_that_is_there_can_be_listed(self, corpus: Reading) -> None:
        for missing in ("su", "sub/b2", "sub/deep/er"):
            with pytest.raises(FileNotFoundError):
                corpus.list(missing)
        for file in ("empty", "sub/b"):
            with pytest.raises(NotADirectoryError):
                corpus.list(file)

    def test_a_folder_is_identified_whenever_it_is_met(self, corpus: Reading) -> None:
        folders = ["", "sub", "sub/deep", "sub2"]
        found = [corpus.identify(folder) for folder in folders]
        assert len(set(found)) == len(folders)
        assert [corpus.identify(folder) for folder in folders] == found
        with pytest.raises(FileNotFoundError):
            corpus.identify("missing")

    def test_the_stat_of_a_file_is_its_size_and_a_version_of_its_own(self, corpus: Reading) -> None:
        stats = {name: corpus.stat(name) for name in CORPUS}
        assert {name: stat.size for name, stat in stats.items()} == {n: len(data) for n, data in CORPUS.items()}
        assert all(stat.is_file for stat in stats.values())
        assert len({stat.version for stat in stats.values()}) == len(CORPUS)
        assert {name: corpus.stat(name) for name in CORPUS} == stats

    def test_a_folder_is_not_a_file(self, corpus: Reading) -> None:
        assert not corpus.stat("sub").is_file
        for below in (corpus.stat, corpus.read, corpus.open, corpus.map, corpus.list):
            with pytest.raises(NotADirectoryError):
                below("a.jsonl/x")
        for wrong in (corpus.read, corpus.open, corpus.map):
            with pytest.raises(IsADirectoryError):
                wrong("sub")

    @pytest.mark.parametrize("name", ["missing", "sub/missing", "missing/missing"])
    def test_what_is_not_there_is_not_found(self, corpus: Reading, name: str) -> None:
        for method in (corpus.stat, corpus.read, corpus.open, corpus.map):
            with pytest.raises(FileNotFoundError):
                method(name)

    @pytest.mark.parametrize("name", CORPUS, ids=ascii)
    def test_any_name_can_be_read(self, corpus: Reading, name: str) -> None:
        assert corpus.read(name) == CORPUS[name]
        with corpus.open(name) as source:
            assert source.read() == CORPUS[name]
        assert bytes(corpus.map(name)) == CORPUS[name]

    @pytest.mark.parametrize(
        ("start", "end"),
        [(0, None), (3, None), (0, 4), (3, 7), (8, 20), (10, 12), (20, 30), (5, 5), (5, 3)],
    )
    def test_a_range_is_read_as_far_as_the_file_goes(self, corpus: Reading, start: int, end: int | None) -> None:
        assert corpus.read("a.jsonl", start, end) == b"0123456789"[start:end]

    def test_an_opened_file_is_a_stream_that_can_be_started_anywhere(self, corpus: Reading) -> None:
        with corpus.open("a.jsonl") as source:
            assert source.stat == corpus.stat("a.jsonl")
            assert (source.tell(), source.read(3), source.tell()) == (0, b"012", 3)
            assert (source.seek(8), source.read(100), source.read(1)) == (8, b"89", b"")
            assert (source.seek(2), source.seek(3, 1), source.read(1)) == (2, 5, b"5")
            assert (source.seek(-2, 2), source.read()) == (8, b"89")
        with pytest.raises(ValueError, match="closed"):
            source.read(1)

    def test_an_opened_file_fills_a_buffer(self, corpus: Reading) -> None:
        buffer = bytearray(b"xxxxxx")
        with corpus.open("a.jsonl") as source:
            source.seek(6)
            assert (source.readinto(memoryview(buffer)[1:3]), bytes(buffer)) == (2, b"x67xxx")
            assert (source.readinto(buffer), bytes(buffer)) == (2, b"89" + b"7xxx")
            assert source.readinto(buffer) == 0

    def test_a_map_cannot_be_written_to(self, corpus: Reading) -> None:
        found = corpus.map("a.jsonl")
        assert found.readonly
        assert bytes(found[2:5]) == b"234"

    @pytest.mark.parametrize(("start", "end"), [(0, 10), (0, 3), (3, 7), (9, 10), (5, 5), (0, 0), (10, 10)])
    def test_a_stretch_of_an_opened_file_is_mapped(self, corpus: Reading, start: int, end: int) -> None:
        with corpus.open("a.jsonl") as source:
            found = source.map(start, end)
        assert found.readonly
        assert bytes(found) == b"0123456789"[start:end]  # also once the file is closed

    def test_what_a_file_does_not_have_cannot_be_mapped(self, corpus: Reading) -> None:
        with corpus.open("a.jsonl") as source, pytest.raises(OSError, match="shorter"):
            source.map(5, 11)

    def test_a_hint_never_fails(self, corpus: Reading) -> None:
        for name in ("a.jsonl", "empty", "missing", "sub", "sub/missing"):
            for start, end in ((0, 5), (0, 1 << 40), (5, 0), (7, 7)):
                corpus.prefetch(name, start, end)

    def test_a_place_can_be_shown_whatever_it_is_called(self, corpus: Reading) -> None:
        assert corpus.location
        assert corpus.describe().isprintable()
        for name in CORPUS:
            assert corpus.describe(name).isprintable()
        assert corpus.describe("sub/b").endswith("sub/b")


class StorageContract:
    @pytest.fixture
    def storage(self) -> Storage:
        """With nothing in it."""
        raise NotImplementedError

    def test_a_file_is_published_from_its_pieces(self, storage: Storage) -> None:
        storage.make_folder("units")
        storage.publish("units/a", iter([b"one", b"", b"two"]))
        storage.publish("b", [])
        assert (storage.read("units/a"), storage.read("b")) == (b"onetwo", b"")
        assert {"units", "b"} <= names(storage)
        assert list(storage.drafts()) == []

    def test_until_a_file_is_whole_readers_see_what_was_there_before(self, storage: Storage) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"n"
            with pytest.raises(FileNotFoundError):
                storage.stat("new")
            assert storage.read("old") == b"old"
            yield b"ew"

        storage.publish("old", [b"old"])
        storage.publish("new", pieces())
        with pytest.raises(FileExistsError):
            storage.create("old", pieces_of(storage, b"other"))
        storage.publish("old", pieces_of(storage, b"new"))
        assert (storage.read("old"), storage.read("new")) == (b"new", b"new")

    @pytest.mark.parametrize("method", ["publish", "create"])
    def test_a_file_whose_pieces_fail_is_not_there(self, storage: Storage, method: str) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"half"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            getattr(storage, method)("a", pieces())
        with pytest.raises(FileNotFoundError):
            storage.stat("a")
        storage.publish("a", [b"old"])
        with pytest.raises(ZeroDivisionError):
            storage.publish("a", pieces())
        assert storage.read("a") == b"old"

    def test_a_folder_is_not_replaced_by_a_file(self, storage: Storage) -> None:
        storage.make_folder("units")
        storage.publish("units/a", [b"x"])
        with pytest.raises(IsADirectoryError):
            storage.publish("units", [b"y"])
        with pytest.raises(FileExistsError):
            storage.create("units", [b"y"])
        assert storage.read("units/a") == b"x"

    def test_a_file_that_is_replaced_has_another_version(self, storage: Storage) -> None:
        versions = []
        for _ in range(3):
            storage.publish("a", [b"same"])
            versions.append(storage.stat("a").version)
        assert len(set(versions)) == 3

    def test_who_has_opened_a_file_goes_on_reading_that_file(self, storage: Storage) -> None:
        storage.publish("a", [b"before"])
        stat, mapped = storage.stat("a"), storage.map("a")
        with storage.open("a") as source:
            assert source.read(2) == b"be"
            storage.publish("a", [b"a longer one"])
            assert source.stat == stat
            assert source.read() == b"fore"
            storage.remove(["a"])
            source.seek(0)
            assert source.read() == b"before"
        assert bytes(mapped) == b"before"

    def test_a_file_is_created_only_where_there_is_none(self, storage: Storage) -> None:
        storage.create("a", [b"o", b"ne"])
        stat = storage.stat("a")
        with pytest.raises(FileExistsError):
            storage.create("a", [b"two"])
        assert (storage.read("a"), storage.stat("a")) == (b"one", stat)
        assert list(storage.drafts()) == []
        storage.remove(["a"])
        storage.create("a", [b"three"])
        assert storage.read("a") == b"three"

    def test_of_many_who_create_a_file_at_once_one_does(self, storage: Storage) -> None:
        start = threading.Barrier(8)
        created = []

        def create(number: int) -> None:
            start.wait()
            pieces = [b"%d" % number] * 1000
            try:
                storage.create("a", pieces)
            except FileExistsError:
                return
            created.append(b"".join(pieces))

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert created == [storage.read("a")]

    def test_names_are_removed_whether_they_are_there_or_not(self, storage: Storage) -> None:
        storage.make_folder("units")
        for name in ("a", "b", "units/a"):
            storage.publish(name, [b"x"])
        storage.remove(name for name in ("a", "missing", "units/missing", "missing/a", "units/a"))
        assert names(storage) >= {"b", "units"}
        assert "a" not in names(storage)
        assert names(storage, "units") == set()
        storage.remove([])

    def test_a_folder_is_made_once_with_all_above_it(self, storage: Storage) -> None:
        storage.make_folder("one/two")
        storage.publish("one/two/a", [b"x"])
        storage.make_folder("one/two")
        storage.make_folder("one")
        assert storage.list("one") == [Entry("two", True)]
        assert storage.read("one/two/a") == b"x"
        storage.make_folder("empty")
        assert storage.list("empty") == []
        storage.publish("file", [b"x"])
        with pytest.raises(FileExistsError):
            storage.make_folder("file")
        with pytest.raises(NotADirectoryError):
            storage.make_folder("file/in")

    def test_the_root_is_made_and_listed_as_any_folder(self, storage: Storage) -> None:
        before = names(storage)
        storage.make_folder("")
        assert names(storage) == before

    def test_a_folder_is_removed_with_all_that_is_in_it(self, storage: Storage) -> None:
        for folder in ("units/deep", "units2"):
            storage.make_folder(folder)
        for name in ("units/a", "units/deep/a", "units2/a", "a"):
            storage.publish(name, [b"x"])
        storage.remove_folder("units")
        with pytest.raises(FileNotFoundError):
            storage.list("units")
        with pytest.raises(FileNotFoundError):
            storage.read("units/deep/a")
        assert names(storage, "units2") == {"a"}
        storage.remove_folder("units")
        storage.remove_folder("missing/folder")
        storage.make_folder("units")
        assert storage.list("units") == []

    def test_a_log_goes_on_at_its_end(self, storage: Storage) -> None:
        storage.make_folder("logs")
        with storage.append("logs/a") as log:
            assert log.writable()
            assert log.write(b"one\n") == 4
            assert storage.read("logs/a") == b"one\n"
            version = storage.stat("logs/a").version
        with storage.append("logs/a") as log:
            log.write(b"two\n")
        assert storage.read("logs/a") == b"one\ntwo\n"
        assert storage.stat("logs/a").version != version

    def test_a_lock_is_held_by_one_at_a_time(self, storage: Storage) -> None:
        with storage.locked("lock") as handles:
            assert all(type(handle) is int for handle in handles)
            with pytest.raises(BlockingIOError), storage.locked("lock"):
                pass
            with pytest.raises(BlockingIOError), storage.locked("lock"):
                pass
            with storage.locked("another"):
                pass
        with storage.locked("lock"):
            pass

    def test_a_lock_is_released_whatever_happens(self, storage: Storage) -> None:
        with pytest.raises(ZeroDivisionError), storage.locked("lock"):
            raise ZeroDivisionError
        with storage.locked("lock"):
            pass


def pieces_of(storage: Storage, data: bytes) -> Iterator[bytes]:
    """Bytes of a file that takes the place of `old`."""
    for byte in data:
        assert storage.read("old") == b"old"
        yield bytes([byte])
