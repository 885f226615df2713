"""The part of the contract of a storage that is about files that grow."""

from __future__ import annotations

from array import array
from contextlib import closing

import pytest

from tokenmill.storage.base import Storage


def write(storage: Storage, name: str, data: bytes) -> None:
    """A draft that nobody holds."""
    with closing(storage.draft(name)) as draft:
        draft.write(data)


class DraftContract:
    @pytest.fixture
    def storage(self) -> Storage:
        """With nothing in it."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def folders(self, storage: Storage) -> None:
        for folder in ("chunks", "units"):
            storage.make_folder(folder)

    def test_nobody_sees_a_draft_before_it_is_published(self, storage: Storage) -> None:
        draft = storage.draft("chunks/a")
        draft.write(b"some")
        assert storage.list("chunks") == []
        with pytest.raises(FileNotFoundError):
            storage.read("chunks/a")
        assert dict(storage.drafts()) == {"a": 4}
        storage.publish_drafts([draft])
        assert storage.read("chunks/a") == b"some"
        assert list(storage.drafts()) == []

    def test_a_draft_is_written_read_and_written_over(self, storage: Storage) -> None:
        draft = storage.draft("chunks/a")
        assert draft.name == "chunks/a"
        draft.write(b"head....")
        draft.write(memoryview(array("H", [1, 2])))
        draft.write(b"")
        draft.write(memoryview(array("H")))
        assert (draft.seek(4), draft.read(100), draft.read(1)) == (4, b"...." + array("H", [1, 2]).tobytes(), b"")
        draft.write(b"end")
        draft.seek(0)
        draft.write(b"HEAD")
        assert draft.read(2) == b".."
        storage.publish_drafts([draft])
        assert storage.read("chunks/a") == b"HEAD...." + array("H", [1, 2]).tobytes() + b"end"

    def test_whoever_looks_sees_what_was_written_of_a_draft(self, storage: Storage) -> None:
        draft = storage.draft("chunks/a")
        draft.write(b"one\n")
        with storage.open_draft("chunks/a") as source:
            assert (source.stat.size, source.read()) == (4, b"one\n")
            before = source.stat.version
        draft.write(b"two\n")
        with storage.open_draft("chunks/a") as source:
            assert source.read() == b"one\ntwo\n"
            assert source.stat.version != before
        draft.close()
        with storage.open_draft("chunks/a") as source:
            assert source.read() == b"one\ntwo\n"
        with pytest.raises(FileNotFoundError):
            storage.open_draft("chunks/b")

    def test_a_draft_is_taken_up_behind_a_size_and_the_rest_is_cut_off(self, storage: Storage) -> None:
        write(storage, "chunks/a", b"0123456789")
        assert dict(storage.drafts()) == {"a": 10}
        draft = storage.draft("chunks/a", 6)
        assert dict(storage.drafts()) == {"a": 6}
        draft.write(b"x")
        assert (draft.seek(4), draft.read(10)) == (4, b"45x")
        storage.publish_drafts([draft])
        assert storage.read("chunks/a") == b"012345x"

    def test_only_as_much_of_a_draft_can_be_taken_up_as_there_is(self, storage: Storage) -> None:
        with pytest.raises(FileNotFoundError):
            storage.draft("chunks/a", 1)
        assert list(storage.drafts()) == []
        write(storage, "chunks/a", b"12")
        with pytest.raises(FileNotFoundError):
            storage.draft("chunks/a", 3)
        assert dict(storage.drafts()) == {"a": 2}
        storage.draft("chunks/a", 2).close()
        assert dict(storage.drafts()) == {"a": 2}

    def test_a_draft_that_is_begun_again_is_empty(self, storage: Storage) -> None:
        write(storage, "chunks/a", b"before")
        draft = storage.draft("chunks/a")
        assert dict(storage.drafts()) == {"a": 0}
        draft.write(b"x")
        storage.publish_drafts([draft])
        assert storage.read("chunks/a") == b"x"

    def test_a_draft_that_is_closed_stays_as_it_is(self, storage: Storage) -> None:
        draft = storage.draft("chunks/a")
        draft.write(b"x")
        draft.close()
        draft.close()
        with pytest.raises(ValueError, match="closed"):
            draft.write(b"y")
        with pytest.raises(ValueError, match="closed"):
            draft.read(1)
        with pytest.raises(ValueError, match="closed"):
            draft.seek(0)
        assert dict(storage.drafts()) == {"a": 1}

    def test_drafts_are_synced_and_published_together(self, storage: Storage) -> None:
        storage.publish("chunks/b", [b"the one before"])
        drafts = [storage.draft(name) for name in ("chunks/a", "chunks/b", "units/c")]
        for number, draft in enumerate(drafts):
            draft.write(b"%d" % number)
        storage.sync_drafts(drafts)
        assert dict(storage.drafts()) == {"a": 1, "b": 1, "c": 1}
        for draft in drafts:
            draft.write(b"!")
        storage.sync_drafts(drafts[:1])
        storage.publish_drafts(drafts)
        assert [storage.read(draft.name) for draft in drafts] == [b"0!", b"1!", b"2!"]
        assert list(storage.drafts()) == []
        with pytest.raises(ValueError, match="closed"):
            drafts[0].write(b"more")
        storage.sync_drafts([])
        storage.publish_drafts([])

    def test_a_draft_of_another_storage_is_refused(self, storage: Storage) -> None:
        class Foreign:
            name = "chunks/a"

            def write(self, data: bytes | memoryview, /) -> None: ...
            def read(self, size: int, /) -> bytes: ...  # type: ignore[empty-body]
            def seek(self, offset: int, /) -> int: ...  # type: ignore[empty-body]
            def close(self) -> None: ...

        for method in (storage.sync_drafts, storage.publish_drafts):
            with pytest.raises(TypeError, match="chunks/a is not a draft of this storage"):
                method([Foreign()])

    def test_a_published_file_is_turned_back_into_a_draft(self, storage: Storage) -> None:
        storage.publish("chunks/a", [b"published"])
        storage.unpublish("chunks/a")
        storage.unpublish("chunks/a")
        storage.unpublish("chunks/missing")
        assert storage.list("chunks") == []
        assert dict(storage.drafts()) == {"a": 9}
        draft = storage.draft("chunks/a", 6)
        draft.write(b"!")
        storage.publish_drafts([draft])
        assert storage.read("chunks/a") == b"publis!"

    def test_drafts_are_removed_by_base_name_or_all_of_them(self, storage: Storage) -> None:
        for name in ("chunks/a", "units/b", "c", "chunks/d"):
            storage.draft(name).close()
        storage.publish("chunks/a", [b"x"])
        storage.remove_drafts(name for name in ("a", "missing", "b"))
        assert {name for name, _ in storage.drafts()} == {"c", "d"}
        storage.remove_drafts([])
        assert {name for name, _ in storage.drafts()} == {"c", "d"}
        storage.remove_drafts()
        assert list(storage.drafts()) == []
        storage.remove_drafts()
        assert storage.read("chunks/a") == b"x"
        storage.draft("chunks/d").close()
        assert dict(storage.drafts()) == {"d": 0}
