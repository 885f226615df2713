"""Damaged inputs: places are put together by part and by file, and told in a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.outputs import file
from tokenmill.output.damage import damaged_file, describe_damage, with_rejects
from tokenmill.output.schema import DamagedFile
from tokenmill.records import Damage, Format, Loss, Reason, Reject


def reject(record: int, loss: Loss, reason: Reason = Reason.CORRUPT_FILE) -> Reject:
    return Reject(record=record, offset=100 + record, reason=reason, detail=f"place {record}", loss=loss)


def damage(**changes: Any) -> Damage:
    known: dict[str, Any] = {"part": 0, "reason": Reason.CORRUPT_FILE, "detail": "place 2", "record": 12, "offset": 102}
    return Damage(**known | {"places": 1, "lost_rows": 3, "unread_bytes": None} | changes)


def test_the_first_place_of_a_part_is_kept_and_all_are_counted() -> None:
    found = with_rejects((), 0, 10, [reject(1, Loss(), Reason.TOO_LARGE), reject(2, Loss(rows=3))])
    assert found == (damage(),)
    found = with_rejects(found, 0, 20, [reject(0, Loss(rows=4)), reject(1, Loss(unread_bytes=7))])
    assert found == (damage(places=3, lost_rows=7, unread_bytes=7),)
    found = with_rejects(found, 2, 0, [reject(5, Loss(), Reason.TRUNCATED_FILE)])
    assert found[1:] == (
        damage(part=2, reason=Reason.TRUNCATED_FILE, detail="place 5", record=5, offset=105, lost_rows=None),
    )
    assert with_rejects(found, 2, 9, [reject(0, Loss(), Reason.BROKEN_JSON)]) == found


def test_the_parts_of_a_file_are_put_together_and_records_are_those_of_the_file() -> None:
    table = file("a.parquet", Format.PARQUET, size=50)
    first = damaged_file(damage(), table, 101, None)
    assert first == DamagedFile(
        reason=Reason.CORRUPT_FILE,
        detail="place 2",
        record=113,
        offset=None,
        places=1,
        lost_rows=3,
        unread_bytes=None,
        size=50,
    )
    second = damaged_file(damage(part=1, detail="later", places=2, unread_bytes=9), table, 500, first)
    assert second == msgspec.structs.replace(first, places=3, lost_rows=6, unread_bytes=9)


def test_the_place_in_a_file_of_lines_is_a_byte_and_a_line_if_anybody_knows() -> None:
    found = damaged_file(damage(), file("a.jsonl.gz"), None, None)
    assert (found.record, found.offset) == (None, 102)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "corrupt_file at record 1,013: no; 1 row is missing"),
        (
            {"lost_rows": 2000, "places": 2},
            "at record 1,013: no, and 1 more place; 2,000 rows are missing",
        ),
        ({"detail": "no."}, "corrupt_file at record 1,013: no; 1 row is missing"),
        ({"lost_rows": 0}, "no; no row is known to be missing"),
        ({"record": None, "lost_rows": None}, "corrupt_file: no; how much is missing cannot be told"),
        ({"lost_rows": None, "unread_bytes": 25}, "at record 1,013: no; 12.5 % of its bytes could not be read"),
        ({"unread_bytes": 200}, "no; 1 row is missing and 100 % of its bytes could not be read"),
        ({"lost_rows": None, "unread_bytes": 0, "size": 0}, "no; how much is missing cannot be told"),
    ],
)
def test_damage_is_told_with_its_place_and_what_is_missing(changes: dict[str, Any], said: str) -> None:
    known: dict[str, Any] = {"reason": Reason.CORRUPT_FILE, "detail": "no", "record": 1013, "offset": 5, "places": 1}
    found = DamagedFile(**known | {"lost_rows": 1, "unread_bytes": None, "size": 200} | changes)
    assert describe_damage(found).endswith(said)
