"""The end of a job: receipts add up, record numbers become absolute, and what does not add up is never finished."""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash

import tokenmill
from tests.conftest import Run, documents, rejects, texts
from tests.unit.test_process import ByteEncoder, Told, job_of, run_all
from tokenmill.check.verify import verify
from tokenmill.config import RejectLimit
from tokenmill.errors import LedgerError, OutputError, RejectLimitError
from tokenmill.inspect.show import Viewer
from tokenmill.job.prepare import Job
from tokenmill.output.finish import (
    check_rejects,
    finish,
    manifest_pieces,
    public_rejects,
    read_summary,
    receipts,
    summarize,
    write_rejects,
)
from tokenmill.output.manifest import Index, Summary, has_checksum, read_manifest
from tokenmill.output.plan_file import Plan, write_plan
from tokenmill.output.store import Store
from tokenmill.records import Codec, Format, InputFile, Ledger, Part, Receipt, Unit
from tokenmill.unit.run import run_unit


def file(name: str, kind: Format = Format.JSONL) -> InputFile:
    return InputFile(name=name, size=10, fingerprint="", format=kind, codec=Codec.PLAIN)


def receipt_of(unit: int, lines: tuple[int, ...], **changes: Any) -> Receipt:
    bare = Receipt(unit=unit, ledger=Ledger(), chunks=(), lines=lines, rejects_bytes=0, rejects_xxh3=None, missing={})
    return replace(bare, **changes)


def reject_of(part: int, record: int, records: int = 1) -> bytes:
    entry = {"part": part, "record": record, "offset": 7, "reason": "broken_json", "detail": "no", "records": records}
    return json.dumps(entry | {"head": "x"}).encode() + b"\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "out")
    for folder in (store.units, store.temporary):
        folder.mkdir(parents=True)
    return store


def plan_of(*parts: list[Part]) -> Plan:
    """Units with these parts, of files named by their numbers."""
    units = (Unit(n, tuple(p), tuple(file(f"{q.file}.jsonl") for q in p), 10) for n, p in enumerate(parts))
    return write_plan(Path("in"), units)


def commit(store: Store, plan: Plan, number: int, lines: tuple[int, ...], rejected: bytes = b"", **more: Any) -> None:
    unit = plan.unit(number)
    if rejected:
        store.rejects_path(unit).write_bytes(rejected)
    store.commit(unit, receipt_of(number, lines, **{"rejects_bytes": len(rejected), **more}))


# Record numbers


def test_records_are_numbered_from_1_through_all_parts_of_a_file(store: Store) -> None:
    plan = plan_of([Part(0), Part(1, 0, 5)], [Part(1, 5, 9)], [Part(1, 9, 12), Part(2)], [Part(3)])
    for number, lines in enumerate([(3, 4), (5,), (6, 7), (8,)]):
        commit(store, plan, number, lines)
    assert [firsts for _, _, firsts in receipts(store, plan)] == [[1, 1], [5], [10, 1], [1]]


def test_behind_a_part_that_could_not_be_read_nobody_knows_the_number_until_the_next_file(store: Store) -> None:
    plan = plan_of([Part(0, 0, 5)], [Part(0, 5, 9)], [Part(0, 9, 12)], [Part(0, 12, 15), Part(1)])
    commit(store, plan, 0, (3,))
    commit(store, plan, 1, (0,), missing={0: "bad disk"})
    commit(store, plan, 2, (4,))
    commit(store, plan, 3, (5, 6))
    assert [firsts for _, _, firsts in receipts(store, plan)] == [[1], [4], [None], [None, 1]]


def test_a_missing_file_hides_no_number_of_its_neighbours(store: Store) -> None:
    plan = plan_of([Part(0), Part(1), Part(2, 0, 5)], [Part(2, 5, 9)])
    commit(store, plan, 0, (3, 0, 4), missing={1: "gone"})
    commit(store, plan, 1, (5,))
    assert [firsts for _, _, firsts in receipts(store, plan)] == [[1, 1, 1], [5]]


