"""The part of the contract of a storage that is about what is there after a power loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.storage.contract import names
from tokenmill.storage.base import Storage

Restart = Callable[[], Storage]


class DurabilityContract:
    """Of what was forced to disk nothing is lost, even where no more is saved than was asked for."""

    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        """With nothing in it, for good."""
        raise NotImplementedError

    @pytest.fixture
    def after_power_loss(self, storage: Storage) -> Restart:
        """Gives what is found if power is lost now, and nothing was saved that nobody asked for."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def folders(self, storage: Storage) -> None:
        for folder in ("chunks", "units"):
            storage.make_folder(folder)
        storage.sync()

    def test_folders_stay_once_the_one_above_is_synced(self, storage: Storage, after_power_loss: Restart) -> None:
        storage.make_folder("one/two")
        storage.sync("one")
        storage.publish("one/two/a", [b"x"])
        assert after_power_loss().read("one/two/a") == b"x"
        storage.remove_folder("one")
        storage.sync()
        with pytest.raises(FileNotFoundError):
            after_power_loss().list("one")

    @pytest.mark.parametrize("method", ["publish", "create"])
    def test_a_published_file_survives(self, storage: Storage, after_power_loss: Restart, method: str) -> None:
        for name in ("job", "units/a"):
            getattr(storage, method)(name, [b"o", b"ne"])
            assert after_power_loss().read(name) == b"one"

    def test_a_file_that_is_replaced_is_the_new_one(self, storage: Storage, after_power_loss: Restart) -> None:
        for data in (b"one", b"two"):
            storage.publish("units/a", [data])
            assert after_power_loss().read("units/a") == data

    def test_a_file_that_is_not_created_is_the_old_one(self, storage: Storage, after_power_loss: Restart) -> None:
        storage.publish("units/a", [b"one"])
        with pytest.raises(FileExistsError):
            storage.create("units/a", [b"two"])
        assert after_power_loss().read("units/a") == b"one"

    def test_what_was_removed_stays_so_once_its_folder_is_synced(
        self, storage: Storage, after_power_loss: Restart
    ) -> None:
        for name in ("a", "b"):
            storage.publish(f"units/{name}", [b"x"])
        storage.remove(["units/a"])
        storage.sync("units")
        assert names(after_power_loss(), "units") == {"b"}

    def test_synced_drafts_can_be_taken_up_again(self, storage: Storage, after_power_loss: Restart) -> None:
        with closing(storage.draft("chunks/a")) as one, closing(storage.draft("chunks/b")) as other:
            for size in (3, 6):
                for draft in (one, other):
                    draft.write(b"abc")
                storage.sync_drafts([one, other])
                for name in ("a", "b"):
                    with closing(after_power_loss().draft(f"chunks/{name}", size)) as found:
                        assert (found.seek(0), found.read(size)) == (0, b"abcabc"[:size])

    def test_a_draft_that_joins_others_later_is_kept_too(self, storage: Storage, after_power_loss: Restart) -> None:
        with closing(storage.draft("chunks/a")) as first, closing(storage.draft("chunks/b")) as second:
            storage.sync_drafts([first])
            second.write(b"x")
            storage.sync_drafts([first, second])
        assert dict(after_power_loss().drafts()) == {"a": 0, "b": 1}

    def test_a_draft_that_was_taken_up_is_kept_as_far_as_it_was_synced(
        self, storage: Storage, after_power_loss: Restart
    ) -> None:
        with closing(storage.draft("chunks/a")) as draft:
            draft.write(b"0123456789")
            storage.sync_drafts([draft])
        with closing(storage.draft("chunks/a", 4)) as draft:
            draft.write(b"xyz")
            storage.sync_drafts([draft])
        with after_power_loss().open_draft("chunks/a") as source:
            assert source.read() == b"0123xyz"

    def test_published_drafts_survive(self, storage: Storage, after_power_loss: Restart) -> None:
        drafts = [storage.draft(name) for name in ("chunks/a", "units/b")]
        for draft in drafts:
            draft.write(b"synced")
        storage.sync_drafts(drafts)
        for draft in drafts:
            draft.write(b" and more")
        storage.publish_drafts(drafts)
        found = after_power_loss()
        assert [found.read(draft.name) for draft in drafts] == [b"synced and more"] * 2

    def test_a_file_that_was_turned_back_is_kept_once_it_is_synced(
        self, storage: Storage, after_power_loss: Restart
    ) -> None:
        storage.publish("chunks/a", [b"0123456789"])
        storage.unpublish("chunks/a")
        with closing(storage.draft("chunks/a", 4)) as draft:
            storage.sync_drafts([draft])
        with after_power_loss().open_draft("chunks/a") as source:
            assert source.read() == b"0123"
