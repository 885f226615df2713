"""The end of a job: receipts add up, record numbers become absolute, and the manifest says all of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

import tokenmill
from tests.conftest import MakeConfig, SmallUnits, documents, rejects, texts
from tests.support.jobs import prepare
from tests.support.outputs import (
    chunk_entry,
    file,
    plan_of,
    receipt_of,
    receipts_in,
    reject_line,
    stored_job,
    write_draft,
)
from tokenmill.check.verify import verify
from tokenmill.errors import LedgerError, OutputError
from tokenmill.inspect.show import Viewer
from tokenmill.output.finish import committed, describe_output, finish, public_rejects, summarize, write_rejects
from tokenmill.output.plan_file import Plan
from tokenmill.output.receipts import Receipts
from tokenmill.output.schema import LineReject, RowReject, SkippedEntry, Summary, to_builtins
from tokenmill.records import Format, Ledger, Part, Unit
from tokenmill.storage.local import LocalSource, LocalStorage
from tokenmill.storage.memory import MemoryStorage

NOT_UNICODE = os.fsdecode(b"caf\xe9.jsonl")


@pytest.fixture
def receipts(storage: MemoryStorage) -> Receipts:
    return receipts_in(storage)


def commit(
    receipts: Receipts, plan: Plan, number: int, lines: tuple[int, ...], rejected: bytes = b"", **more: Any
) -> None:
    unit = plan.unit(number)
    if rejected:
        receipts.storage.publish(f"units/{unit.name}.rejects.jsonl", [rejected])
    listed = {"rejects_bytes": len(rejected), "rejects_xxh3": xxhash.xxh3_128_hexdigest(rejected) if rejected else None}
    receipts.commit(unit, receipt_of(number, lines, **listed | more))


def first_records(receipts: Receipts, plan: Plan) -> list[list[int | None]]:
    return [done.first_records for done in committed(receipts, plan)]


def lines_of_rejects(receipts: Receipts, plan: Plan) -> Iterator[tuple[str, int | None]]:
    for reject in public_rejects(receipts, plan):
        assert isinstance(reject, LineReject)
        yield reject.file, reject.line


# Record numbers


def test_records_are_numbered_from_1_through_all_parts_of_a_file(receipts: Receipts) -> None:
    plan = plan_of([Part(0), Part(1, 0, 5)], [Part(1, 5, 9)], [Part(1, 9, 12), Part(2)], [Part(3)])
    for number, lines in enumerate([(3, 4), (5,), (6, 7), (8,)]):
        commit(receipts, plan, number, lines)
    assert first_records(receipts, plan) == [[1, 1], [5], [10, 1], [1]]
    assert [(done.unit.index, done.receipt.lines) for done in committed(receipts, plan)] == [
        (0, (3, 4)),
        (1, (5,)),
        (2, (6, 7)),
        (3, (8,)),
    ]


def test_behind_a_part_that_could_not_be_read_nobody_knows_the_number_until_the_next_file(receipts: Receipts) -> None:
    plan = plan_of([Part(0, 0, 5)], [Part(0, 5, 9)], [Part(0, 9, 12)], [Part(0, 12, 15), Part(1)])
    commit(receipts, plan, 0, (3,))
    commit(receipts, plan, 1, (0,), missing={0: "bad disk"})
    commit(receipts, plan, 2, (4,))
    commit(receipts, plan, 3, (5, 6))
    assert first_records(receipts, plan) == [[1], [4], [None], [None, 1]]


def test_a_missing_file_hides_no_number_of_its_neighbours(receipts: Receipts) -> None:
    plan = plan_of([Part(0), Part(1), Part(2, 0, 5)], [Part(2, 5, 9)])
    commit(receipts, plan, 0, (3, 0, 4), missing={1: "gone"})
    commit(receipts, plan, 1, (5,))
    assert first_records(receipts, plan) == [[1, 1, 1], [5]]


def test_rejects_are_listed_with_absolute_numbers_or_none_where_nobody_knows(receipts: Receipts) -> None:
    plan = plan_of([Part(0, 0, 5)], [Part(0, 5, 9)], [Part(0, 9, 12)], [Part(0, 12, 15), Part(1)])
    commit(receipts, plan, 0, (3,), reject_line(0, 0) + reject_line(0, 2))
    commit(receipts, plan, 1, (2,), reject_line(0, 1))
    commit(receipts, plan, 2, (0,), missing={0: "bad disk"})
    commit(receipts, plan, 3, (5, 6), reject_line(0, 3) + reject_line(1, 4))
    assert list(lines_of_rejects(receipts, plan)) == [
        ("0.jsonl", 1),
        ("0.jsonl", 3),
        ("0.jsonl", 5),
        ("0.jsonl", None),
        ("1.jsonl", 5),
    ]


@pytest.mark.parametrize("table", [Format.PARQUET, Format.ARROW])
def test_a_reject_of_a_table_has_a_row_and_no_offset_and_one_of_lines_has_both(
    receipts: Receipts, table: Format
) -> None:
    known: dict[str, Any] = {"reason": "broken_json", "detail": "no", "head": "x"}
    unit = Unit(0, (Part(0), Part(1)), (file("a.table", table), file(NOT_UNICODE)), 10)
    plan = Plan.of([unit])
    commit(receipts, plan, 0, (3, 3), reject_line(0, 2, records=4) + reject_line(1, 0))
    assert list(public_rejects(receipts, plan)) == [
        RowReject(file="a.table", row=3, records=4, **known),
        LineReject(file=NOT_UNICODE, line=1, offset=7, records=1, **known),
    ]
    assert write_rejects(receipts, plan) == 5
    assert [json.loads(line) for line in receipts.storage.read("rejects.jsonl").splitlines()] == [
        {"file": "a.table", "row": 3, "offset": None, "records": 4} | known,
        {"file": NOT_UNICODE, "line": 1, "offset": 7, "records": 1} | known,
    ]


class BadSectorSource(LocalSource):
    """A file on a disk that cannot be read from one place to another."""

    broken = (0, 0)

    def _check(self) -> None:
        if self.broken[0] <= self.tell() < self.broken[1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def read(self, size: int | None = -1, /) -> bytes:
        self._check()
        return super().read(-1 if size is None else size) or b""

    def readinto(self, buffer: Any, /) -> int:
        self._check()
        return super().readinto(buffer) or 0


class BadDisk(LocalStorage):
    """Inputs of which the middle third of a.jsonl cannot be read."""

    def open(self, name: str) -> LocalSource:
        if name != "a.jsonl":
            return super().open(name)
        source = BadSectorSource(self._path(name))
        size = source.stat.size
        source.broken = (size // 3 - 1, 2 * size // 3 - 1)
        return source


def test_documents_and_rejects_behind_a_bad_sector_have_no_number(
    inputs: Path, tmp_path: Path, config: MakeConfig, small_units: SmallUnits
) -> None:
    """A file in three parts of which the second cannot be read; and one behind it, which is not concerned."""
    small_units(400, 0)
    lines = [texts(f"text {n:02d}") if n % 10 else b'{"broken": %04d}\n' % n for n in range(60)]
    (inputs / "a.jsonl").write_bytes(b"".join(lines))
    (inputs / "b.jsonl").write_bytes(texts("other") + b"broken\n")
    job = prepare(config(engine="streaming"))
    result = job.run(inputs=BadDisk(inputs))
    assert result.missing == {"a.jsonl": "a.jsonl cannot be read: Input/output error"}
    output = tmp_path / "out"
    parts = [p for u in tokenmill.open(output).manifest["units"] for p in u["parts"] if p["file"] == 0]
    assert [(p["first_record"], p["lines"]) for p in parts] == [(1, 20), (21, 0), (None, 20)]
    found = [(d.file, d.record) for d in tokenmill.open(output).documents()]
    assert found == [
        *(("a.jsonl", n + 1) for n in range(20) if n % 10),
        *[("a.jsonl", None)] * 18,
        ("b.jsonl", 1),
    ]
    assert [(r["file"], r["line"]) for r in rejects(output)] == [
        ("a.jsonl", 1),
        ("a.jsonl", 11),
        ("a.jsonl", None),
        ("a.jsonl", None),
        ("b.jsonl", 2),
    ]
    assert ("a.jsonl", None) in {(s.file, s.record) for n in range(30) for s in Viewer(output).row(n).spans}
    assert [f.what for f in verify(output).faults] == [
        "the input a.jsonl is missing from the output: it cannot be read: Input/output error. Fix it and run the "
        "job again"
    ]
    # Once it can be read, everything has its number.
    assert job.run().complete
    assert [d.record for d in tokenmill.open(output).documents()][:-1] == [n + 1 for n in range(60) if n % 10]
    assert len(documents(output)) == 55


# What there is before the end


def test_a_job_without_all_its_receipts_is_not_finished(receipts: Receipts) -> None:
    plan = plan_of([Part(0)], [Part(1)])
    commit(receipts, plan, 0, (3,))
    for look in (committed, summarize_any, describe_any):
        with pytest.raises(LedgerError, match="unit 00001 has no receipt, please report this"):
            list(look(receipts, plan))


def summarize_any(receipts: Receipts, plan: Plan) -> list[Summary]:
    return [summarize(receipts, plan, "an id")]


def describe_any(receipts: Receipts, plan: Plan) -> Iterator[str]:
    return describe_output(receipts, plan, stored_job(), Summary(run_id="", ledger=Ledger(), missing={}))


def test_rejects_so_far_are_those_of_units_under_way_too(storage: MemoryStorage, receipts: Receipts) -> None:
    plan = plan_of([Part(0, 0, 5)], [Part(0, 5, 9)], [Part(0, 9, 12)], [Part(1)], [Part(2)], [Part(3)])
    commit(receipts, plan, 0, (3,), reject_line(0, 0))
    unfinished = reject_line(0, 1) + reject_line(0, 2)[:-5]  # a line that is being written
    write_draft(storage, "units/00001.rejects.jsonl", unfinished)
    commit(receipts, plan, 2, (4,), reject_line(0, 3))
    storage.publish("units/00003.rejects.jsonl", [reject_line(0, 4)])  # whose receipt follows at once
    write_draft(storage, "units/00004.rejects.jsonl")
    assert list(lines_of_rejects(receipts, plan)) == [
        ("0.jsonl", 1),
        ("0.jsonl", 5),
        ("0.jsonl", None),
        ("1.jsonl", 5),
    ]
    assert write_rejects(receipts, plan) == 4


@pytest.mark.parametrize("lines", [(3,), (3, 4, 5)])
def test_a_receipt_for_other_parts_than_the_unit_has_is_an_error(receipts: Receipts, lines: tuple[int, ...]) -> None:
    plan = plan_of([Part(0), Part(1)])
    commit(receipts, plan, 0, lines)
    with pytest.raises(OutputError, match=r"units/00000.json is damaged \(ValueError\('it is of another unit'\)\)"):
        list(committed(receipts, plan))


def test_a_list_that_is_not_the_one_its_receipt_knows_is_damaged(storage: MemoryStorage, receipts: Receipts) -> None:
    plan = plan_of([Part(0)])
    one = reject_line(0, 0)
    for stored in (b"", one, one + one[:-1], one + one + one, one + reject_line(0, 1)):
        commit(receipts, plan, 0, (5,), one + one)
        storage.publish("units/00000.rejects.jsonl", [stored])
        with pytest.raises(OutputError, match=r"rejects\.jsonl is damaged .* Do the unit again with --redo 0$"):
            list(public_rejects(receipts, plan))


def test_a_list_that_its_receipt_knows_and_is_gone_is_named(receipts: Receipts) -> None:
    plan = plan_of([Part(0)])
    commit(receipts, plan, 0, (5,), rejects_bytes=5)
    with pytest.raises(OutputError, match=r"rejects\.jsonl cannot be read: .* Do the unit again with --redo 0$"):
        list(public_rejects(receipts, plan))


@pytest.mark.parametrize("line", [b"no JSON\n", b"{}\n", reject_line(7, 0), reject_line(0, -1)])
def test_a_damaged_list_of_rejects_is_named_with_its_way_out(receipts: Receipts, line: bytes) -> None:
    plan = plan_of([Part(0)], [Part(1)])
    commit(receipts, plan, 0, (1,), reject_line(0, 0))
    commit(receipts, plan, 1, (1,), line)
    found = public_rejects(receipts, plan)
    assert next(found).file == "0.jsonl"
    with pytest.raises(OutputError, match=r"00001\.rejects\.jsonl is damaged .* Do the unit again with --redo 1$"):
        next(found)


# The ledger and the manifest of the whole job


def test_receipts_add_up(receipts: Receipts) -> None:
    plan = plan_of([Part(0)], [Part(1), Part(2)])
    one = Ledger(records=3, documents=2, rejected=1, tokens=5, rows=1, rejects_by_reason={"broken_json": 1})
    other = Ledger(records=4, documents=4, tokens=6, rows=2, padding=1)
    commit(receipts, plan, 0, (3,), ledger=one, missing={0: "bad disk"})
    commit(receipts, plan, 1, (2, 2), ledger=other, missing={2: "gone"})
    summary = summarize(receipts, plan, "an id")
    assert summary.run_id == "an id"
    assert summary.missing == {"0.jsonl": "bad disk", "2.jsonl": "gone"}
    assert summary.ledger == Ledger(
        records=7, documents=6, rejected=1, tokens=11, rows=3, padding=1, rejects_by_reason={"broken_json": 1}
    )


def test_the_list_of_rejects_is_published_as_a_whole(storage: MemoryStorage, receipts: Receipts) -> None:
    plan = plan_of([Part(0)])
    commit(receipts, plan, 0, (9,), reject_line(0, 0, records=5) + reject_line(0, 1) + reject_line(0, 2))
    storage.publish("rejects.jsonl", [b"of the run before\n"])
    assert write_rejects(receipts, plan) == 7
    found = storage.after_power_loss().read("rejects.jsonl")
    assert [json.loads(line)["records"] for line in found.splitlines()] == [5, 1, 1]
    assert found.endswith(b"}\n")
    commit(receipts, plan, 0, (9,), b"no JSON\n")
    with pytest.raises(OutputError, match="is damaged"):
        write_rejects(receipts, plan)
    assert storage.read("rejects.jsonl") == found


def finished(storage: MemoryStorage) -> dict[str, Any]:
    """The manifest of a job of two units and three chunks, of which one input is missing and one file was skipped."""
    receipts = receipts_in(storage)
    units = [
        Unit(0, (Part(0, 0, 5),), (file(NOT_UNICODE),), 5),
        Unit(1, (Part(0, 5, 9), Part(1)), (file(NOT_UNICODE), file("b.jsonl")), 5),
    ]
    plan = Plan.of(units)
    commit(receipts, plan, 0, (3,), chunks=(chunk_entry(0, units[0]),))
    chunks = tuple(chunk_entry(number, units[1]) for number in range(2))
    commit(receipts, plan, 1, (4, 0), chunks=chunks, missing={1: "gone"}, ledger=Ledger(records=7, documents=7))
    skipped = [SkippedEntry(name=NOT_UNICODE, why="hidden")]
    summary = summarize(receipts, plan, "an id")
    finish(receipts, plan, stored_job(), summary, skipped)
    text = storage.read("manifest.json").decode("ascii")
    assert text == "".join(describe_output(receipts, plan, stored_job(), summary, skipped))
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_manifest_tells_everything(storage: MemoryStorage) -> None:
    manifest = finished(storage)
    assert manifest["run_id"] == "an id"
    assert {name: manifest[name] for name in to_builtins(stored_job())} == to_builtins(stored_job())
    assert manifest["ledger"]["documents"] == 7
    assert manifest["missing"] == {"b.jsonl": "gone"}
    assert [i["name"] for i in manifest["inputs"]] == [NOT_UNICODE, "b.jsonl"]
    assert manifest["units"] == [
        {"unit": 0, "parts": [{"file": 0, "start": 0, "end": 5, "first_record": 1, "lines": 3}]},
        {
            "unit": 1,
            "parts": [
                {"file": 0, "start": 5, "end": 9, "first_record": 4, "lines": 4},
                {"file": 1, "start": 0, "end": None, "first_record": 1, "lines": 0},
            ],
        },
    ]
    assert [(c["unit"], c["name"], c["rows"]) for c in manifest["chunks"]] == [
        (0, "00000-0000", 2),
        (1, "00001-0000", 2),
        (1, "00001-0001", 2),
    ]
    assert manifest["left_out"] == [{"name": NOT_UNICODE, "why": "hidden"}]


def test_a_checkpoint_that_was_removed_is_never_back_beside_a_manifest(storage: MemoryStorage) -> None:
    storage.publish("units/00001.checkpoint.json", [b"{}"])
    finished(storage)
    assert not storage.files().keys() & {"units/00001.checkpoint.json"}
    found = storage.after_power_loss().files()
    assert "manifest.json" in found
    assert "units/00001.checkpoint.json" not in found