def test_rejects_are_listed_with_absolute_numbers_or_none_where_nobody_knows(store: Store) -> None:
    plan = plan_of([Part(0, 0, 5)], [Part(0, 5, 9)], [Part(0, 9, 12)], [Part(0, 12, 15), Part(1)])
    commit(store, plan, 0, (3,), reject_of(0, 0) + reject_of(0, 2))
    commit(store, plan, 1, (2,), reject_of(0, 1))
    commit(store, plan, 2, (0,), missing={0: "bad disk"})
    commit(store, plan, 3, (5, 6), reject_of(0, 3) + reject_of(1, 4))
    found = [(r["file"], r["line"]) for r in public_rejects(store, plan)]
    assert found == [
        ("0.jsonl", 1),
        ("0.jsonl", 3),
        ("0.jsonl", 5),
        ("0.jsonl", None),
        ("1.jsonl", 5),
    ]


def test_a_reject_of_parquet_has_a_row_and_no_offset(store: Store) -> None:
    unit = Unit(0, (Part(0),), (file("a.parquet", Format.PARQUET),), 10)
    plan = write_plan(Path("in"), [unit])
    commit(store, plan, 0, (3,), reject_of(0, 2, records=4))
    assert list(public_rejects(store, plan)) == [
        {
            "file": "a.parquet",
            "row": 3,
            "offset": None,
            "reason": "broken_json",
            "detail": "no",
            "records": 4,
            "head": "x",
        }
    ]


class BadSector(io.FileIO):
    """A file on a disk that cannot be read from one place to another."""

    broken: tuple[int, int]

    def read(self, size: int | None = -1) -> bytes:
        first, end = self.broken
        if first <= self.tell() < end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(-1 if size is None else size) or b""


