"""The same directory again: finished, interrupted, damaged, or another job."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, cast

import pytest

import tokenmill
from tests.conftest import Run, documents, texts, tiny_tokenizer_json, tree
from tokenmill.errors import (
    DifferentJobError,
    InputError,
    Interrupted,
    OutputBusyError,
    OutputError,
    TokenizerError,
)
from tokenmill.store import Store


def test_a_finished_job_says_so_and_changes_nothing(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    assert not run().already_complete
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.name != "logs"}
    assert run().already_complete
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.name != "logs"} == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seq_len": 16}, "--seq-len was 8 and is 16"),
        ({"tail": "drop"}, "--tail was 'pad' and is 'drop'"),
        ({"no_eos": True}, "--eos-token was"),
        ({"text_field": "body"}, "--text-field"),
        ({"tokenizer": "gpt-neox-20b"}, "the tokenizer was tiny"),
    ],
)
def test_a_different_job_in_the_directory_is_refused(
    inputs: Path, tmp_path: Path, run: Run, options: dict[str, Any], said: str
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    before = tree(tmp_path / "out")
    with pytest.raises(DifferentJobError, match=said):
        run(**options)
    assert tree(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: (d / "a.jsonl").write_bytes(texts("other")), "input changed: a.jsonl"),
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


def test_overwrite_starts_anew(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a" * 100))
    run(sequences_per_chunk=1)
    (inputs / "a.jsonl").write_bytes(texts("b"))
    run(seq_len=4, overwrite=True)
    run(seq_len=4, output=tmp_path / "fresh")
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
    with Store(tmp_path / "out").locked(), pytest.raises(OutputBusyError, match="another run"):
        run()
    run()


def test_a_stop_leaves_a_state_that_continues(inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(100))))
    stop = threading.Event()
    stop.set()
    options: dict[str, Any] = {"inputs": (str(inputs),), "tokenizer": tiny_tokenizer, "seq_len": 8}
    with pytest.raises(Interrupted, match="same command"):
        tokenmill.run(tokenmill.Config(output=tmp_path / "out", **options), stop=stop)
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
    (inputs / "a.jsonl").write_bytes(texts("a") + b"broken\n")
    run(id_field="id")
    before = tree(tmp_path / "out")
    (tmp_path / "out" / lost).unlink()
    assert not run(id_field="id").already_complete
    assert tree(tmp_path / "out") == before


def test_a_unit_that_went_on_without_a_file_and_was_interrupted_does_not_forget_it(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str
) -> None:
    (inputs / "a.jsonl").symlink_to(tmp_path / "late.jsonl")
    (inputs / "b.jsonl").write_bytes(texts(*("x" * 1000 for _ in range(3000))))
    stop = threading.Event()

    class StopAfterACheckpoint:
        def is_set(self) -> bool:
            return stop.is_set() or any((tmp_path / "out" / "units").glob("*.checkpoint.json"))

    options: dict[str, Any] = {"tokenizer": tiny_tokenizer, "seq_len": 8, "sequences_per_chunk": 10_000}
    config = tokenmill.Config(inputs=(str(inputs),), output=tmp_path / "out", **options)
    with pytest.raises(Interrupted):
        tokenmill.run(config, stop=cast(threading.Event, StopAfterACheckpoint()))
    assert list(run(**options).missing) == ["a.jsonl"]
    (tmp_path / "late.jsonl").write_bytes(texts("late"))
    assert run(**options).complete
    assert documents(tmp_path / "out")[0] == b"late"


def test_a_tokenizer_that_is_refused_leaves_the_directory_free_for_the_advice(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    model = tiny_tokenizer_json()
    model["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    model["model"] = {"type": "WordLevel", "vocab": {"<|endoftext|>": 256, "a": 0, "?": 1}, "unk_token": "?"}
    (tmp_path / "words.json").write_text(json.dumps(model))
    (inputs / "a.jsonl").write_bytes(texts("a a"))
    with pytest.raises(TokenizerError, match="--special-tokens-in-text reject"):
        run(tokenizer=str(tmp_path / "words.json"))
    assert run(tokenizer=str(tmp_path / "words.json"), special_tokens_in_text="reject").complete
