"""A job in its output: whose directory it is, who holds it, what is prepared and cleared, what damage is called."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.outputs import draft_names, names_after_power_loss, plan_of, put, stored_job, write_draft
from tokenmill.errors import DifferentJobError, OutputBusyError, OutputError
from tokenmill.output.open import output_storage
from tokenmill.output.plan_file import Plan
from tokenmill.output.receipts import START_OVER
from tokenmill.output.schema import to_builtins, to_text
from tokenmill.output.store import Store
from tokenmill.records import Part
from tokenmill.storage.base import Storage
from tokenmill.storage.memory import MemoryStorage

JOB = to_text(stored_job()).encode()


def plan() -> Plan:
    return plan_of([Part(0)])


def prepare(storage: Storage, **changes: Any) -> Store:
    wanted: dict[str, Any] = {"job": stored_job(), "plan": plan(), "tokenizer": b"tokenizer", "inputs": b"/some/where"}
    store = Store(storage)
    store.prepare(**wanted | changes)
    return store


@pytest.fixture
def storage() -> MemoryStorage:
    """With nothing in it."""
    return MemoryStorage()


@pytest.fixture
def ready(storage: MemoryStorage) -> Store:
    """A prepared output."""
    return prepare(storage)


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


# Whose directory it is


@pytest.mark.parametrize(
    ("files", "drafts", "foreign"),
    [
        ([], [], False),
        (["logs/lock"], [], False),
        ([], ["job.json"], False),
        (["logs/lock"], ["job.json"], False),
        ([], ["other"], True),
        (["notes.txt"], [], True),
        (["chunks/00000-0000.npy"], [], True),
        (["plan.jsonl"], [], True),
        (["units/00000.json"], [], True),
        (["plan.jsonl", "units/00000.json"], [], False),
        (["plan.jsonl", "units/00000.json", "notes.txt"], ["other"], False),
        (["logs/anything", "logs/more"], [], False),
        (["plan.jsonl", "units"], [], True),
    ],
)
@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_an_output_is_ours_if_a_run_may_have_left_what_is_in_it(
    tmp_path: Path, files: list[str], drafts: list[str], foreign: bool, disk: bool
) -> None:
    storage: Storage = output_storage(tmp_path / "out") if disk else MemoryStorage()
    storage.make_folder("tmp")
    for name in files:
        if "/" in name:
            storage.make_folder(name.partition("/")[0])
        put(storage, name)
    for name in drafts:
        write_draft(storage, name)
    assert Store(storage).is_foreign() == foreign


def test_an_output_with_our_job_is_ours_and_with_another_file_of_that_name_is_not(storage: MemoryStorage) -> None:
    put(storage, "notes.txt")
    put(storage, "job.json", data=JOB)
    assert not Store(storage).is_foreign()
    for other in (b"{}", b"[]", b"", b'{"format_version": 1, "options": {}}'):
        put(storage, "job.json", data=other)
        assert Store(storage).is_foreign()


def test_a_file_in_the_place_of_the_draft_folder_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "tmp").write_bytes(b"")
    assert not Store(output_storage(tmp_path)).is_foreign()


def test_an_output_that_is_not_there_or_is_a_file_is_for_the_caller_to_judge(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Store(output_storage(tmp_path / "missing")).is_foreign()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        Store(output_storage(tmp_path / "file")).is_foreign()


# The lock


def test_an_output_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    root = tmp_path / "new" / "out"
    one, other = Store(output_storage(root)), Store(output_storage(root))
    with one.locked() as handles:
        for handle in handles:
            os.fstat(handle)
        with pytest.raises(OutputBusyError, match=f"another run is writing to {root}: wait for it"), other.locked():
            pass
    with other.locked():
        pass
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
    assert names(root) == {"logs/lock"}


def test_an_output_is_let_go_whatever_happens(storage: MemoryStorage) -> None:
    with pytest.raises(ZeroDivisionError), Store(storage).locked():
        raise ZeroDivisionError
    with Store(storage).locked(), pytest.raises(OutputBusyError), Store(storage).locked():
        pass


def test_a_refused_lock_leaves_no_file_open(tmp_path: Path) -> None:
    with Store(output_storage(tmp_path)).locked():
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OutputBusyError), Store(output_storage(tmp_path)).locked():
            pass
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    root = tmp_path / "file" / "out"
    with (
        pytest.raises(OutputError, match=rf"^cannot write to {root}: Not a directory \(logs\)\. Fix this, or choose"),
        Store(output_storage(root)).locked(),
    ):
        pass


# Clear and prepare


def test_an_output_is_prepared_with_job_plan_and_tokenizer(ready: Store, storage: MemoryStorage) -> None:
    assert storage.files() == {
        "job.json": JOB,
        "plan.jsonl": b"".join(plan().lines()),
        "tokenizer.json": b"tokenizer",
        "logs/inputs": b"/some/where",
    }
    assert {entry.name for entry in storage.list() if entry.is_folder} == {"chunks", "units", "tmp", "logs"}
    assert draft_names(storage) == set()
    assert (ready.read_job(), ready.has("job.json"), ready.has("manifest.json")) == (stored_job(), True, False)


def test_a_prepared_output_is_there_for_good_with_its_folders(ready: Store, storage: MemoryStorage) -> None:
    assert ready.has("plan.jsonl")
    found = storage.after_power_loss()
    assert set(found.files()) == {"job.json", "plan.jsonl", "tokenizer.json"}
    assert {entry.name for entry in found.list() if entry.is_folder} >= {"chunks", "units", "tmp"}


def test_what_is_as_it_should_be_is_not_written_again(ready: Store, storage: MemoryStorage) -> None:
    assert ready.has("job.json")
    before = [storage.stat(name).version for name in ("job.json", "plan.jsonl", "tokenizer.json")]
    prepare(storage, inputs=b"elsewhere")
    assert [storage.stat(name).version for name in ("job.json", "plan.jsonl", "tokenizer.json")] == before
    assert storage.read("logs/inputs") == b"elsewhere"


def test_what_is_not_as_it_should_be_is_written_again(ready: Store, storage: MemoryStorage) -> None:
    assert ready.has("job.json")
    other = plan_of([Part(0)], [Part(1)])
    prepare(storage, job=stored_job(seq_len=9), plan=other, tokenizer=b"other")
    assert json.loads(storage.read("job.json"))["options"]["seq_len"] == 9
    assert storage.read("plan.jsonl") == b"".join(other.lines())
    assert storage.read("tokenizer.json") == b"other"


def test_a_prepared_output_does_not_say_that_it_is_complete(ready: Store, storage: MemoryStorage) -> None:
    put(storage, "manifest.json", "rejects.jsonl")
    prepare(storage)
    assert not ready.has("manifest.json")
    assert ready.has("rejects.jsonl")
    assert "manifest.json" not in storage.after_power_loss().files()


def test_what_a_dead_run_left_half_written_goes_unless_a_checkpoint_may_go_on_with_it(storage: MemoryStorage) -> None:
    prepare(storage)
    put(storage, "units/00003.checkpoint.json")
    kept = {"00003-0001.npy", "00003-0001.docs.npy", "00003.rejects.jsonl"}
    for name in (*kept, "00004-0000.npy", "00004.rejects.jsonl", "00003.json", "manifest.json", "000031", "000031-0"):
        write_draft(storage, name)
    prepare(storage)
    assert draft_names(storage) == kept
    assert storage.read("units/00003.checkpoint.json") == b""


def test_without_a_checkpoint_everything_half_written_goes(storage: MemoryStorage) -> None:
    prepare(storage)
    for name in ("00003-0001.npy", "00003.rejects.jsonl"):
        write_draft(storage, name)
    prepare(storage)
    assert draft_names(storage) == set()


def test_units_with_checkpoints_are_those_of_the_plan(storage: MemoryStorage) -> None:
    plan = plan_of([Part(0)], [Part(1)], [Part(2)])
    assert Store(storage).units_with_checkpoints(plan) == []
    put(storage, *(f"units/{name}.checkpoint.json" for name in ("00002", "00000", "00003", "x", "")))
    put(storage, "units/00001.json")
    assert Store(storage).units_with_checkpoints(plan) == [plan.unit(0), plan.unit(2)]


def test_a_checkpoint_beside_a_receipt_goes(storage: MemoryStorage) -> None:
    prepare(storage)
    put(storage, "units/00003.checkpoint.json", "units/00003.json", "units/00004.checkpoint.json")
    prepare(storage)
    assert {entry.name for entry in storage.list("units")} == {"00003.json", "00004.checkpoint.json"}


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_in_the_end_there_is_no_draft_and_no_folder_of_them(tmp_path: Path, disk: bool) -> None:
    storage: Storage = output_storage(tmp_path) if disk else MemoryStorage()
    storage.make_folder("logs")
    store = prepare(storage)
    write_draft(storage, "x")
    store.conclude()
    assert draft_names(storage) == set()
    assert "tmp" not in {entry.name for entry in storage.list()}
    store.conclude()


OF_A_JOB = ("manifest.json", "rejects.jsonl", "chunks/00000-0000.npy", "units/00000.json", "units/00000.rejects.jsonl")


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_a_job_is_cleared_with_everything_but_the_logs(tmp_path: Path, disk: bool) -> None:
    storage: Storage = output_storage(tmp_path) if disk else MemoryStorage()
    storage.make_folder("logs")
    store = prepare(storage)
    put(storage, *OF_A_JOB, "units/00001.checkpoint.json")
    write_draft(storage, "x")
    store.clear()
    assert [entry.name for entry in storage.list()] == ["logs"]
    assert storage.read("logs/inputs") == b"/some/where"
    assert draft_names(storage) == set()
    store.clear()


def test_a_job_is_cleared_in_an_order_in_which_nothing_stands_for_what_is_gone(
    ready: Store, storage: MemoryStorage
) -> None:
    """At any step, and after a power loss at any step: and to the end the output is known to be ours."""
    put(storage, *OF_A_JOB, "units/00001.checkpoint.json")
    steps: list[str] = []

    def watch(operation: str, name: str) -> None:
        steps.append(f"{operation} {name}")
        for found in names_after_power_loss(storage):
            if "manifest.json" in found:
                assert set(OF_A_JOB) - {"rejects.jsonl"} <= found, steps
            if found & {"units/00000.json", "units/00001.checkpoint.json"}:
                assert {"chunks/00000-0000.npy", "units/00000.rejects.jsonl"} <= found, steps
            assert "job.json" in found, steps

    storage.watch = watch
    ready.clear()
    storage.watch = lambda _operation, _name: None
    removed = [step for step in steps if step.startswith("remove ")]
    assert removed[0] == "remove manifest.json"
    assert removed[-1] == steps[-1] == "remove job.json"
    assert set(storage.files()) == {"logs/inputs"}


def test_a_file_in_the_place_of_a_folder_of_a_job_is_no_reason_to_fail(storage: MemoryStorage) -> None:
    put(storage, "units", "job.json", data=JOB)
    store = Store(storage)
    store.refuse_without_plan()
    store.clear()
    assert set(storage.files()) == {"units"}


# What is read


def test_a_file_that_is_not_there_is_none(storage: MemoryStorage) -> None:
    assert Store(storage).read_job() is None
    assert Store(storage).read_plan() is None


def test_a_job_comes_back_as_it_was_written(ready: Store) -> None:
    assert ready.read_job() == stored_job()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "ValidationError('Expected `object`, got `array`')"),
        ("3", "ValidationError('Expected `object`, got `int`')"),
        ("\xff", "UnicodeDecodeError"),
        ('{"format_version": 1}', "ValidationError('Object missing required field"),
        (to_text(stored_job()).replace('"format_version": 1,', ""), "ValueError('it is not what tokenmill writes')"),
        (to_text(stored_job()).replace('"pad"', '"stretch"'), "ValidationError"),
        ("[" * 100_000, "ValidationError"),
    ],
    ids=lambda text: text[:20],
)
def test_a_damaged_job_is_named_with_its_way_out(storage: MemoryStorage, content: str, why: str) -> None:
    put(storage, "job.json", data=content.encode("latin-1"))
    with pytest.raises(OutputError) as error:
        Store(storage).read_job()
    assert str(error.value).startswith(f"memory:job.json is damaged ({why}")
    assert str(error.value).endswith(f"). {START_OVER}")


def test_a_job_that_cannot_be_read_is_not_called_damaged(storage: MemoryStorage) -> None:
    def watch(_operation: str, _name: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    storage.watch = watch
    for read in (Store(storage).read_job, Store(storage).read_plan):
        with pytest.raises(OutputError, match=r"cannot be read: Input/output error\. Fix this and run the command"):
            read()


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_a_job_of_another_format_version_is_another_job(storage: MemoryStorage, version: object) -> None:
    put(storage, "job.json", data=json.dumps({"format_version": version, "new": 1}).encode())
    way_out = "Choose another directory, or start over with --overwrite"
    said = f"^memory:job.json: its format version is {version}, this program's is 1. {way_out}$"
    with pytest.raises(DifferentJobError, match=said):
        Store(storage).read_job()


def test_a_plan_comes_back_as_it_was_written(ready: Store) -> None:
    found = ready.read_plan()
    assert found is not None
    assert (list(found.sizes), found.digest) == ([10], plan().digest)
    assert list(found.units()) == list(plan().units())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", r"ValueError\('no units'\)"),
        (b"{}\n", "ValidationError"),
        (b"x\n", "JSONDecodeError"),
        (b"".join(plan_of([Part(0)]).lines()).replace(b'"unit": 0', b'"unit": 1'), "ValueError"),
        (b"".join(plan_of([Part(0)]).lines()).replace(b"0.jsonl", b"\\ud800"), "UnicodeEncodeError"),
    ],
)
def test_a_plan_that_is_damaged_or_empty_is_named(storage: MemoryStorage, content: bytes, why: str) -> None:
    put(storage, "plan.jsonl", data=content)
    with pytest.raises(OutputError, match=rf"plan\.jsonl is damaged \({why}.*\)\. {START_OVER}$"):
        Store(storage).read_plan()


def test_units_without_their_plan_are_nobodys(storage: MemoryStorage) -> None:
    store = Store(storage)
    store.refuse_without_plan()
    storage.make_folder("units")
    store.refuse_without_plan()
    put(storage, "units/00000.json")
    with pytest.raises(OutputError, match=r"job\.json is missing, but there are units: start over with --overwrite"):
        store.refuse_without_plan()
    put(storage, "job.json", data=JOB)
    with pytest.raises(OutputError, match=r"plan\.jsonl is missing, but there are units"):
        store.refuse_without_plan()


def test_a_renamed_tokenizer_is_another_job_to_the_store(ready: Store, storage: MemoryStorage) -> None:
    """Whoever prepares decides whether it is the same; the store writes what it is given."""
    tokenizer = msgspec.structs.replace(stored_job().tokenizer, name="other")
    prepare(storage, job=msgspec.structs.replace(stored_job(), tokenizer=tokenizer))
    assert json.loads(storage.read("job.json"))["tokenizer"] == to_builtins(tokenizer)
    assert ready.read_job() != stored_job()
