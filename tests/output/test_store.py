"""The output directory: whose it is, what is prepared and cleared, when a unit is there, what damage is called."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from tests.unit.test_process import ByteEncoder, Told, job_of
from tokenmill.errors import OutputBusyError, OutputError
from tokenmill.output.plan_file import Plan, write_plan
from tokenmill.output.store import (
    REMOVE,
    START_ANEW,
    Checkpoint,
    Store,
    as_text,
    chunk_name,
    found_damaged,
)
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Codec, Format, InputFile, Ledger, Part, Receipt, Unit
from tokenmill.unit.run import run_unit
from tokenmill.write.chunks import EMPTY, Partial

U2 = np.dtype("<u2")
DESCRIPTION: dict[str, Any] = {"format_version": 1, "options": {}, "tokenizer": {}}
FILE = InputFile(name="a.jsonl", size=5, fingerprint="", format=Format.JSONL, codec=Codec.PLAIN)
UNIT = Unit(7, (Part(0),), (FILE,), 5)


def plan_of(size: int = 5) -> Plan:
    return write_plan(Path("/some/where"), [replace(UNIT, index=0, size=size)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A directory that is held and empty."""
    store = Store(tmp_path / "out")
    store.logs.mkdir(parents=True)
    return store


@pytest.fixture
def ready(store: Store) -> Store:
    """A directory that is prepared."""
    store.prepare(DESCRIPTION, plan_of(), b"tokenizer")
    return store


def put(path: Path, content: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


# Whose directory it is

JOB = json.dumps(DESCRIPTION)


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        ([], False),
        (["logs/lock"], False),
        (["tmp/job.json"], False),
        (["logs/lock", "tmp/job.json"], False),
        (["tmp/other"], True),
        (["notes.txt"], True),
        (["chunks/00000-0000.npy"], True),
        (["plan.jsonl"], True),
        (["units/00000.json"], True),
        (["plan.jsonl", "units/00000.json"], False),
        (["plan.jsonl", "units/00000.json", "notes.txt"], False),
        (["logs/anything", "logs/more"], False),
    ],
)
def test_a_directory_is_ours_if_a_run_may_have_left_what_is_in_it(
    store: Store, files: list[str], foreign: bool
) -> None:
    for name in files:
        put(store.root / name)
    assert store.is_foreign() == foreign


def test_a_directory_with_our_job_is_ours_and_with_another_file_of_that_name_is_not(store: Store) -> None:
    put(store.root / "notes.txt")
    put(store.job, JOB)
    assert not store.is_foreign()
    for other in ("{}", "[]", "", '{"format_version": 1, "options": {}}'):
        put(store.job, other)
        assert store.is_foreign()


def test_a_file_in_the_place_of_the_temporary_folder_is_no_reason_to_fail(store: Store) -> None:
    put(store.temporary)
    assert not store.is_foreign()
    put(store.plan)
    put(store.units)  # a file, where a folder should be
    assert store.is_foreign()


# The lock


def test_a_directory_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "new" / "out"), Store(tmp_path / "new" / "out")
    with one.locked():
        assert one.lock >= 0
        os.fstat(one.lock)
        with (
            pytest.raises(OutputBusyError, match=f"another run is writing to {other.root}: wait for it"),
            other.locked(),
        ):
            pass
        assert other.lock == -1
    with other.locked():
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(one.lock)
    assert names(one.root) == {"logs/lock"}


def test_a_refused_lock_leaves_no_file_open(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.locked():
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OutputBusyError), Store(tmp_path).locked():
            pass
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    put(tmp_path / "file")
    store = Store(tmp_path / "file" / "out")
    with pytest.raises(OutputError, match=rf"^cannot write to {store.root}: Not a directory$"), store.locked():
        pass


# Clear and prepare


