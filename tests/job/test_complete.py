"""A job is finished only if everything is accounted for and no more is rejected than allowed."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import xxhash

from tests.conftest import texts
from tests.support.outputs import job_of, run_units
from tokenmill.config import RejectLimit
from tokenmill.errors import LedgerError, OutputError, RejectLimitError
from tokenmill.job.complete import complete_job, problems_at_the_end, too_many_rejects
from tokenmill.job.prepare import Job
from tokenmill.output.finish import summarize
from tokenmill.output.open import Output
from tokenmill.records import Damage, Ledger, Reason
from tokenmill.storage.memory import MemoryStorage


def finished(data: bytes, **options: Any) -> Job:
    """A job whose units are done, and nothing else."""
    job = job_of({"a.jsonl": data}, **options)
    run_units(job)
    return job


def is_complete(job: Job) -> bool:
    return Output(job.store.storage).is_complete


def rejects_of(job: Job) -> list[dict[str, Any]]:
    lines = job.store.storage.read("rejects.jsonl").splitlines()
    return [msgspec.json.decode(line) for line in lines]


def edit_receipt(job: Job, **ledger: Any) -> None:
    unit = job.plan.unit(0)
    receipt = job.receipts.receipt(unit)
    assert receipt is not None
    changed = msgspec.structs.replace(receipt.ledger, **ledger)
    job.receipts.commit(unit, msgspec.structs.replace(receipt, ledger=changed))


def edit_rejects(job: Job, before: bytes, after: bytes, count: int = -1) -> None:
    """Of the same length, and as if the unit had written it so."""
    name = "units/00000.rejects.jsonl"
    job.store.storage.publish(name, [data := job.store.storage.read(name).replace(before, after, count)])
    unit = job.plan.unit(0)
    receipt = job.receipts.receipt(unit)
    assert receipt is not None
    job.receipts.commit(unit, msgspec.structs.replace(receipt, rejects_xxh3=xxhash.xxh3_128_hexdigest(data)))


def test_a_job_is_finished_with_rejects_and_a_manifest() -> None:
    job = finished(texts("abc") + b"broken\n", max_rejects="100%")
    job.skipped.append("notes.md", "hidden")
    assert not is_complete(job)
    summary = complete_job(job)
    assert summary.run_id == job.run_id
    assert (summary.ledger.records, summary.ledger.documents, summary.missing) == (2, 1, {})
    assert Output(job.store.storage).summary == summary
    assert [(r["file"], r["line"], r["records"]) for r in rejects_of(job)] == [("a.jsonl", 2, 1)]
    manifest = msgspec.json.decode(job.store.storage.read("manifest.json"))
    assert manifest["left_out"] == [{"name": "notes.md", "why": "hidden"}]
    assert list(job.store.storage.drafts()) == []


CHANGED = (
    r"^memory:units/00000\.json is damaged \(its ledger does not add up\)\. Remove it to have that part done again"
)


@pytest.mark.parametrize("name", ["records", "documents", "empty"])
def test_records_that_do_not_add_up_are_never_finished(name: str) -> None:
    job = finished(texts("abc"))
    edit_receipt(job, **{name: 7})
    with pytest.raises(OutputError, match=CHANGED):
        complete_job(job)
    assert not is_complete(job)


@pytest.mark.parametrize("name", ["tokens", "separators", "padding", "rows", "dropped_tokens"])
def test_tokens_that_do_not_add_up_are_never_finished(name: str) -> None:
    job = finished(texts("abc"))
    edit_receipt(job, **{name: 7})
    with pytest.raises(OutputError, match=CHANGED):
        complete_job(job)
    assert not is_complete(job)


@pytest.mark.parametrize("change", [{"chunks": ()}, {"rejects_bytes": 9}])
def test_a_receipt_of_which_something_was_taken_is_never_finished(change: dict[str, Any]) -> None:
    job = finished(texts("abc"))
    (unit,) = job.plan.units()
    receipt = job.receipts.receipt(unit)
    assert receipt is not None
    job.receipts.commit(unit, msgspec.structs.replace(receipt, **change))
    with pytest.raises(OutputError, match=CHANGED):
        complete_job(job)
    assert not is_complete(job)


@pytest.mark.parametrize("listed", [0, 2])
def test_rejects_that_are_not_listed_as_counted_are_never_finished(listed: int) -> None:
    job = finished(texts("abc") + b"broken\n", max_rejects="100%")
    edit_rejects(job, b'"records": 1', b'"records": %d' % listed)
    message = f"1 record was rejected, but {listed} are listed, please report this"
    with pytest.raises(LedgerError, match=message):
        complete_job(job)
    assert not is_complete(job)


def test_more_rejects_than_allowed_are_listed_and_no_manifest_is_written() -> None:
    job = finished(texts("abc", "d") + b"[]\nbroken\n", max_rejects=1)
    with pytest.raises(RejectLimitError) as error:
        complete_job(job)
    assert str(error.value) == (
        "2 of 4 records were rejected (50 %: broken_json 1, not_an_object 1), more than --max-rejects 1. They are "
        "listed in memory:rejects.jsonl. Fix the input and start over with --overwrite, or run the same command again "
        "with a higher --max-rejects: it continues from here"
    )
    assert len(rejects_of(job)) == 2
    assert not is_complete(job)
    for limit in ("50%", 2):
        assert complete_job(allowing(job, limit)).ledger.rejected == 2


def test_damaged_files_are_named_where_too_much_is_rejected() -> None:
    job = finished(texts("abc") + b"broken\n", max_rejects=0)
    unit = job.plan.unit(0)
    receipt = job.receipts.receipt(unit)
    assert receipt is not None
    damage = Damage(
        part=0,
        reason=Reason.CORRUPT_FILE,
        detail="bad",
        record=1,
        offset=0,
        places=1,
        lost_rows=None,
        unread_bytes=None,
    )
    job.receipts.commit(unit, msgspec.structs.replace(receipt, damaged=(damage,)))
    with pytest.raises(RejectLimitError, match=r"rejects\.jsonl\. Damaged: a\.jsonl\. Fix the input"):
        complete_job(job)


def test_records_that_are_too_large_are_no_reason_to_fix_the_input() -> None:
    job = finished(texts("abc"), max_rejects=0)
    ledger = Ledger(records=3, rejected=2, rejects_by_reason={"too_large": 2})
    said = str(too_many_rejects(job, ledger))
    assert "Start over with a higher --max-document-bytes and --overwrite, or run" in said
    assert "Fix the input" not in said


def test_the_way_on_leaves_one_off_actions_out() -> None:
    job = finished(b"broken\n", max_rejects=0, overwrite=True)
    with pytest.raises(RejectLimitError, match="or run the same command again, without --overwrite, with a higher"):
        complete_job(job)


def allowing(job: Job, limit: object) -> Job:
    return replace(job, config=replace(job.config, max_rejects=RejectLimit.parse(limit)))


@pytest.mark.parametrize(("wrong", "asked"), [(2, False), (3, True)])
def test_a_wrong_text_field_is_asked_about_when_most_records_lack_it(wrong: int, asked: bool) -> None:
    job = finished(texts("abc", "d") + b"{}\n" * wrong, max_rejects=0)
    with pytest.raises(RejectLimitError) as error:
        complete_job(job)
    assert ("Is --text-field text right?" in str(error.value)) == asked


def test_the_only_record_may_be_rejected_for_another_reason() -> None:
    job = finished(b"broken\n", max_rejects=0)
    with pytest.raises(RejectLimitError, match=r"1 of 1 record was rejected \(100 %: broken_json 1\)") as error:
        complete_job(job)
    assert "--text-field" not in str(error.value)


def test_a_share_of_rejects_is_judged_at_the_end_however_few_records_there_are() -> None:
    job = finished(texts("abc", "d", "e") + b"broken\n", max_rejects="24%")
    with pytest.raises(RejectLimitError, match=r"1 of 4 records was rejected \(25 %"):
        complete_job(job)
    assert complete_job(allowing(job, "25%")).ledger.rejected == 1


def test_a_file_that_could_not_be_read_is_no_share_of_nothing() -> None:
    job = finished(b"broken\n", max_rejects=0)
    ledger = Ledger(rejected=1, rejects_by_reason={"truncated_file": 1})
    assert "1 of 0 records was rejected (100 %: truncated_file 1)" in str(too_many_rejects(job, ledger))


def test_what_a_unit_could_not_read_is_told_in_the_end() -> None:
    job = finished(texts("abc"))
    unit = job.plan.unit(0)
    receipt = job.receipts.receipt(unit)
    assert receipt is not None
    job.receipts.commit(unit, msgspec.structs.replace(receipt, missing={0: "gone"}))
    assert complete_job(job).missing == {"a.jsonl": "gone"} == summarize(job.receipts, job.plan, "").missing


@pytest.mark.parametrize("name", ["manifest.json", "rejects.jsonl", "tokenizer.json"])
def test_what_cannot_be_read_for_a_moment_is_not_made_again(name: str) -> None:
    job = finished(texts("abc"))
    complete_job(job)

    def watch(_operation: str, about: str) -> None:
        if about == name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = job.store.storage
    assert isinstance(storage, MemoryStorage)
    storage.publish("tokenizer.json", [job.tokenizer.data])
    storage.watch = watch
    with pytest.raises(OutputError, match=rf"^memory:{name} cannot be read: .* Fix this and run the command again$"):
        list(problems_at_the_end(job, Output(storage)))
