"""A job and its output: what makes two jobs the same, what is continued, and what is refused by name."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.support.outputs import file, job_of, put
from tests.support.units import tokenizer_of
from tokenmill.config import Config, ContentOptions, Tail
from tokenmill.config.option import options_of
from tokenmill.encode import Tokenizer
from tokenmill.errors import DifferentJobError, OutputBusyError, OutputError
from tokenmill.job.prepare import Job, describe_job, open_job
from tokenmill.output.open import output_storage
from tokenmill.output.plan_file import Plan, Skipped
from tokenmill.output.schema import StoredOptions, StoredTokenizer
from tokenmill.output.store import Store
from tokenmill.plan.make import Planned
from tokenmill.records import InputFile, Part, Unit
from tokenmill.storage.base import Storage
from tokenmill.storage.memory import MemoryStorage


def config_of(**options: Any) -> Config:
    return Config(**{"inputs": ("in",), "output": Path("out"), "seq_len": 4, **options})


def planned_of(*files: InputFile, skipped: tuple[str, ...] = ()) -> Planned:
    """A unit for each file."""
    plan = Plan.of(Unit(n, (Part(n),), (each,), each.size) for n, each in enumerate(files))
    left = Skipped()
    for name in skipped:
        left.append(name, "hidden")
    return Planned(plan, MemoryStorage(), left)


FILES = (file("a.jsonl"), file("b.jsonl"))


def begin(storage: Storage, planned: Planned | None = None, tokenizer: Tokenizer | None = None, **options: Any) -> Job:
    """Open a job and prepare its output, as a run does."""
    planned = planned or planned_of(*FILES)
    with open_job(config_of(**options), planned, tokenizer or tokenizer_of(), storage) as job:
        where = b"in"
        job.store.prepare(job.description, job.plan, job.tokenizer.data, where)
        return job


# The job as it is stored


def test_a_job_is_described_by_its_options_and_its_tokenizer() -> None:
    job = describe_job(ContentOptions(seq_len=4, id_field="id", tail=Tail.DROP), tokenizer_of(bos=True))
    assert job.options == StoredOptions(
        text_field="text",
        id_field="id",
        special_tokens_in_text="plain",
        eos_token="<|endoftext|>",
        bos_token=None,
        seq_len=4,
        sequences_per_chunk=50_000,
        tail="drop",
        max_document_bytes=256 << 20,
    )
    assert job.tokenizer == StoredTokenizer(
        name="bytes", sha256="0", vocab_size=259, eos_id=256, bos_id=258, pad_id=257, dtype="uint16"
    )
    assert describe_job(ContentOptions(), tokenizer_of(eos=False)).options.eos_token is None


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "uint32")])
def test_the_type_of_ids_is_stored_as_it_is_written(vocab_size: int, dtype: str) -> None:
    tokenizer = replace(tokenizer_of(), vocab_size=vocab_size)
    assert describe_job(ContentOptions(), tokenizer).tokenizer.dtype == dtype == tokenizer.dtype.name


def test_a_run_id_is_that_of_options_tokenizer_and_plan_alone() -> None:
    job = job_of({"a.jsonl": b'{"text": "a"}\n'})
    how: dict[str, Any] = {"batch_size": 7, "engine": "streaming", "max_rejects": 3, "output": Path("other")}
    same = job_of({"a.jsonl": b'{"text": "a"}\n'}, **how)
    assert same.run_id == job.run_id
    others = [
        job_of({"a.jsonl": b'{"text": "b"}\n'}),
        job_of({"b.jsonl": b'{"text": "a"}\n'}),
        job_of({"a.jsonl": b'{"text": "a"}\n'}, seq_len=5),
        job_of({"a.jsonl": b'{"text": "a"}\n'}, tokenizer=replace(tokenizer_of(), sha256="1")),
    ]
    assert len({job.run_id, *(other.run_id for other in others)}) == 5


def test_what_a_unit_needs_is_one_record(tmp_path: Path) -> None:
    job = job_of({"a.jsonl": b""}, storage=_held(tmp_path), batch_size=7, overwrite=True)
    setup = job.unit_setup()
    assert type(setup.options) is ContentOptions
    assert setup.options.seq_len == 4
    assert (setup.batch_size, setup.tokenizer, setup.receipts) == (7, job.tokenizer, job.receipts)
    assert (setup.receipts.seq_len, setup.receipts.dtype) == (4, np.dtype("<u2"))
    assert setup.resume_hint == job.resume_hint == "run the same command again, without --overwrite,"
    sent = replace(setup, inputs=output_storage(tmp_path))
    assert pickle.loads(pickle.dumps(sent)) == sent


def _held(folder: Path) -> Storage:
    storage = output_storage(folder)
    storage.make_folder("logs")
    return storage


def test_a_job_under_way_does_not_say_that_it_is_complete_and_leaves_no_drafts() -> None:
    job = job_of({"a.jsonl": b""})
    put(job.store.storage, "manifest.json")
    with job.underway():
        assert not job.store.has("manifest.json")
        job.store.storage.draft("chunks/00000-0000.npy").close()
    assert list(job.store.storage.drafts()) == []
    assert job.store.storage.read("logs/inputs") == b"memory:"
    with pytest.raises(ZeroDivisionError), job.underway():
        job.store.storage.draft("chunks/00000-0000.npy").close()
        raise ZeroDivisionError
    assert dict(job.store.storage.drafts()) == {"00000-0000.npy": 0}  # for the next run


# Whose output it is


def test_an_output_is_begun_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for storage in (MemoryStorage(), output_storage(tmp_path / "new" / "out"), output_storage(tmp_path / "empty")):
        job = begin(storage)
        assert Store(storage).read_job() == job.description
        assert job.plan.files == 2


def test_an_output_of_others_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"x")
    with pytest.raises(
        OutputError, match=f"^{tmp_path} holds files that are not tokenmill's: choose a new or an empty directory$"
    ):
        begin(output_storage(tmp_path), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"x")
    with pytest.raises(
        OutputError, match=rf"^{tmp_path / 'out'} is a file: the output must be a directory \(the last path"
    ):
        begin(output_storage(tmp_path / "out"))


def test_a_file_in_the_place_of_the_drafts_is_not_taken_for_the_output(tmp_path: Path) -> None:
    (tmp_path / "tmp").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        begin(output_storage(tmp_path))


def test_an_output_is_held_while_its_job_is_open() -> None:
    storage = MemoryStorage()
    with (
        open_job(config_of(), planned_of(*FILES), tokenizer_of(), storage),
        pytest.raises(OutputBusyError, match="another run is writing to memory:"),
    ):
        begin(storage)
    begin(storage)


def test_handles_of_the_lock_are_given_to_the_job(tmp_path: Path) -> None:
    with open_job(config_of(), planned_of(*FILES), tokenizer_of(), output_storage(tmp_path)) as job:
        assert len(job.lock_handles) == 1


def test_units_without_a_job_or_a_plan_are_refused() -> None:
    for name in ("job.json", "plan.jsonl"):
        storage = MemoryStorage()
        begin(storage)
        put(storage, "units/00000.json")
        storage.remove([name])
        with pytest.raises(OutputError, match=f"{name} is missing, but there are units: start over with --overwrite"):
            begin(storage)
        begin(storage, overwrite=True)


# The same job


def test_the_same_job_goes_on_with_the_units_that_were_planned_first() -> None:
    storage = MemoryStorage()
    first = begin(storage)
    one_unit = Plan.of([Unit(0, (Part(0), Part(1)), FILES, 20)])
    again = begin(storage, replace(planned_of(*FILES), plan=one_unit), batch_size=7, max_rejects=5)
    assert again.plan.digest == first.plan.digest
    assert list(again.plan.units()) == list(first.plan.units())
    assert again.run_id == first.run_id


def test_what_was_skipped_is_that_of_this_run() -> None:
    storage = MemoryStorage()
    begin(storage, planned_of(*FILES, skipped=("a.md",)))
    assert [entry.name for entry in begin(storage, planned_of(*FILES, skipped=("b.md",))).skipped] == ["b.md"]


def test_overwrite_removes_the_job_before() -> None:
    storage = MemoryStorage()
    begin(storage)
    put(storage, "units/00000.json", "chunks/00000-0000.npy", "manifest.json")
    job = begin(storage, planned_of(file("c.jsonl")), overwrite=True, seq_len=9)
    assert job.plan.files == 1
    assert set(storage.files()) == {"job.json", "plan.jsonl", "tokenizer.json", "logs/inputs"}


def test_an_output_that_is_held_is_not_overwritten() -> None:
    storage = MemoryStorage()
    begin(storage)
    before = storage.files()
    with Store(storage).locked(), pytest.raises(OutputBusyError):
        begin(storage, overwrite=True)
    assert storage.files() == before


OTHER_OPTIONS: dict[str, Any] = {
    "text_field": "body",
    "id_field": "id",
    "special_tokens_in_text": "reject",
    "eos_token": None,
    "bos_token": "<|bos|>",
    "seq_len": 5,
    "sequences_per_chunk": 3,
    "tail": "drop",
    "max_document_bytes": 1000,
}


@pytest.mark.parametrize("name", OTHER_OPTIONS)
def test_another_option_is_a_different_job_and_is_named(name: str) -> None:
    storage = MemoryStorage()
    begin(storage)
    options, tokenizer = {name: OTHER_OPTIONS[name]}, tokenizer_of()
    if name == "eos_token":  # which the tokenizer resolves
        options, tokenizer = {}, tokenizer_of(eos=False)
    with pytest.raises(DifferentJobError) as error:
        begin(storage, tokenizer=tokenizer, **options)
    assert str(error.value).startswith(f"memory: holds a different job: --{name.replace('_', '-')} was ")
    other = OTHER_OPTIONS[name]
    assert f" and is now {'off' if other is None else repr(other)}" in str(error.value)
    assert str(error.value).endswith(". Restore what differs, choose another directory, or start over with --overwrite")


def test_every_option_that_changes_the_output_is_compared() -> None:
    assert OTHER_OPTIONS.keys() == {option.name for option in options_of(ContentOptions)} - {"tokenizer"}


def test_a_renamed_tokenizer_is_the_same_and_keeps_the_name_that_is_written_down() -> None:
    storage = MemoryStorage()
    first = begin(storage)
    again = begin(storage, tokenizer=replace(tokenizer_of(), name="elsewhere/tokenizer.json"))
    assert again.tokenizer.name == "bytes"
    assert again.run_id == first.run_id


def test_another_tokenizer_is_a_different_job() -> None:
    storage = MemoryStorage()
    begin(storage, tokenizer=replace(tokenizer_of(), sha256="0123456789abcdef"))
    with pytest.raises(
        DifferentJobError, match=r"the tokenizer was bytes \(0123456789ab\) and is now new with other content\."
    ):
        begin(storage, tokenizer=replace(tokenizer_of(), name="new", sha256="1"))
    with pytest.raises(DifferentJobError, match="different job: the tokenizer's special tokens differ"):
        begin(storage, tokenizer=replace(tokenizer_of(), name="new", sha256="0123456789abcdef", pad_id=1))


def test_a_job_of_another_format_version_is_a_different_job() -> None:
    storage = MemoryStorage()
    begin(storage)
    put(storage, "job.json", data=b'{"format_version": 2, "options": {}, "tokenizer": {}}')
    with pytest.raises(DifferentJobError, match="its format version is 2, this program's is 1"):
        begin(storage)


# The same inputs


def changed(each: InputFile, **changes: Any) -> InputFile:
    return msgspec.structs.replace(each, **changes)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([FILES[0]], "input gone: b.jsonl"),
        ([FILES[1]], "input gone: a.jsonl"),
        ([*FILES, file("c.jsonl")], "input added: c.jsonl"),
        ([file("0"), *FILES], "input added: 0"),
        ([FILES[0], changed(FILES[1], fingerprint="g")], "input changed: b.jsonl"),
        ([FILES[0], changed(FILES[1], name="c.jsonl")], "input gone: b.jsonl; input added: c.jsonl"),
        ([file("a\n.jsonl"), FILES[1]], r"input added: a\n.jsonl; input gone: a.jsonl"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_changed_inputs_are_refused_by_name(files: list[InputFile], said: str) -> None:
    storage = MemoryStorage()
    begin(storage)
    with pytest.raises(DifferentJobError) as error:
        begin(storage, planned_of(*files))
    way_out = "Restore what differs, choose another directory, or start over with --overwrite"
    assert str(error.value) == f"memory: holds a different job: {said}. {way_out}"


def test_the_first_few_of_many_changed_inputs_are_named_and_the_others_counted() -> None:
    storage = MemoryStorage()
    begin(storage, planned_of(*(file(f"{n:02d}") for n in range(20))))
    now = [*(file(f"{n:02d}", fingerprint="other") for n in range(5, 20)), file("99")]
    with pytest.raises(DifferentJobError) as error:
        begin(storage, planned_of(*now))
    assert "input gone: 00, 01, 02, 03, 04; input changed: 05, 06, 07, 08, 09 and 10 more; input added: 99." in str(
        error.value
    )


PROBLEM = "Permission denied"


@pytest.mark.parametrize(
    ("before", "now"), [(None, PROBLEM), (PROBLEM, PROBLEM), (PROBLEM, "No such file or directory")]
)
def test_an_input_that_cannot_be_read_is_missing_and_not_different(before: str | None, now: str) -> None:
    storage = MemoryStorage()
    first = begin(storage, planned_of(FILES[0], changed(FILES[1], problem=before, fingerprint="then")))
    again = begin(storage, planned_of(FILES[0], changed(FILES[1], problem=now, fingerprint="now")))
    assert again.plan.digest == first.plan.digest


def test_an_input_that_was_repaired_is_read_as_it_is_now() -> None:
    storage = MemoryStorage()
    first = begin(storage, planned_of(changed(FILES[0], problem=PROBLEM, size=0, fingerprint=""), FILES[1]))
    again = begin(storage, planned_of(*FILES))
    assert [each for _, each in again.plan.inputs()] == list(FILES)
    assert list(again.plan.sizes) == [10, 10]
    assert again.run_id != first.run_id
    stored = Store(storage).read_plan()
    assert stored is not None
    assert stored.digest == again.plan.digest