def test_a_job_is_cleared_with_everything_but_the_logs(ready: Store) -> None:
    for name in ("manifest.json", "rejects.jsonl", "chunks/a.npy", "units/00000.json", "tmp/x"):
        put(ready.root / name)
    ready.clear()
    assert names(ready.root) == {"logs/inputs"}
    assert sorted(p.name for p in ready.root.iterdir()) == ["logs"]
    ready.clear()


def test_a_job_is_cleared_in_an_order_in_which_it_is_known_as_ours_to_the_end(
    ready: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("manifest.json", "rejects.jsonl", "chunks/a.npy", "units/00000.json"):
        put(ready.root / name)
    removed = []
    original = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        assert not ready.is_foreign()
        original(path, **options)
        removed.append(os.path.basename(path))

    monkeypatch.setattr(os, "unlink", unlink)
    ready.clear()
    assert removed[0] == "manifest.json"
    assert removed[-1] == "job.json"


def test_a_directory_is_prepared_with_job_plan_and_tokenizer(ready: Store) -> None:
    assert names(ready.root) == {"job.json", "plan.jsonl", "tokenizer.json", "logs/inputs"}
    assert ready.job.read_text() == as_text(DESCRIPTION)
    assert ready.plan.read_text() == "".join(plan_of().lines())
    assert ready.tokenizer.read_bytes() == b"tokenizer"
    assert (ready.logs / "inputs").read_bytes() == b"/some/where"
    for folder in (ready.chunks, ready.units, ready.temporary):
        assert folder.is_dir()


def test_what_is_as_it_should_be_is_not_written_again(ready: Store) -> None:
    paths = (ready.job, ready.plan, ready.tokenizer)
    before = [p.stat().st_ino for p in paths]
    ready.prepare(DESCRIPTION, plan_of(), b"tokenizer")
    assert [p.stat().st_ino for p in paths] == before


def test_what_is_not_as_it_should_be_is_written_again(ready: Store) -> None:
    ready.prepare({**DESCRIPTION, "options": {"a": 1}}, plan_of(6), b"other")
    assert json.loads(ready.job.read_text())["options"] == {"a": 1}
    assert ready.plan.read_text() == "".join(plan_of(6).lines())
    assert ready.tokenizer.read_bytes() == b"other"


def test_a_prepared_directory_does_not_say_that_it_is_complete(ready: Store) -> None:
    put(ready.manifest)
    put(ready.rejects)
    ready.prepare(DESCRIPTION, plan_of(), b"tokenizer")
    assert not ready.manifest.exists()
    assert ready.rejects.exists()


def test_what_a_dead_run_left_half_written_goes_unless_a_checkpoint_may_go_on_with_it(ready: Store) -> None:
    put(ready.units / "00003.checkpoint.json", "{}")
    for name in ("00003-0001.npy", "00003-0001.docs.npy", "00004-0000.npy", "00003.json", "manifest.json", "000031"):
        put(ready.temporary / name)
    ready.prepare(DESCRIPTION, plan_of(), b"tokenizer")
    assert names(ready.temporary) == {"00003-0001.npy", "00003-0001.docs.npy"}
    assert (ready.units / "00003.checkpoint.json").exists()


def test_without_a_checkpoint_everything_half_written_goes(ready: Store) -> None:
    put(ready.temporary / "00003-0001.npy")
    ready.prepare(DESCRIPTION, plan_of(), b"tokenizer")
    assert names(ready.temporary) == set()


def test_a_checkpoint_beside_a_receipt_goes(ready: Store) -> None:
    for name in ("00003.checkpoint.json", "00003.json", "00004.checkpoint.json"):
        put(ready.units / name, "{}")
    ready.prepare(DESCRIPTION, plan_of(), b"tokenizer")
    assert names(ready.units) == {"00003.json", "00004.checkpoint.json"}


def test_in_the_end_there_is_no_temporary_folder(ready: Store) -> None:
    put(ready.temporary / "x")
    ready.conclude()
    assert not ready.temporary.exists()
    ready.conclude()


# What is read


def test_a_file_that_is_not_there_is_none(store: Store) -> None:
    assert store.read_json(store.job) is None
    assert store.read_plan(Path("in")) is None
    assert store.receipt(UNIT) is None
    assert store.checkpoint(UNIT) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "ValueError('not an object')"),
        ("3", "ValueError('not an object')"),
        ("\xff", "UnicodeDecodeError"),
    ],
)
def test_a_damaged_file_is_named_with_its_way_out(store: Store, content: str, why: str) -> None:
    for path, way_out in ((store.job, START_ANEW), (store.root / "units" / "00007.json", REMOVE)):
        put(path, content.encode("latin-1"))
        with pytest.raises(OutputError) as error:
            store.read_json(path)
        assert str(error.value).startswith(f"{path} is damaged ({why}")
        assert str(error.value).endswith(f"). {way_out}")


