"""What an output knows of a unit: its receipt, when it is finished, and what damage is called."""

from __future__ import annotations

import errno
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.outputs import (
    UNIT,
    checkpoint_of,
    chunk_entry,
    chunk_files,
    publish_chunk,
    put,
    receipt_of,
    receipts_in,
)
from tests.support.units import unit_job
from tokenmill.errors import OutputError
from tokenmill.output.open import output_storage
from tokenmill.output.receipts import REMOVE, Receipts, found_damaged
from tokenmill.output.schema import to_text
from tokenmill.records import ChunkEntry
from tokenmill.storage.memory import MemoryStorage


@pytest.fixture
def receipts(storage: MemoryStorage) -> Receipts:
    return receipts_in(storage)


# Damage


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyError("x"), IndexError(), TypeError(), AttributeError(), OverflowError(), RecursionError()],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_damaged_file_leads_to_is_called_damage(error: Exception) -> None:
    with pytest.raises(OutputError) as found, found_damaged("a"):
        raise error
    assert str(found.value) == f"a is damaged ({error!r}). {REMOVE}"
    assert found.value.__cause__ is error


def test_a_file_that_cannot_be_read_is_not_called_damaged() -> None:
    with pytest.raises(OutputError) as found, found_damaged("a", "Do this"):
        raise OSError(errno.EIO, "Input/output error")
    assert str(found.value) == "a cannot be read: Input/output error. Fix this and run the command again"
    with pytest.raises(OutputError, match=r"^a cannot be read: strange\. Fix this"), found_damaged("a"):
        raise OSError("strange")


@pytest.mark.parametrize("number", [errno.EISDIR, errno.EINVAL, errno.ENOTDIR, errno.ENOENT, errno.ELOOP])
def test_what_is_in_the_place_of_a_file_has_to_go(number: int) -> None:
    with pytest.raises(OutputError, match=r"^a cannot be read: .*\. Do this$"), found_damaged("a", "Do this"):
        raise OSError(number, os.strerror(number))


def test_an_error_that_says_what_to_do_and_a_defect_go_through() -> None:
    for error in (OutputError("do that"), AssertionError("a defect"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as found, found_damaged("a"):
            raise error
        assert found.value is error


# Receipts and checkpoints


def test_what_is_not_there_is_none(receipts: Receipts) -> None:
    assert receipts.receipt(UNIT) is None
    assert receipts.finished(UNIT) is None
    assert receipts.checkpoint(UNIT) is None


def test_a_receipt_ends_a_unit(storage: MemoryStorage, receipts: Receipts) -> None:
    receipts.save_checkpoint(UNIT, checkpoint_of())
    receipts.commit(UNIT, receipt_of())
    assert receipts.receipt(UNIT) == receipt_of()
    assert storage.files() == {"units/00007.json": to_text(receipt_of()).encode()}
    receipts.commit(UNIT, receipt_of(lines=(4, 4)))
    assert receipts.receipt(UNIT) == receipt_of(lines=(4, 4))


def test_a_receipt_is_there_for_good_before_its_checkpoint_goes(storage: MemoryStorage, receipts: Receipts) -> None:
    receipts.save_checkpoint(UNIT, checkpoint_of())
    found = []
    storage.watch = lambda operation, _name: found.append(operation)
    receipts.commit(UNIT, receipt_of())
    assert found == ["publish", "remove"]
    assert set(storage.after_power_loss().files()) == {"units/00007.json", "units/00007.checkpoint.json"}


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "\xff", '{"unit": 7}', "[" * 100_000], ids=lambda c: c[:9])
def test_a_damaged_receipt_is_named_with_its_way_out(storage: MemoryStorage, receipts: Receipts, content: str) -> None:
    put(storage, "units/00007.json", data=content.encode("latin-1"))
    with pytest.raises(OutputError) as error:
        receipts.receipt(UNIT)
    assert str(error.value).startswith("memory:units/00007.json is damaged (")
    assert str(error.value).endswith(f"). {REMOVE}")


def test_a_receipt_with_a_key_more_or_less_is_damaged(storage: MemoryStorage, receipts: Receipts) -> None:
    data = json.loads(to_text(receipt_of()))
    fewer = {key: value for key, value in data.items() if key != "missing"}
    without_zero = data | {"ledger": {}}
    for changed in (data | {"more": 1}, fewer, without_zero):
        put(storage, "units/00007.json", data=json.dumps(changed).encode())
        with pytest.raises(OutputError, match="is damaged"):
            receipts.receipt(UNIT)