def test_documents_and_rejects_behind_a_bad_sector_have_no_number(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in three parts of which the second cannot be read; and one behind it, which is not concerned."""
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 400)
    monkeypatch.setattr("tokenmill.plan.cut.FILE_COST_BYTES", 0)
    lines = [texts(f"text {n:02d}") if n % 10 else b'{"broken": %04d}\n' % n for n in range(60)]
    (inputs / "a.jsonl").write_bytes(b"".join(lines))
    (inputs / "b.jsonl").write_bytes(texts("other") + b"broken\n")
    size = len(b"".join(lines))
    original = Path.open

    def opened(self: Path, mode: str = "r", buffering: int = -1, **options: Any) -> Any:
        if self.name != "a.jsonl" or mode != "rb" or buffering != 0:  # whoever plans may still look at it
            return original(self, mode, buffering, **options)
        bad = BadSector(self, "rb")
        bad.broken = (size // 3 - 1, 2 * size // 3 - 1)
        return bad

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", opened)
        result = run(engine="streaming")
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
        "the input a.jsonl is missing from the output: a.jsonl cannot be read: Input/output error. Mend it and run "
        "the job again"
    ]
    # Mended, everything has its number.
    assert run(engine="streaming").complete
    assert [d.record for d in tokenmill.open(output).documents()][:-1] == [n + 1 for n in range(60) if n % 10]
    assert len(documents(output)) == 55


# What there is before the end


def test_a_job_without_all_its_receipts_is_not_finished(store: Store) -> None:
    plan = plan_of([Part(0)], [Part(1)])
    commit(store, plan, 0, (3,))
    with pytest.raises(LedgerError, match="unit 00001 has no receipt, please report this"):
        list(receipts(store, plan))


def test_rejects_so_far_are_those_of_units_that_are_not_done_too(store: Store) -> None:
    plan = plan_of([Part(0, 0, 5)], [Part(0, 5, 9)], [Part(0, 9, 12)], [Part(1)])
    commit(store, plan, 0, (3,), reject_of(0, 0))
    unfinished = reject_of(0, 1) + reject_of(0, 2)[:-5]  # a line that is being written
    store.rejects_path(plan.unit(1)).write_bytes(unfinished)
    commit(store, plan, 2, (4,), reject_of(0, 3))
    assert [(r["file"], r["line"]) for r in public_rejects(store, plan)] == [
        ("0.jsonl", 1),
        ("0.jsonl", 5),
        ("0.jsonl", None),
    ]


def test_a_unit_that_is_not_done_stands_for_nothing_yet(store: Store) -> None:
    plan = plan_of([Part(0), Part(1)], [Part(1, 5, 9)])
    (_, unfinished, firsts), (_, _, behind) = receipts(store, plan, partial=True)
    assert (unfinished.unit, unfinished.ledger, unfinished.chunks, unfinished.lines) == (0, Ledger(), (), (0, 0))
    assert unfinished.missing == {0: "not complete yet", 1: "not complete yet"}
    assert (firsts, behind) == ([1, 1], [None])


def test_a_receipt_for_other_parts_than_the_unit_has_is_an_error(store: Store) -> None:
    plan = plan_of([Part(0), Part(1)])
    commit(store, plan, 0, (3,))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        list(receipts(store, plan))


def test_rejects_that_the_receipt_does_not_count_are_not_listed(store: Store) -> None:
    plan = plan_of([Part(0)])
    one = reject_of(0, 0)
    for counted, listed in ((len(one), 1), (len(one) + 1, 1), (2 * len(one) - 1, 1), (2 * len(one), 2)):
        commit(store, plan, 0, (5,), one + one, rejects_bytes=counted)
        assert len(list(public_rejects(store, plan))) == listed


def test_a_damaged_list_of_rejects_is_named_with_its_way_out(store: Store) -> None:
    plan = plan_of([Part(0)], [Part(1)])
    commit(store, plan, 0, (1,))
    commit(store, plan, 1, (1,), b"no JSON\n")
    with pytest.raises(OutputError, match=r"00001\.rejects\.jsonl is damaged .* Do the unit again with --redo 1$"):
        list(public_rejects(store, plan))


# The books of the whole job


def test_receipts_add_up(store: Store) -> None:
    plan = plan_of([Part(0)], [Part(1), Part(2)])
    one = Ledger(records=3, documents=2, rejected=1, tokens=5, rows=1, rejects_by_reason={"broken_json": 1})
    other = Ledger(records=4, documents=4, tokens=6, rows=2, padding=1)
    commit(store, plan, 0, (3,), ledger=one, missing={0: "bad disk"})
    commit(store, plan, 1, (2, 2), ledger=other, missing={2: "gone"})
    summary = summarize(store, plan, "an id")
    assert summary.run_id == "an id"
    assert summary.missing == {"0.jsonl": "bad disk", "2.jsonl": "gone"}
    assert summary.ledger == Ledger(
        records=7, documents=6, rejected=1, tokens=11, rows=3, padding=1, rejects_by_reason={"broken_json": 1}
    )


def finished(tmp_path: Path, data: bytes, **options: Any) -> Job:
    """A job whose units are done, and nothing else."""
    job = job_of(tmp_path, {"a.jsonl": data}, **options)
    run_all(job)
    return job


def edit_receipt(job: Job, **ledger: Any) -> None:
    receipt = job.store.receipt(job.plan.unit(0))
    assert receipt is not None
    job.store.commit(job.plan.unit(0), replace(receipt, ledger=replace(receipt.ledger, **ledger)))


def test_a_job_is_finished_with_rejects_and_a_manifest(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc") + b"broken\n", max_rejects="100%")
    assert read_summary(job.store) is None
    summary = finish(job)
    assert summary.run_id == job.run_id
    assert (summary.ledger.records, summary.ledger.documents, summary.missing) == (2, 1, {})
    assert read_summary(job.store) == summary
    assert [(r["file"], r["line"], r["records"]) for r in rejects(job.store.root)] == [("a.jsonl", 2, 1)]
    assert list(job.store.temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["records", "documents", "empty"])
def test_records_that_do_not_add_up_are_never_finished(tmp_path: Path, name: str) -> None:
    job = finished(tmp_path, texts("abc"))
    edit_receipt(job, **{name: 7})
    with pytest.raises(LedgerError, match=r"^the whole job: records do not add up"):
        finish(job)
    assert not job.store.manifest.exists()


@pytest.mark.parametrize("name", ["tokens", "separators", "padding", "rows", "dropped_tokens"])
def test_tokens_that_do_not_add_up_are_never_finished(tmp_path: Path, name: str) -> None:
    job = finished(tmp_path, texts("abc"))
    edit_receipt(job, **{name: 7})
    with pytest.raises(LedgerError, match=r"^the whole job: tokens do not add up"):
        finish(job)
    assert not job.store.manifest.exists()


@pytest.mark.parametrize("listed", [0, 2])
def test_rejects_that_are_not_listed_as_counted_are_never_finished(tmp_path: Path, listed: int) -> None:
    job = finished(tmp_path, texts("abc") + b"broken\n", max_rejects="100%")
    path = job.store.rejects_path(job.plan.unit(0))
    path.write_text(path.read_text().replace('"records": 1', f'"records": {listed}'))
    message = f"1 records were rejected, but {listed} are listed, please report this"
    with pytest.raises(LedgerError, match=message):
        finish(job)
    assert not job.store.manifest.exists()


def test_write_rejects_tells_how_many_records_it_listed(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc") + b"broken\n" * 3, max_rejects="100%")
    path = job.store.rejects_path(job.plan.unit(0))
    path.write_text(path.read_text().replace('"records": 1', '"records": 5', 1))
    assert write_rejects(job) == 7
    assert [r["records"] for r in rejects(job.store.root)] == [5, 1, 1]
    assert job.store.rejects.read_bytes().endswith(b"}\n")


def test_more_rejects_than_allowed_are_listed_and_no_manifest_is_written(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc", "d") + b"[]\nbroken\n", max_rejects=1)
    with pytest.raises(RejectLimitError) as error:
        finish(job)
    assert str(error.value) == (
        "2 of 4 records were rejected (50 %: broken_json 1, not_an_object 1), more than --max-rejects 1. They are "
        f"listed in {job.store.rejects}. Mend the input and start anew with --overwrite, or run the same command again "
        "with a higher --max-rejects: it continues from here"
    )
    assert len(rejects(job.store.root)) == 2
    assert not job.store.manifest.exists()
    check_rejects(allowing(job, "50%"), summarize_ledger(job))
    check_rejects(allowing(job, 2), summarize_ledger(job))


def allowing(job: Job, limit: object) -> Job:
    return replace(job, config=replace(job.config, max_rejects=RejectLimit.parse(limit)))


def summarize_ledger(job: Job) -> Ledger:
    return summarize(job.store, job.plan, "").ledger


@pytest.mark.parametrize(("wrong", "asked"), [(2, False), (3, True)])
def test_a_wrong_text_field_is_asked_about_when_most_records_lack_it(tmp_path: Path, wrong: int, asked: bool) -> None:
    job = finished(tmp_path, texts("abc", "d") + b"{}\n" * wrong, max_rejects=0)
    with pytest.raises(RejectLimitError) as error:
        finish(job)
    assert ("Is --text-field text right?" in str(error.value)) == asked


def test_the_only_record_may_be_rejected_for_another_reason(tmp_path: Path) -> None:
    job = finished(tmp_path, b"broken\n", max_rejects=0)
    with pytest.raises(RejectLimitError, match=r"1 of 1 records were rejected \(100 %: broken_json 1\)") as error:
        finish(job)
    assert "--text-field" not in str(error.value)


def test_the_list_of_rejects_is_forced_to_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(tmp_path, texts("abc") + b"broken\n", max_rejects="100%")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    write_rejects(job)
    assert synced[0] == job.store.rejects.stat().st_size  # and then the directory with its name
    assert len(synced) == 2


def test_a_share_of_rejects_is_judged_at_the_end_however_few_records_there_are(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc", "d", "e") + b"broken\n", max_rejects="24%")
    with pytest.raises(RejectLimitError, match=r"1 of 4 records were rejected \(25 %"):
        finish(job)
    assert finish(allowing(job, "25%")).ledger.rejected == 1


def test_one_reject_of_one_record_is_all_of_them_and_no_reason_to_ask_about_the_field(tmp_path: Path) -> None:
    job = finished(tmp_path, b"broken\n", max_rejects=0)
    with pytest.raises(RejectLimitError, match=r"1 of 1 records were rejected \(100 %") as error:
        finish(job)
    assert "--text-field" not in str(error.value)


# The manifest


def test_the_manifest_tells_everything_a_line_each_and_ends_with_its_checksum(tmp_path: Path) -> None:
    data = texts("abc", "defgh")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.md").write_text("# no input")
    job = finished(tmp_path, data, sequences_per_chunk=2)
    finish(job)
    text = job.store.manifest.read_text()
    manifest = json.loads(text)
    assert list(manifest)[-5:] == ["inputs", "units", "chunks", "left_out", "xxh3"]
    assert manifest["run_id"] == job.run_id
    assert (manifest["options"], manifest["tokenizer"]) == (job.description["options"], job.description["tokenizer"])
    assert manifest["format_version"] == 1
    assert [(i["name"], i["size"]) for i in manifest["inputs"]] == [("a.jsonl", len(data))]
    assert manifest["units"] == [
        {"unit": 0, "parts": [{"file": 0, "start": 0, "end": None, "first_record": 1, "lines": 2}]}
    ]
    assert [(c["unit"], c["name"], c["rows"]) for c in manifest["chunks"]] == [
        (0, "00000-0000", 2),
        (0, "00000-0001", 1),
    ]
    assert manifest["left_out"] == [{"name": "notes.md", "why": "not JSON Lines, Parquet or .txt"}]
    assert manifest["ledger"]["documents"] == 2
    assert text.startswith('{\n "format_version": 1,\n "ledger": {\n  "documents": 2,\n')
    body, _, rest = text.rpartition(',\n "xxh3": "')
    assert rest == xxhash.xxh3_128_hexdigest(body.encode()) + '"\n}\n'
    assert '\n "chunks": [\n  {"unit": 0, "name": "00000-0000"' in text
    assert '},\n  {"unit": 0, "name": "00000-0001"' in text
    assert has_checksum(job.store.manifest)
    summary = summarize(job.store, job.plan, job.run_id)
    assert "".join(manifest_pieces(job.store, job.plan, job.description, summary)) == text


def test_any_change_of_a_manifest_shows_in_its_checksum(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc"))
    finish(job)
    text = job.store.manifest.read_text()
    for changed in (
        text.replace('"documents": 1', '"documents": 2', 1),
        text.replace('"xxh3": "', '"xxh3": "0'),
        text[:-1],
        text + "\n",
        "{}\n",
    ):
        assert changed != text
        job.store.manifest.write_text(changed)
        assert not has_checksum(job.store.manifest)


def test_a_manifest_is_read_as_far_as_it_is_needed(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc"))
    summary = finish(job)
    assert read_manifest(job.store.manifest, Summary) == summary
    index = read_manifest(job.store.manifest, Index)
    assert (index.options.seq_len, index.tokenizer.dtype) == (4, "uint16")
    assert [(c.name, c.rows) for c in index.chunks] == [("00000-0000", 1)]


def test_a_manifest_with_a_file_name_that_is_no_unicode_is_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    ledger = Ledger(records=1, documents=1)
    summary = {"run_id": "x", "ledger": ledger.to_json(), "missing": {os.fsdecode(b"\xe9"): "gone"}}
    path.write_text(json.dumps(summary))
    assert read_manifest(path, Summary) == Summary(run_id="x", ledger=ledger, missing={"\udce9": "gone"})


@pytest.mark.parametrize("content", ["{", "[]", '{"run_id": 3, "ledger": {}, "missing": {}}', '{"run_id": "\\udce9"}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r".+"):
        read_manifest(path, Summary)
    with pytest.raises(OutputError, match=r"manifest\.json is damaged .* Remove it to have that part done again"):
        read_summary(Store(tmp_path))


def test_a_unit_that_is_run_again_is_as_it_was(tmp_path: Path) -> None:
    job = finished(tmp_path, texts("abc") + b"broken\n", max_rejects="100%")
    before = {p: p.read_bytes() for p in job.store.units.iterdir()}
    job.store.reset([job.plan.unit(0)])
    assert list(job.store.units.iterdir()) == []
    run_unit(job, job.plan.unit(0), ByteEncoder(), Told())
    assert {p: p.read_bytes() for p in job.store.units.iterdir()} == before