def test_a_plan_that_is_damaged_or_empty_is_named(store: Store) -> None:
    for content, why in (("", r"ValueError\('no units'\)"), ("{}\n", "KeyError"), ("x\n", "JSONDecodeError")):
        put(store.plan, content)
        with pytest.raises(OutputError, match=rf"plan\.jsonl is damaged \({why}.*\)\. {START_ANEW}$"):
            store.read_plan(Path("in"))
    put(store.plan, "".join(plan_of().lines()))
    found = store.read_plan(Path("in"))
    assert found is not None
    assert (found.root, list(found.sizes), found.digest) == (Path("in"), [5], plan_of().digest)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), KeyError("x"), IndexError(), TypeError(), AttributeError(), OverflowError(), RecursionError()],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_damaged_file_leads_to_is_called_damage(error: Exception) -> None:
    with pytest.raises(OutputError) as found, found_damaged(Path("a\nb")):
        raise error
    assert str(found.value) == f"a\\nb is damaged ({error!r}). {REMOVE}"
    assert found.value.__cause__ is error


def test_a_file_that_cannot_be_read_is_not_called_damaged() -> None:
    with pytest.raises(OutputError) as found, found_damaged(Path("a"), "Do this"):
        raise OSError(errno.EIO, "Input/output error")
    assert str(found.value) == "a cannot be read: Input/output error. Do this"
    with pytest.raises(OutputError, match=r"^a cannot be read: strange\. Remove it"), found_damaged(Path("a")):
        raise OSError("strange")


