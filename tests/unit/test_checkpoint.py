"""Checkpoints: what each says, when one is made, and that nothing it says is less safe than itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeConfig, texts
from tests.support.jobs import prepare
from tests.support.units import ByteEncoder, StopError, stop_at, unit_job
from tokenmill.errors import OutputError
from tokenmill.output.schema import Checkpoint, read_checkpoint
from tokenmill.records import EMPTY, ChunkEntry, Damage, Ledger, Loss, Part, Partial, Reason, Reject, Unit
from tokenmill.storage.memory import MemoryStorage
from tokenmill.unit.checkpoint import Position, beginning
from tokenmill.write.rejects import RejectsWriter


def chunk_entry(name: str) -> ChunkEntry:
    return ChunkEntry(name=name, rows=1, tokens=4, documents=1, xxh3="", docs_xxh3="")


def unit_of_parts(count: int) -> Unit:
    file = unit_job({"a.jsonl": texts("a")}).unit.files[0]
    return Unit(0, tuple(Part(n) for n in range(count)), (file,) * count, 0)


def broken(record: int) -> Reject:
    return Reject(record=record, offset=9, reason=Reason.CORRUPT_FILE, detail="no", loss=Loss(rows=2))


def damage(part: int, record: int) -> Damage:
    return Damage(
        part=part,
        reason=Reason.CORRUPT_FILE,
        detail="no",
        record=record,
        offset=9,
        places=1,
        lost_rows=2,
        unread_bytes=None,
    )


def test_a_unit_of_which_nothing_is_done_begins_at_its_first_part() -> None:
    start = beginning(unit_of_parts(3), {1: "gone"})
    assert (start.part, start.offset, start.skip, start.lines) == (0, None, 0, (0, 0, 0))
    assert (start.ledger, start.chunks, start.rejects_bytes, start.partial) == (Ledger(), (), 0, EMPTY)
    assert start.missing == {1: "gone"}


def test_a_checkpoint_counts_what_came_before_the_block_that_is_being_written() -> None:
    """A restart reads that block again, and passes over what is written of it."""
    position = Position(beginning(unit_of_parts(2), {}))
    rejects = RejectsWriter(MemoryStorage(), unit_of_parts(2))
    position.begin_block(0, 0, 0, rejects)
    position.end_block(0, 5, Ledger(records=5, documents=5), [broken(4)])
    rejects.append([broken(4)], 0, 0)
    size, checksum = rejects.size, rejects.checksum
    position.begin_block(1, 70, -3, rejects)
    rejects.append([broken(5)], 0, 0)
    position.into_block += 9
    position.chunks.append(chunk_entry("00000-0000"))
    partial = Partial(tokens=4, documents=1, ids_bytes=2)
    found = position.checkpoint(partial)
    position.end_block(1, 2, Ledger(records=2, rejected=2, rejects_by_reason={"too_large": 2}), [broken(1)])
    assert found == Checkpoint(
        unit=0,
        part=1,
        offset=70,
        skip=6,
        ledger=Ledger(records=5, documents=5),
        chunks=(chunk_entry("00000-0000"),),
        lines=(5, 0),
        rejects_bytes=size,
        rejects_xxh3=checksum,
        missing={},
        damaged=(damage(0, 4),),
        partial=partial,
    )
    assert position.damaged == (damage(0, 4), damage(1, 1))
    assert position.ledger.records == 7
    assert position.lines == [5, 2]


def test_a_position_does_not_change_the_checkpoint_that_it_starts_from() -> None:
    ledger = Ledger(records=1, rejected=1, rejects_by_reason={"too_large": 1})
    start = Checkpoint(
        unit=0,
        part=0,
        offset=3,
        skip=0,
        ledger=ledger,
        chunks=(),
        lines=(1,),
        rejects_bytes=7,
        missing={0: "gone"},
    )
    position = Position(start)
    position.end_block(0, 1, Ledger(records=1, rejected=1, rejects_by_reason={"too_large": 1}), [])
    assert (start.ledger.records, start.ledger.rejects_by_reason) == (1, {"too_large": 1})
    assert position.ledger.rejects_by_reason == {"too_large": 2}
    assert position.checkpoint() == start  # no block has begun since


def test_a_checkpoint_says_where_to_go_on() -> None:
    """Of one block: it begins at 0, and what is in chunks of it is passed over."""
    job = unit_job({"a.jsonl": texts("abcdefghijk", "m")}, sequences_per_chunk=1)
    with pytest.raises(StopError):
        job.run(checkpointed=stop_at(2))
    checkpoint = job.setup.receipts.checkpoint(job.unit)
    assert checkpoint is not None
    assert (checkpoint.part, checkpoint.offset, checkpoint.skip) == (0, 0, 8)
    assert [c.name for c in checkpoint.chunks] == ["00000-0000", "00000-0001"]
    assert (checkpoint.ledger, checkpoint.lines, checkpoint.rejects_bytes) == (Ledger(), (0,), 0)


class Recorded(MemoryStorage):
    """Keeps every version of a checkpoint that was published."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[Checkpoint] = []

    def publish(self, name: str, pieces: Iterable[bytes]) -> None:
        data = b"".join(pieces)
        if name.endswith(".checkpoint.json"):
            self.checkpoints.append(read_checkpoint(data))
        super().publish(name, [data])