def test_a_file_that_cannot_be_read_is_named(storage: MemoryStorage, receipts: Receipts) -> None:
    def watch(_operation: str, _name: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    storage.watch = watch
    for look in (receipts.receipt, receipts.checkpoint):
        with pytest.raises(OutputError, match=r"json cannot be read: Input/output error\. Fix this and run"):
            look(UNIT)


# What is finished


def finished_with(storage: MemoryStorage, chunk: ChunkEntry) -> bool:
    receipts = receipts_in(storage)
    receipts.commit(UNIT, receipt_of(chunks=(chunk,)))
    return receipts.finished(UNIT) is not None


def test_a_chunk_is_there_if_its_files_have_the_right_size(storage: MemoryStorage) -> None:
    chunk = chunk_entry()
    assert not finished_with(storage, chunk)
    publish_chunk(storage, chunk)
    assert finished_with(storage, chunk)
    for changes in ({"rows": 3}, {"rows": 1}, {"documents": 2}, {"documents": 0}, {"ids_xxh3": "c"}):
        assert not finished_with(storage, msgspec.structs.replace(chunk, **changes))
    assert finished_with(storage, chunk)
    assert Receipts(storage, 5, np.dtype("<u2")).finished(UNIT) is None
    assert Receipts(storage, 4, np.dtype("<u4")).finished(UNIT) is None
    for name, data in chunk_files(chunk).items():
        for wrong in (data[:-1], data + b"x"):
            put(storage, f"chunks/{name}", data=wrong)
            assert not finished_with(storage, chunk)
        storage.remove([f"chunks/{name}"])
        assert not finished_with(storage, chunk)
        put(storage, f"chunks/{name}", data=data)
    put(storage, "chunks/00007-0000.ids.jsonl")
    assert finished_with(storage, msgspec.structs.replace(chunk, ids_xxh3="c"))


def test_every_chunk_of_a_unit_must_be_there(storage: MemoryStorage, receipts: Receipts) -> None:
    chunks = [chunk_entry(number) for number in range(3)]
    receipts.commit(UNIT, receipt_of(chunks=tuple(chunks)))
    for chunk in chunks:
        assert receipts.finished(UNIT) is None
        publish_chunk(storage, chunk)
    assert receipts.finished(UNIT) == receipt_of(chunks=tuple(chunks))


def test_rejects_are_there_if_as_many_bytes_are_as_were_counted(storage: MemoryStorage, receipts: Receipts) -> None:
    def finished(size: int) -> bool:
        receipts.commit(UNIT, receipt_of(rejects_bytes=size))
        return receipts.finished(UNIT) is not None

    assert [finished(size) for size in (0, 1)] == [True, False]
    put(storage, "units/00007.rejects.jsonl", data=b"abc")
    assert [finished(size) for size in (2, 3, 4)] == [False, True, False]


def test_a_unit_without_a_file_is_not_finished(receipts: Receipts) -> None:
    receipts.commit(UNIT, receipt_of())
    assert receipts.finished(UNIT) == receipt_of()
    receipts.commit(UNIT, receipt_of(missing={0: "gone"}))
    assert receipts.finished(UNIT) is None
    assert receipts.receipt(UNIT) == receipt_of(missing={0: "gone"})


def test_a_unit_is_finished_if_its_receipt_and_all_it_stands_for_are_there(tmp_path: Path) -> None:
    """One that was run, on a disk."""
    job = unit_job({"a.jsonl": b'{"text": "abc"}\nbroken\n'}, folder=tmp_path)
    receipts = job.setup.receipts
    assert receipts.finished(job.unit) is None
    done = job.run()
    assert receipts.finished(job.unit) == done
    for name in ("chunks/00000-0000.npy", "chunks/00000-0000.docs.npy", "units/00000.rejects.jsonl"):
        path = tmp_path / "out" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert receipts.finished(job.unit) is None
        path.write_bytes(content)
    assert receipts.finished(job.unit) == done


def test_a_unit_that_is_run_again_is_as_it_was(tmp_path: Path) -> None:
    job = unit_job({"a.jsonl": b'{"text": "abc"}\nbroken\n'}, folder=tmp_path)
    job.run()
    before = job.published()
    job.setup.receipts.reset([job.unit])
    assert job.published() == {}
    job.run()
    assert job.published() == before


def test_receipts_are_sent_to_a_worker_as_they_are(tmp_path: Path) -> None:
    receipts = receipts_in(output_storage(tmp_path))
    assert pickle.loads(pickle.dumps(receipts)) == receipts
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(replace(receipts, storage=MemoryStorage()))
