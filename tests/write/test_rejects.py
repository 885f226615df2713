"""A unit's rejects: a line for each, none too many after an interruption, and no file where there are none."""

from __future__ import annotations

import errno
import json

import pytest

from tests.write.conftest import checksum, count_open_files, draft_bytes, published
from tokenmill.records import Reason, Reject, Unit
from tokenmill.storage.base import Storage
from tokenmill.storage.local import LocalDraft, LocalStorage
from tokenmill.storage.memory import MemoryStorage
from tokenmill.write.npy import DraftChangedError
from tokenmill.write.rejects import RejectsWriter

UNIT = Unit(7, (), (), 0)
BASE = "00007.rejects.jsonl"
NAME = f"units/{BASE}"


def reject(record: int, head: bytes = b"head", detail: str = "why", records: int = 1) -> Reject:
    return Reject(record=record, offset=100, reason=Reason.BROKEN_JSON, detail=detail, head=head, records=records)


def line(record: int, part: int = 0) -> bytes:
    """As it is written since version 1 of the format, key by key."""
    return (
        b'{"part": %d, "record": %d, "offset": 100, "reason": "broken_json", "detail": "why", "records": 1, '
        b'"head": "head"}\n' % (part, record)
    )


def test_rejects_are_written_with_the_number_of_their_record_in_the_part(storage: Storage) -> None:
    writer = RejectsWriter(storage, UNIT)
    writer.append([reject(0), reject(2)], 0, 10)
    writer.append([], 0, 13)
    writer.append([reject(1)], 3, 0)
    lines = line(10) + line(12) + line(1, 3)
    assert published(storage, "units") == {}
    assert (writer.size, writer.publish()) == (len(lines), checksum(lines))
    assert writer.size == len(lines)
    writer.close()
    assert published(storage, "units") == {BASE: lines}
    assert list(storage.drafts()) == []


def test_a_unit_without_rejects_has_no_list_of_them(storage: Storage) -> None:
    writer = RejectsWriter(storage, UNIT)
    writer.append([], 0, 0)
    assert (writer.size, writer.sync(), writer.publish()) == (0, 0, None)
    writer.close()
    assert published(storage, "units") == {}
    assert list(storage.drafts()) == []


def test_rejects_can_be_read_as_soon_as_they_are_told_of(storage: Storage) -> None:
    writer = RejectsWriter(storage, UNIT)
    for number in range(3):
        writer.append([reject(number)], 0, 0)
        assert draft_bytes(storage, NAME) == b"".join(line(n) for n in range(number + 1))
    writer.close()


def test_the_head_and_the_detail_of_a_reject_are_readable_whatever_they_were(storage: Storage) -> None:
    writer = RejectsWriter(storage, UNIT)
    writer.append([reject(0, b"\xff\xc3\xa9\x1b[2J\n", "é\u202e", records=0), reject(1, records=100)], 0, 0)
    writer.publish()
    data = storage.read(NAME)
    assert data.isascii()
    assert b"\x1b" not in data
    first, second = map(json.loads, data.splitlines())
    assert (first["head"], first["detail"], first["records"]) == ("\\xffé\x1b[2J\n", "é\u202e", 0)
    assert second["records"] == 100


@pytest.mark.parametrize("behind", [False, True], ids=["clean", "with more"])
def test_a_list_goes_on_where_it_was_forced_to_disk(storage: Storage, behind: bool) -> None:
    first = RejectsWriter(storage, UNIT)
    first.append([reject(0)], 0, 0)
    size, counted = first.sync(), first.checksum
    assert size == len(line(0))
    if behind:
        first.append([reject(1)], 0, 0)  # which nobody counted
    first.close()
    second = RejectsWriter(storage, UNIT, size, counted)
    assert second.size == size
    second.append([reject(1)], 0, 0)
    assert second.sync() == len(line(0) + line(1))
    assert second.publish() == checksum(line(0) + line(1))
    assert storage.read(NAME) == line(0) + line(1)


def test_a_list_to_which_nothing_is_added_is_published_as_it_was(storage: Storage) -> None:
    first = RejectsWriter(storage, UNIT)
    first.append([reject(0)], 0, 0)
    size, counted = first.sync(), first.checksum
    first.close()
    second = RejectsWriter(storage, UNIT, size, counted)
    assert (second.sync(), second.publish()) == (size, checksum(line(0)))
    assert storage.read(NAME) == line(0)


def test_rejects_of_a_run_that_nobody_counted_are_forgotten(storage: Storage) -> None:
    first = RejectsWriter(storage, UNIT)
    first.append([reject(5)], 0, 0)
    first.close()
    second = RejectsWriter(storage, UNIT)
    assert second.size == 0
    second.append([reject(0)], 0, 0)
    assert second.publish() == checksum(line(0))
    assert storage.read(NAME) == line(0)


def test_a_list_that_was_forced_to_disk_survives_a_power_loss_up_to_there() -> None:
    storage = MemoryStorage()
    writer = RejectsWriter(storage, UNIT)
    writer.append([reject(0)], 0, 0)
    assert list(storage.after_power_loss().drafts()) == []
    writer.sync()
    writer.append([reject(1)], 0, 0)
    assert draft_bytes(storage.after_power_loss(), NAME) == line(0)
    writer.sync()
    assert draft_bytes(storage.after_power_loss(), NAME) == line(0) + line(1)
    writer.publish()
    assert storage.after_power_loss().files() == {NAME: line(0) + line(1)}


def test_a_list_is_forced_to_disk_only_if_there_is_more_of_it() -> None:
    """There is a checkpoint for every chunk, and most units have no more rejects by then."""
    asked: list[str] = []
    storage = MemoryStorage(watch=lambda operation, _: asked.append(operation))
    writer = RejectsWriter(storage, UNIT)
    writer.sync()
    writer.append([reject(0)], 0, 0)
    writer.sync()
    writer.sync()
    assert asked.count("sync_draft") == 1
    writer.append([reject(1)], 0, 0)
    writer.sync()
    assert asked.count("sync_draft") == 2
    resumed = RejectsWriter(storage, UNIT, writer.size, writer.checksum)
    resumed.sync()  # it may have been unpublished, and its name in the draft folder not be on disk yet
    resumed.sync()
    assert asked.count("sync_draft") == 3


def test_a_list_that_cannot_be_continued_leaves_no_file_open(
    disk: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RejectsWriter(disk, UNIT)
    writer.append([reject(0)], 0, 0)
    before = count_open_files()
    writer.close()
    assert count_open_files() == before - 1

    def read(_: LocalDraft, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error", size)

    monkeypatch.setattr(LocalDraft, "read", read)
    with pytest.raises(OSError, match="Input/output error"):
        RejectsWriter(disk, UNIT, writer.size, writer.checksum)
    assert count_open_files() == before - 1


def test_a_list_that_was_changed_is_not_continued() -> None:
    storage = MemoryStorage()
    first = RejectsWriter(storage, UNIT)
    first.append([reject(0)], 0, 0)
    size, counted = first.sync(), first.checksum
    first.close()
    draft = storage.draft(NAME, size)
    draft.seek(3)
    draft.write(b"x")
    draft.close()
    with pytest.raises(DraftChangedError, match="rejects"):
        RejectsWriter(storage, UNIT, size, counted)