@pytest.mark.parametrize(("engine", "batches"), [("streaming", False), ("enhanced", True)])
def test_a_checkpoint_is_made_for_every_chunk_and_in_enhanced_for_every_batch(
    inputs: Path, config: MakeConfig, engine: str, batches: bool
) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*["x" * 7] * 20))
    storage = Recorded()
    prepare(config(engine=engine, sequences_per_chunk=10, batch_size=2)).run(storage)
    assert [len(c.chunks) for c in storage.checkpoints if not c.partial.tokens] == [1, 2]
    assert any(c.partial.tokens for c in storage.checkpoints) == batches


def watched(**options: Any) -> list[tuple[str, str]]:
    """The operations, in order, by which a unit with rejects and some chunks is written."""
    operations: list[tuple[str, str]] = []
    storage = MemoryStorage(watch=lambda operation, name: operations.append((operation, name)))
    lines = b"broken\n" + texts("abcdefghi") + b"[]\n"
    unit_job({"a.jsonl": lines}, storage=storage, sequences_per_chunk=1, **options).run()
    return operations


def test_rejects_are_safe_before_a_checkpoint_or_a_receipt_counts_them() -> None:
    rejects, checkpoint, receipt = (f"units/00000.{kind}" for kind in ("rejects.jsonl", "checkpoint.json", "json"))
    order = [(o, n) for o, n in watched() if (o, n) == ("sync_draft", rejects) or o.startswith("publish")]
    units = [(o, n) for o, n in order if n.startswith("units/")]
    assert units == [
        ("sync_draft", rejects),
        ("publish", checkpoint),
        ("publish", checkpoint),  # no reject came in between
        ("publish_draft", rejects),
        ("publish", receipt),
    ]


def test_a_chunk_is_published_before_a_checkpoint_or_a_receipt_names_it() -> None:
    order = [n for o, n in watched(id_field="id") if o.startswith("publish")]
    for number, marker in enumerate(["00000.checkpoint.json", "00000.checkpoint.json", "00000.json"]):
        chunk = [f"chunks/00000-000{number}{suffix}" for suffix in (".npy", ".docs.npy", ".ids.jsonl")]
        place = order.index(f"units/{marker}")
        assert set(chunk) <= set(order[:place]), marker
        order = order[place + 1 :]


def test_an_incomplete_chunk_is_safe_before_a_checkpoint_tells_of_it() -> None:
    operations: list[tuple[str, str]] = []
    storage = MemoryStorage(watch=lambda operation, name: operations.append((operation, name)))
    job = unit_job({"a.jsonl": texts("abcdef")}, storage=storage, id_field="id")
    with pytest.raises(StopError):
        job.run(checkpoint_batches=True, checkpointed=stop_at(1))
    *synced, last = [n for o, n in operations if o in ("sync_draft", "publish")]
    assert synced == [f"chunks/00000-0000{suffix}" for suffix in (".npy", ".docs.npy", ".ids.jsonl")]
    assert last == "units/00000.checkpoint.json"


def test_a_checkpoint_that_cannot_be_written_ends_the_unit() -> None:
    """It would go on from there otherwise, and start over after a crash."""

    def full(operation: str, name: str) -> None:
        if operation == "publish" and name.endswith(".checkpoint.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    job = unit_job({"a.jsonl": texts("abcdefghi")}, storage=MemoryStorage(watch=full), sequences_per_chunk=1)
    with pytest.raises(OutputError, match=r"cannot write unit 00000 .* No space left on device"):
        job.run(encoder=ByteEncoder())
    assert job.published("chunks").keys() == {"00000-0000.npy", "00000-0000.docs.npy"}