def test_an_error_that_says_what_to_do_and_a_defect_go_through() -> None:
    for error in (OutputError("do that"), AssertionError("a defect"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as found, found_damaged(Path("a")):
            raise error
        assert found.value is error


def test_units_without_their_plan_are_nobodys(store: Store) -> None:
    store.refuse_without_plan()
    store.units.mkdir()
    store.refuse_without_plan()
    put(store.units / "00000.json")
    with pytest.raises(OutputError, match=r"job\.json is missing, but there are units: start anew with --overwrite"):
        store.refuse_without_plan()
    put(store.job, JOB)
    with pytest.raises(OutputError, match=r"plan\.jsonl is missing, but there are units"):
        store.refuse_without_plan()


def test_json_is_written_so_that_it_can_be_printed_and_compared() -> None:
    assert as_text({"b": "\x1b\udce9é", "a": [1]}) == '{\n "a": [\n  1\n ],\n "b": "\\u001b\\udce9\\u00e9"\n}\n'


# Receipts and checkpoints


def entry(number: int = 0, **changes: Any) -> ChunkEntry:
    name = chunk_name(UNIT, number)
    return replace(ChunkEntry(name=name, rows=2, tokens=8, documents=1, xxh3="a", docs_xxh3="b"), **changes)


def receipt(**changes: Any) -> Receipt:
    bare = Receipt(unit=7, ledger=Ledger(), chunks=(), lines=(3,), rejects_bytes=0, rejects_xxh3=None, missing={})
    return replace(bare, **changes)


def checkpoint(**changes: Any) -> Checkpoint:
    bare = Checkpoint(
        part=1,
        offset=20,
        skip=5,
        ledger=Ledger(records=3, rejects_by_reason={"broken_json": 2}),
        chunks=(entry(), entry(1, ids_xxh3="c")),
        lines=(3, 4),
        rejects_bytes=9,
        missing={},
        partial=Partial(tokens=4, documents=2, ids_bytes=1),
    )
    return replace(bare, **changes)


def test_a_receipt_ends_a_unit(ready: Store) -> None:
    ready.save_checkpoint(UNIT, checkpoint())
    ready.commit(UNIT, receipt())
    assert ready.receipt(UNIT) == receipt()
    assert names(ready.units) == {"00007.json"}
    assert ready.receipt_path(UNIT).read_text() == as_text(receipt().to_json())
    ready.commit(UNIT, receipt(lines=(4,)))
    assert ready.receipt(UNIT) == receipt(lines=(4,))


@pytest.mark.parametrize("offset", [None, 0, 20])
@pytest.mark.parametrize("partial", [EMPTY, Partial(tokens=4, documents=2, ids_bytes=1)], ids=["none", "some"])
def test_a_checkpoint_comes_back_as_it_was_saved(ready: Store, offset: int | None, partial: Partial) -> None:
    saved = checkpoint(offset=offset, partial=partial)
    ready.save_checkpoint(UNIT, saved)
    assert ready.checkpoint(UNIT) == saved
    assert names(ready.units) == {"00007.checkpoint.json"}
    assert names(ready.temporary) == set()


@pytest.mark.parametrize(("path", "suffix"), [("receipt_path", "json"), ("_checkpoint_path", "checkpoint.json")])
def test_a_receipt_or_a_checkpoint_that_says_something_else_is_damaged(ready: Store, path: str, suffix: str) -> None:
    put(getattr(ready, path)(UNIT), '{"unit": 7}')
    with pytest.raises(OutputError, match=rf"units/00007\.{suffix} is damaged .*{REMOVE}$"):
        (ready.receipt if suffix == "json" else ready.checkpoint)(UNIT)


# Chunks


def test_chunks_are_named_by_unit_and_number(ready: Store) -> None:
    assert chunk_name(UNIT, 12) == "00007-0012"
    plain = [p.name for p in ready.chunk_paths(entry(3))]
    assert plain == ["00007-0003.npy", "00007-0003.docs.npy"]
    with_ids = [p.name for p in ready.chunk_paths(entry(3, ids_xxh3="c"))]
    assert with_ids == [*plain, "00007-0003.ids.jsonl"]


def write_chunk(folder: Path, chunk: ChunkEntry, seq_len: int = 4) -> None:
    np.save(folder / f"{chunk.name}.npy", np.zeros((chunk.rows, seq_len), U2))
    np.save(folder / f"{chunk.name}.docs.npy", np.zeros(chunk.documents, SIDECAR_DTYPE))


def grow(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size + by)


def test_a_chunk_is_there_if_its_files_have_the_right_size(ready: Store) -> None:
    chunk = entry()
    assert not ready.has_chunk(chunk, 4, U2)
    write_chunk(ready.chunks, chunk)
    assert ready.has_chunk(chunk, 4, U2)
    assert not ready.has_chunk(chunk, 5, U2)
    assert not ready.has_chunk(chunk, 4, np.dtype("<u4"))
    assert not ready.has_chunk(replace(chunk, rows=3), 4, U2)
    assert not ready.has_chunk(replace(chunk, documents=2), 4, U2)
    assert not ready.has_chunk(replace(chunk, ids_xxh3="c"), 4, U2)
    for suffix in (".npy", ".docs.npy"):
        path = ready.chunks / f"{chunk.name}{suffix}"
        for by in (-1, 1):
            grow(path, by)
            assert not ready.has_chunk(chunk, 4, U2)
            grow(path, -by)
        path.rename(ready.root / "away")
        assert not ready.has_chunk(chunk, 4, U2)
        (ready.root / "away").rename(path)
    put(ready.chunks / f"{chunk.name}.ids.jsonl")
    assert ready.has_chunk(replace(chunk, ids_xxh3="c"), 4, U2)


PARTIAL = Partial(tokens=8, documents=1, ids_bytes=3)


def write_partial(folder: Path) -> list[Path]:
    write_chunk(folder, entry())
    put(folder / "00007-0000.ids.jsonl", "ids")
    return sorted(folder.iterdir())


def test_an_incomplete_chunk_is_there_if_all_that_was_counted_is(ready: Store) -> None:
    assert ready.has_partial(UNIT, 0, EMPTY, U2)
    assert not ready.has_partial(UNIT, 0, PARTIAL, U2)
    for path in write_partial(ready.temporary):
        assert ready.has_partial(UNIT, 0, PARTIAL, U2)
        grow(path, 1)  # what was written after it was counted
        assert ready.has_partial(UNIT, 0, PARTIAL, U2)
        grow(path, -2)
        assert not ready.has_partial(UNIT, 0, PARTIAL, U2)
        grow(path, 1)
        path.rename(ready.root / "away")
        assert not ready.has_partial(UNIT, 0, PARTIAL, U2)
        (ready.root / "away").rename(path)
    assert ready.has_partial(UNIT, 0, PARTIAL, U2)
    assert not ready.has_partial(UNIT, 1, PARTIAL, U2)
    assert not ready.has_partial(UNIT, 0, replace(PARTIAL, tokens=9), U2)
    assert not ready.has_partial(UNIT, 0, replace(PARTIAL, documents=2), U2)
    assert not ready.has_partial(UNIT, 0, replace(PARTIAL, ids_bytes=4), U2)
    assert not ready.has_partial(UNIT, 0, PARTIAL, np.dtype("<u4"))


def test_an_incomplete_chunk_needs_no_file_for_what_there_is_none_of(ready: Store) -> None:
    write_chunk(ready.temporary, entry())
    (ready.temporary / "00007-0000.docs.npy").unlink()
    assert ready.has_partial(UNIT, 0, Partial(tokens=8), U2)
    assert not ready.has_partial(UNIT, 0, Partial(tokens=8, documents=1), U2)


def test_a_chunk_that_was_completed_after_its_checkpoint_is_taken_back(ready: Store) -> None:
    moved = write_partial(ready.chunks)
    moved[0].rename(ready.temporary / moved[0].name)  # the run died between two moves
    assert ready.has_partial(UNIT, 0, PARTIAL, U2)
    assert names(ready.chunks) == set()
    assert names(ready.temporary) == {p.name for p in moved}


def test_a_chunk_that_nobody_goes_on_with_stays_where_it_is(ready: Store) -> None:
    moved = write_partial(ready.chunks)
    assert ready.has_partial(UNIT, 0, EMPTY, U2)
    assert names(ready.chunks) == {p.name for p in moved}
    # Nor is one taken back over what is in its place.
    temporary = write_partial(ready.temporary)
    for path in temporary:
        grow(path, 1)
    assert ready.has_partial(UNIT, 0, PARTIAL, U2)
    assert names(ready.chunks) == {p.name for p in moved}


def test_chunks_that_were_not_committed_are_removed_from_a_number_on(ready: Store) -> None:
    for number in (0, 1, 2, 4):
        write_chunk(ready.chunks, entry(number))
    put(ready.chunks / "00007-0003.ids.jsonl")  # all that is left of that one
    put(ready.chunks / "00008-0001.npy")
    ready.remove_chunks(UNIT, 1)
    assert names(ready.chunks) == {"00007-0000.npy", "00007-0000.docs.npy", "00008-0001.npy"}
    ready.remove_chunks(UNIT, 1)
    assert len(names(ready.chunks)) == 3


def test_a_unit_is_undone_with_all_its_files_and_no_others(ready: Store) -> None:
    ready.save_checkpoint(UNIT, checkpoint())
    for number in (0, 1):
        write_chunk(ready.chunks, entry(number))
    others = ["units/00008.json", "chunks/00008-0000.npy", "tmp/00008-0000.npy", "tmp/00007.json"]
    for name in ("units/00007.json", "units/00007.rejects.jsonl", "tmp/00007-0002.npy", *others):
        put(ready.root / name)
    before = names(ready.root)
    ready.reset([UNIT])
    gone = before - names(ready.root)
    assert gone == {
        "units/00007.json",
        "units/00007.checkpoint.json",
        "units/00007.rejects.jsonl",
        "chunks/00007-0000.npy",
        "chunks/00007-0000.docs.npy",
        "chunks/00007-0001.npy",
        "chunks/00007-0001.docs.npy",
        "tmp/00007-0002.npy",
    }
    ready.reset([UNIT])


def test_the_receipt_is_the_first_thing_that_goes(ready: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that dies there leaves a receipt for something gone."""
    ready.commit(UNIT, receipt(chunks=(entry(),)))
    write_chunk(ready.chunks, entry())
    put(ready.rejects_path(UNIT))
    removed = []
    original = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        original(path, **options)
        removed.append(os.path.basename(path))

    monkeypatch.setattr(os, "unlink", unlink)
    ready.reset([UNIT])
    assert removed[0] == "00007.json"
    assert len(removed) == 4


# Rejects


def test_rejects_are_there_if_as_many_bytes_are_as_were_counted(ready: Store) -> None:
    assert ready.has_rejects(UNIT, 0)
    assert not ready.has_rejects(UNIT, 1)
    put(ready.rejects_path(UNIT), "abc")
    assert [ready.has_rejects(UNIT, size) for size in (0, 2, 3, 4)] == [True, True, True, False]


def test_the_checksum_of_rejects_is_that_of_their_file(ready: Store) -> None:
    assert ready.rejects_checksum(UNIT) is None
    put(ready.rejects_path(UNIT))
    assert ready.rejects_checksum(UNIT) is None
    put(ready.rejects_path(UNIT), "x")
    assert ready.rejects_checksum(UNIT) == xxhash.xxh3_128_hexdigest(b"x")


# What is finished, and where to go on


def test_a_unit_is_finished_if_its_receipt_and_all_it_stands_for_are_there(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": b'{"text": "abc"}\nbroken\n'}, max_rejects="100%")
    unit = job.plan.unit(0)
    assert job.finished(unit) is None
    done = run_unit(job, unit, ByteEncoder(), Told())
    assert job.finished(unit) == done
    for path in (job.store.chunks / "00000-0000.npy", job.store.rejects_path(unit)):
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert job.finished(unit) is None
        path.write_bytes(content)
    job.store.commit(unit, replace(done, missing={0: "gone"}))
    assert job.finished(unit) is None


def test_a_checkpoint_counts_if_all_it_stands_for_is_there(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": b'{"text": "abc"}\n'})
    unit = job.plan.unit(0)
    assert job.checkpoint(unit) is None
    chunk = ChunkEntry(name="00000-0000", rows=2, tokens=8, documents=1, xxh3="", docs_xxh3="")
    saved = checkpoint(chunks=(chunk,), partial=Partial(tokens=4))
    job.store.save_checkpoint(unit, saved)
    put(job.store.rejects_path(unit), "x" * 9)
    write_chunk(job.store.chunks, chunk)
    write_chunk(job.store.temporary, replace(chunk, name="00000-0001", rows=1))
    assert job.checkpoint(unit) == saved
    for path in (
        job.store.chunks / "00000-0000.npy",
        job.store.rejects_path(unit),
        job.store.temporary / "00000-0001.npy",
    ):
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert job.checkpoint(unit) is None
        path.write_bytes(content)
    job.store.save_checkpoint(unit, replace(saved, missing={0: "gone"}))
    assert job.checkpoint(unit) is None
