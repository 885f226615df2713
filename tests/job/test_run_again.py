"""The same directory again: finished, interrupted, damaged, or another job."""

from __future__ import annotations

import gzip
import os
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tests.conftest import Run, SmallUnits, documents, jsonl, texts, tree
from tests.support.damage import edit
from tests.support.stops import LookAfterEachBlock, stop_at_checkpoint
from tests.support.tokenizers import word_level_json, write
from tokenmill.config import ENGINES
from tokenmill.errors import (
    DifferentJobError,
    InputError,
    Interrupted,
    OutputBusyError,
    OutputError,
    TokenizerError,
)
from tokenmill.output.open import output_storage
from tokenmill.output.store import Store


def test_a_finished_job_says_so_and_changes_nothing(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    assert not run().already_complete
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.name != "logs"}
    assert run().already_complete
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.name != "logs"} == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seq_len": 16}, "--seq-len was 8 and is now 16"),
        ({"sequences_per_chunk": 7}, "--sequences-per-chunk was 50000 and is now 7"),
        ({"tail": "drop"}, "--tail was 'pad' and is now 'drop'"),
        ({"no_eos": True}, "--eos-token was '<|endoftext|>' and is now off"),
        ({"bos_token": "<|bos|>"}, "--bos-token was not given and is now '<|bos|>'"),
        ({"text_field": "body"}, "--text-field was 'text' and is now 'body'"),
        ({"id_field": "id"}, "--id-field was not given and is now 'id'"),
        ({"special_tokens_in_text": "match"}, "--special-tokens-in-text was 'plain' and is now 'match'"),
        ({"max_document_bytes": "1kB"}, "--max-document-bytes was 268435456 and is now 1000"),
        ({"tokenizer": "gpt-neox-20b"}, "the tokenizer was tiny"),
    ],
)
def test_a_different_job_in_the_directory_is_refused(
    inputs: Path, tmp_path: Path, run: Run, options: dict[str, Any], said: str
) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl({"text": "a", "body": "b", "id": 1}))
    run()
    before = tree(tmp_path / "out")
    with pytest.raises(DifferentJobError, match=re.escape(said)):
        run(**options)
    assert tree(tmp_path / "out") == before


def test_what_does_not_change_a_byte_is_no_different_job(inputs: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(engine="streaming")
    other: dict[str, Any] = {"encoder": "huggingface", "num_workers": 2, "batch_size": 7, "prefetch_files": 0}
    assert run(engine="extreme", max_rejects=5, max_memory="2GB", **other).already_complete


def test_jobs_with_other_inputs_or_options_have_other_run_ids(inputs: Path, tmp_path: Path, run: Run) -> None:
    def run_id(**options: Any) -> str:
        run(overwrite=True, **options)
        found: str = tokenmill.open(tmp_path / "out").manifest["run_id"]
        return found

    (inputs / "a.jsonl").write_bytes(texts("a"))
    first = run_id()
    assert run_id() == first
    assert run_id(seq_len=16) != first
    (inputs / "a.jsonl").write_bytes(texts("b"))
    assert run_id() != first
    (inputs / "a.jsonl").rename(inputs / "b.jsonl")
    (inputs / "b.jsonl").write_bytes(texts("a"))
    assert run_id() != first


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: (d / "a.jsonl").write_bytes(texts("other")), "input changed: a.jsonl"),
        (lambda d: (d / "a.jsonl").write_bytes(texts("z")), "input changed: a.jsonl"),  # of the same size
        (lambda d: (d / "c.jsonl").write_bytes(texts("c")), "input added: c.jsonl"),
        (lambda d: (d / "b.jsonl").unlink(), "input gone: b.jsonl"),
    ],
)
def test_changed_inputs_are_refused_by_name(inputs: Path, run: Run, change: Any, said: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("b"))
    run()
    change(inputs)
    with pytest.raises(DifferentJobError, match=said):
        run()


