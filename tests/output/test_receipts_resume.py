"""Where an interrupted unit goes on, and that nothing stands for what is gone while a unit is undone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.outputs import (
    UNIT,
    checkpoint_of,
    chunk_entry,
    chunk_files,
    draft_names,
    names_after_power_loss,
    publish_chunk,
    put,
    receipt_of,
    receipts_in,
    write_draft,
)
from tokenmill.output.open import output_storage
from tokenmill.output.receipts import Receipts
from tokenmill.output.schema import Checkpoint, checkpoint_text, to_text
from tokenmill.records import EMPTY, Partial, Unit
from tokenmill.storage.base import Storage
from tokenmill.storage.memory import MemoryStorage

# Where to go on

PARTIAL = Partial(tokens=8, documents=1, ids_bytes=3)
NEXT = chunk_entry(2, ids_xxh3="c")
"""What there is of the third chunk of the checkpoint."""


@pytest.fixture
def begun(storage: MemoryStorage) -> MemoryStorage:
    """A unit that was interrupted: two chunks, some of a third, some rejects."""
    for chunk in checkpoint_of().chunks:
        publish_chunk(storage, chunk)
    for name, data in chunk_files(NEXT).items():
        write_draft(storage, f"chunks/{name}", data)
    write_draft(storage, "units/00007.rejects.jsonl", b"x" * 9)
    receipts_in(storage).save_checkpoint(UNIT, checkpoint_of(partial=PARTIAL))
    return storage


def continues(storage: Storage, **changes: object) -> bool:
    """Whether the interrupted unit can go on, or could if its checkpoint said something else."""
    receipts = receipts_in(storage)
    receipts.save_checkpoint(UNIT, checkpoint_of(**{"partial": PARTIAL} | changes))
    return receipts.checkpoint(UNIT) is not None


@pytest.mark.parametrize("offset", [None, 0, 20])
def test_a_checkpoint_comes_back_as_it_was_saved(begun: MemoryStorage, offset: int | None) -> None:
    saved = checkpoint_of(offset=offset, partial=PARTIAL)
    receipts_in(begun).save_checkpoint(UNIT, saved)
    before = draft_names(begun)
    assert receipts_in(begun).checkpoint(UNIT) == saved
    assert draft_names(begun) == before


def test_a_checkpoint_of_chunks_alone_needs_no_drafts(begun: MemoryStorage) -> None:
    begun.remove_drafts()
    saved: Checkpoint = checkpoint_of(partial=EMPTY, rejects_bytes=0)
    receipts_in(begun).save_checkpoint(UNIT, saved)
    assert receipts_in(begun).checkpoint(UNIT) == saved


def test_a_checkpoint_counts_if_all_that_was_counted_is_there(begun: MemoryStorage) -> None:
    names = [f"chunks/{name}" for name in chunk_files(NEXT)] + ["units/00007.rejects.jsonl"]
    assert draft_names(begun) == {name.partition("/")[2] for name in names}
    for name in names:
        assert continues(begun)
        with begun.open_draft(name) as source:
            data = source.read()
        write_draft(begun, name, data + b"x")  # what was written after it was counted
        assert continues(begun)
        write_draft(begun, name, data[:-1])
        assert not continues(begun)
        begun.remove_drafts([name.partition("/")[2]])
        assert not continues(begun)
        write_draft(begun, name, data)
    assert continues(begun)
    for more in ({"tokens": 9}, {"documents": 2}, {"ids_bytes": 4}):
        assert not continues(begun, partial=msgspec.structs.replace(PARTIAL, **more))
    assert not continues(begun, rejects_bytes=10)
    other_unit = msgspec.structs.replace(UNIT, index=8)
    receipts_in(begun).save_checkpoint(other_unit, checkpoint_of(partial=PARTIAL))
    assert receipts_in(begun).checkpoint(other_unit) is None
    other = Receipts(begun, 4, np.dtype("<u4"))
    assert other.checkpoint(UNIT) is None


CHECKPOINT = "units/00007.checkpoint.json"


def is_dropped(storage: MemoryStorage, data: bytes, caplog: pytest.LogCaptureFixture) -> bool:
    """With a warning, once, and for good."""
    storage.publish(CHECKPOINT, [data])
    caplog.clear()
    assert receipts_in(storage).checkpoint(UNIT) is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith(f"memory:{CHECKPOINT} is damaged (")
    assert caplog.messages[0].endswith("): unit 00007 starts over")
    return not any(entry.name == "00007.checkpoint.json" for entry in storage.list("units"))


def test_a_checkpoint_with_any_byte_changed_is_dropped(begun: MemoryStorage, caplog: pytest.LogCaptureFixture) -> None:
    data = begun.read(CHECKPOINT)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        assert is_dropped(begun, bytes(changed), caplog)
    for changed_size in (data[:-1], data + b"\n", data[1:], b"", data[:40], b"[" * 100_000):
        assert is_dropped(begun, bytes(changed_size), caplog)
    begun.publish(CHECKPOINT, [data])
    assert receipts_in(begun).checkpoint(UNIT) is not None


def test_a_checkpoint_of_before_there_were_checksums_is_dropped(
    begun: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_dropped(begun, to_text(checkpoint_of(partial=PARTIAL)).encode(), caplog)


def test_a_checkpoint_of_another_unit_is_dropped(begun: MemoryStorage, caplog: pytest.LogCaptureFixture) -> None:
    for other in (checkpoint_of(unit=8, partial=PARTIAL), checkpoint_of(lines=(3,), partial=PARTIAL)):
        assert is_dropped(begun, checkpoint_text(other).encode(), caplog)


def test_damaged_checkpoints_are_dropped_before_any_worker_looks(
    begun: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    other = msgspec.structs.replace(UNIT, index=8)
    begun.publish("units/00008.checkpoint.json", [b"{}"])
    receipts_in(begun).drop_damaged_checkpoints([UNIT, other])
    assert len(caplog.messages) == 1
    assert {entry.name for entry in begun.list("units")} == {"00007.checkpoint.json"}


def test_a_checkpoint_counts_only_with_its_chunks(begun: MemoryStorage) -> None:
    for chunk in checkpoint_of().chunks:
        for name, data in chunk_files(chunk).items():
            begun.remove([f"chunks/{name}"])
            assert not continues(begun)
            put(begun, f"chunks/{name}", data=data)
    assert continues(begun)


def test_an_incomplete_chunk_needs_no_file_for_what_there_is_none_of(begun: MemoryStorage) -> None:
    begun.remove_drafts(["00007-0002.docs.npy", "00007-0002.ids.jsonl", "00007.rejects.jsonl"])
    assert continues(begun, partial=Partial(tokens=8), rejects_bytes=0)
    assert not continues(begun, partial=Partial(tokens=8, ids_bytes=1), rejects_bytes=0)
    assert not continues(begun, partial=Partial(tokens=8, documents=1), rejects_bytes=0)


def test_a_unit_that_went_on_without_a_file_begins_again(begun: MemoryStorage) -> None:
    assert not continues(begun, missing={0: "gone"})


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_what_was_published_after_its_checkpoint_is_taken_back(
    begun: MemoryStorage, tmp_path: Path, disk: bool
) -> None:
    """The run died between two moves, or before the next checkpoint."""
    storage: Storage = begun
    names = ["chunks/00007-0002.npy", "chunks/00007-0002.ids.jsonl", "units/00007.rejects.jsonl"]
    before = draft_names(begun)
    if disk:
        storage = on_disk(begun, tmp_path / "out")
    storage.publish_drafts([storage.draft(name, size) for name in names for size in (size_of(storage, name),)])
    assert draft_names(storage) == {"00007-0002.docs.npy"}
    assert continues(storage)
    assert draft_names(storage) == before
    for name in names:
        with pytest.raises(FileNotFoundError):
            storage.stat(name)


def on_disk(memory: MemoryStorage, folder: Path) -> Storage:
    storage = output_storage(folder)
    for name in ("tmp", "chunks", "units"):
        storage.make_folder(name)
    for name, data in memory.files().items():
        storage.publish(name, [data])
    for name, _ in memory.drafts():
        with memory.open_draft(name) as source:
            write_draft(storage, name, source.read())
    return storage


def size_of(storage: Storage, name: str) -> int:
    return dict(storage.drafts())[name.partition("/")[2]]


def test_a_chunk_that_nobody_goes_on_with_stays_where_it_is(begun: MemoryStorage) -> None:
    begun.remove_drafts(chunk_files(NEXT))
    publish_chunk(begun, NEXT)
    assert continues(begun, partial=EMPTY)
    assert set(chunk_files(NEXT)) <= {entry.name for entry in begun.list("chunks")}
    # Nor is one taken back over what is in its place.
    for name, data in chunk_files(NEXT).items():
        write_draft(begun, f"chunks/{name}", data + b"x")
    assert continues(begun)
    assert set(chunk_files(NEXT)) <= {entry.name for entry in begun.list("chunks")}


# What is removed


def test_what_was_written_after_a_checkpoint_is_removed(begun: MemoryStorage) -> None:
    for number in (2, 3, 5):
        publish_chunk(begun, chunk_entry(number))
    put(begun, "chunks/00007-0004.ids.jsonl")  # all that is left of that one
    put(begun, "chunks/00008-0002.npy", "units/00007.rejects.jsonl")
    before, kept = draft_names(begun), set(begun.files())
    receipts_in(begun).remove_after(UNIT, checkpoint_of())
    gone = kept - set(begun.files())
    of_chunks = {name for number in (2, 3, 5) for name in chunk_files(chunk_entry(number))} | {"00007-0004.ids.jsonl"}
    assert gone == {f"chunks/{name}" for name in of_chunks} | {"units/00007.rejects.jsonl"}
    assert draft_names(begun) == before
    receipts_in(begun).remove_after(UNIT, checkpoint_of(rejects_bytes=0))
    assert draft_names(begun) == before - {"00007.rejects.jsonl"}
    receipts_in(begun).remove_after(UNIT, checkpoint_of(rejects_bytes=0))


def test_a_unit_is_undone_with_all_its_files_and_no_others(begun: MemoryStorage) -> None:
    put(begun, "units/00007.json", "units/00007.rejects.jsonl")
    put(begun, *(others := ["units/00008.json", "chunks/00008-0000.npy", "job.json"]))
    for name in ("chunks/00008-0000.npy", "units/00007.json"):
        write_draft(begun, name)
    receipts_in(begun).reset([UNIT])
    assert set(begun.files()) == set(others)
    assert draft_names(begun) == {"00008-0000.npy", "00007.json"}
    receipts_in(begun).reset([UNIT])


def test_undoing_nothing_touches_nothing() -> None:
    def watch(operation: str, _name: str) -> None:
        raise AssertionError(operation)

    receipts_in(MemoryStorage(watch=watch)).reset([])


def test_no_receipt_or_checkpoint_stands_for_what_is_gone_at_any_step(storage: MemoryStorage) -> None:
    """Nor after a power loss at any step."""
    receipts = receipts_in(storage)
    units: list[Unit] = []
    for index in (7, 8):
        unit = msgspec.structs.replace(UNIT, index=index)
        chunk = chunk_entry(unit=unit)
        publish_chunk(storage, chunk)
        put(storage, f"units/{unit.name}.rejects.jsonl", data=b"x")
        receipts.save_checkpoint(unit, checkpoint_of(chunks=(chunk,), rejects_bytes=0, partial=EMPTY))
        write = to_text(receipt_of(index, chunks=(chunk,), rejects_bytes=1)).encode()
        put(storage, f"units/{unit.name}.json", data=write)
        units.append(unit)
    steps = []

    def watch(operation: str, name: str) -> None:
        steps.append(f"{operation} {name}")
        for names in names_after_power_loss(storage):
            for unit in units:
                needed = {f"chunks/{unit.name}-0000{suffix}" for suffix in (".npy", ".docs.npy")}
                if names & {f"units/{unit.name}.json", f"units/{unit.name}.checkpoint.json"}:
                    assert needed | {f"units/{unit.name}.rejects.jsonl"} <= names, steps

    storage.watch = watch
    receipts.reset(units)
    assert len(steps) > 10
    assert storage.files() == {}
