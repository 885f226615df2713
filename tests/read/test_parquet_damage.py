"""Damaged Parquet: what is lost is told, and is the same wherever reading begins."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.sources import opened, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.read.parquet import ParquetReader
from tokenmill.records import Loss, Part, Reason, Reject


def rejects(data: bytes, offset: int | None = None) -> list[Reject]:
    blocks = ParquetReader(opened(data), Part(0), ReadOptions()).blocks(offset)
    return [reject for block in blocks for reject in block.parse().rejects]


def test_a_file_that_was_cut_off_is_lost_with_all_its_bytes() -> None:
    data = parquet_file([f"row {n}" for n in range(1000)])[:2000]
    (reject,) = rejects(data)
    assert (reject.reason, reject.loss) == (Reason.CORRUPT_FILE, Loss(unread_bytes=2000))


def test_a_value_that_cannot_be_read_is_one_lost_row() -> None:
    broken = pa.array([b"\xff", b"good"], pa.binary()).view(pa.string())
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": pa.ListArray.from_arrays([0, 1, 2], broken)}), buffer)
    assert [(r.reason, r.loss) for r in rejects(buffer.getvalue())] == [
        (Reason.CORRUPT_FILE, Loss(rows=1)),
        (Reason.TEXT_NOT_A_STRING, Loss()),
    ]


@pytest.mark.parametrize("long_first", [True, False])
def test_a_damaged_page_costs_the_same_rows_wherever_reading_begins(long_first: bool) -> None:
    """How many rows are asked for at once depends on the texts of the row group before, if that was read."""
    long, short = [f"{n} " + "x" * 9000 for n in range(200)], [f"{n}" * 5 for n in range(3000)]
    table = pa.table({"text": [*long, *short] if long_first else [*short[:200], *short]})
    buffer = io.BytesIO()
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(buffer, table.schema, data_page_size=5000, write_batch_size=64, **options) as writer:
        writer.write_table(table.slice(0, 200))
        writer.write_table(table.slice(200))
    data = bytearray(buffer.getvalue())
    data[data.rindex(b"17001700170017001700")] ^= 1

    def broken(offset: int | None) -> Reject:
        (reject,) = rejects(bytes(data), offset)
        return reject

    assert 1000 < broken(None).offset < 1900
    assert broken(None).loss.rows == 3200 - broken(None).offset
    assert broken(200) == broken(250) == broken(broken(None).offset) == broken(None)


FIRST, OTHER = (parquet_file([f"{name} {n}" for n in range(100)], row_group_size=40) for name in ("first", "other"))


def test_two_files_one_behind_the_other_are_damage() -> None:
    """The footer of the second one is applied to the first, whose rows pyarrow reads as if nothing were wrong."""
    (reject,) = rejects(FIRST + OTHER)
    assert (reject.reason, reject.offset, reject.loss) == (Reason.CORRUPT_FILE, 100, Loss(unread_bytes=len(FIRST)))
    assert f"begins at byte {len(FIRST)}. Two files were put one behind the other" in reject.detail
    assert rejects(FIRST) == rejects(OTHER) == []


def test_two_files_are_damage_once_wherever_reading_begins_and_ends() -> None:
    assert rejects(FIRST + OTHER, 70) == rejects(FIRST + OTHER, 100) == rejects(FIRST + OTHER)
    assert rejects(FIRST + OTHER, 101) == []
    parts = [Part(0, 0, 2), Part(0, 2, 3)]
    readers = [ParquetReader(opened(FIRST + OTHER), part, ReadOptions()) for part in parts]
    found = [sum(len(block.parse().rejects) for block in reader.blocks(None)) for reader in readers]
    assert found == [0, 1]