def test_overwrite_starts_over(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a" * 100))
    run(sequences_per_chunk=1)
    (inputs / "a.jsonl").write_bytes(texts("b"))
    run(seq_len=4, overwrite=True)
    run(seq_len=4, output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.parametrize("stuck", ["manifest.json", "rejects.jsonl", "tokenizer.json", "plan.jsonl"])
def test_an_overwrite_that_fails_on_its_way_leaves_a_directory_that_is_known_to_be_ours(
    inputs: Path, tmp_path: Path, run: Run, stuck: str
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a") + b"broken\n")
    run()
    (tmp_path / "out" / stuck).unlink()
    (tmp_path / "out" / stuck).mkdir()  # which is not removed as a file is
    with pytest.raises(OutputError, match="cannot write to"):
        run(overwrite=True)
    assert (tmp_path / "out" / "job.json").exists()
    (tmp_path / "out" / stuck).rmdir()
    run(overwrite=True)
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_directory_that_is_not_ours_is_never_touched(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    precious = tmp_path / "out" / "chunks" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="not tokenmill's"):
            run(overwrite=overwrite)
    assert precious.read_text() == "years of work"


def test_an_output_that_is_a_file_is_refused(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        run()


def test_a_second_run_at_the_same_time_is_refused(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    with Store(output_storage(tmp_path / "out")).locked(), pytest.raises(OutputBusyError, match="another run"):
        run()
    run()


def test_a_stop_leaves_a_state_that_continues(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(100))))
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted, match="same command"):
        run(stop=stop)
    run()
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_lost_chunk_is_made_again(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(100))))
    run(sequences_per_chunk=10)
    before = tree(tmp_path / "out")
    (tmp_path / "out" / "chunks" / "00000-0001.npy").unlink()
    assert not run(sequences_per_chunk=10).already_complete
    assert tree(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("chunks/00000-0000.npy", -1),
        ("chunks/00000-0000.npy", 1),
        ("chunks/00000-0000.docs.npy", -1),
        ("chunks/00000-0000.docs.npy", 1),
        ("units/00000.rejects.jsonl", -1),
    ],
)
def test_a_file_whose_size_has_changed_is_made_again(
    inputs: Path, tmp_path: Path, run: Run, name: str, more: int
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a") + b"broken\n")
    run()
    before = tree(tmp_path / "out")
    path = tmp_path / "out" / name
    os.truncate(path, path.stat().st_size + more)
    assert not run().already_complete
    assert tree(tmp_path / "out") == before


RunAndLook = Callable[..., list[Any]]


@pytest.fixture
def run_and_look(run: Run) -> RunAndLook:
    """Run a job as `run` does; what was seen after each block of it."""

    def run_job(look: Callable[[], Any], stop_after: int | None = None, **options: Any) -> list[Any]:
        stop = LookAfterEachBlock(look, stop_after)
        with pytest.raises(Interrupted) if stop_after else nullcontext():
            run(stop=stop, **options)
        return stop.seen

    return run_job


@pytest.mark.parametrize("reason", ["asked for", "a chunk is lost"])
def test_while_a_unit_is_done_again_nothing_says_that_it_or_the_job_is_complete(
    inputs: Path, tmp_path: Path, run: Run, run_and_look: RunAndLook, small_units: SmallUnits, reason: str
) -> None:
    small_units(1)
    for name in ("a", "b"):
        (inputs / f"{name}.jsonl.gz").write_bytes(gzip.compress(texts(name)))
    run(engine="streaming")
    before = tree(tmp_path / "out")
    assert {"units/00000.json", "units/00001.json", "manifest.json"} <= before.keys()
    if reason == "a chunk is lost":
        (tmp_path / "out" / "chunks" / "00000-0000.npy").unlink()
    redo = (0,) if reason == "asked for" else ()
    seen = run_and_look(lambda: tree(tmp_path / "out"), engine="streaming", redo=redo)
    assert {n for n in seen[0] if n.startswith(("units/", "manifest")) and n.endswith(".json")} == {"units/00001.json"}
    assert tree(tmp_path / "out") == before


def test_what_a_dead_run_left_half_written_is_gone_before_units_run_but_what_a_checkpoint_knows_of_stays(
    inputs: Path, tmp_path: Path, run: Run, run_and_look: RunAndLook, small_blocks: Callable[[int], None]
) -> None:
    small_blocks(500)
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(200))))
    temporary = tmp_path / "out" / "tmp"

    def look() -> dict[str, int]:
        return {p.name: p.stat().st_size for p in temporary.iterdir()}

    *_, left = run_and_look(look, stop_after=5, engine="enhanced")
    assert left.keys() == {"00000-0000.npy", "00000-0000.docs.npy"}
    for name in ("manifest.json", "00001-0000.npy", "000001-0000.npy", "00000.json"):
        (temporary / name).write_text("half of it")
    first, *_ = run_and_look(look, engine="enhanced")
    assert first == left
    run(engine="streaming", output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_damaged_receipt_is_named(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    (tmp_path / "out" / "units" / "00000.json").write_text("{")
    with pytest.raises(OutputError, match=r"00000\.json is damaged"):
        run()


def test_an_input_that_is_the_output_is_refused(inputs: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    with pytest.raises(InputError, match="both an input and the output"):
        run(output=inputs, overwrite=True)
    assert (inputs / "a.jsonl").exists()


def test_a_renamed_tokenizer_file_is_the_same_job(inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    (tmp_path / "renamed.json").write_bytes(Path(tiny_tokenizer).read_bytes())
    assert run(tokenizer=str(tmp_path / "renamed.json")).already_complete


@pytest.mark.parametrize("lost", ["units/00000.rejects.jsonl", "chunks/00000-0000.ids.jsonl"])
def test_a_lost_file_of_a_unit_is_made_again(inputs: Path, tmp_path: Path, run: Run, lost: str) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl({"text": "a", "id": 1}) + b"broken\n")
    run(id_field="id")
    before = tree(tmp_path / "out")
    (tmp_path / "out" / lost).unlink()
    assert not run(id_field="id").already_complete
    assert tree(tmp_path / "out") == before


def test_a_unit_that_went_on_without_a_file_and_was_interrupted_does_not_forget_it(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    (inputs / "a.jsonl").symlink_to(tmp_path / "late.jsonl")
    (inputs / "b.jsonl").write_bytes(texts(*("x" * 1000 for _ in range(3000))))
    with pytest.raises(Interrupted):
        run(stop=stop_at_checkpoint(tmp_path / "out"), sequences_per_chunk=10_000)
    assert list(run(sequences_per_chunk=10_000).missing) == ["a.jsonl"]
    (tmp_path / "late.jsonl").write_bytes(texts("late"))
    assert run(sequences_per_chunk=10_000).complete
    assert documents(tmp_path / "out")[0] == b"late"


def test_a_tokenizer_that_is_refused_leaves_the_directory_free_for_the_advice(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    model = word_level_json()
    model["model"]["unk_token"] = "</s>"
    write(tmp_path / "words.json", model)
    (inputs / "a.jsonl").write_bytes(texts("a a"))
    with pytest.raises(TokenizerError, match="--special-tokens-in-text match"):
        run(tokenizer=str(tmp_path / "words.json"))
    assert run(tokenizer=str(tmp_path / "words.json"), special_tokens_in_text="match").complete


@pytest.mark.parametrize("engine", ENGINES)
def test_a_checkpoint_that_was_changed_is_dropped_with_a_warning_and_the_unit_starts_over(
    inputs: Path, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, engine: str
) -> None:
    """It said where to read on: some hundred documents further, and they were lost without a word."""
    (inputs / "a.jsonl").write_bytes(texts(*(f"{n} " + "x" * 1000 for n in range(3000))))
    options: dict[str, Any] = {"sequences_per_chunk": 10_000, "engine": engine}
    run(output=tmp_path / "fresh", **options)
    with pytest.raises(Interrupted):
        run(stop=stop_at_checkpoint(tmp_path / "out"), **options | {"engine": "streaming"})
    path = tmp_path / "out" / "units" / "00000.checkpoint.json"
    edit(path, lambda checkpoint: checkpoint.update(offset=checkpoint["offset"] + 1_000_000))
    run(**options)
    (warning,) = (r.getMessage() for r in caplog.records if "checkpoint" in r.getMessage())
    assert warning == f"{path} is damaged (its checksum is wrong): unit 00000 starts over"
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
