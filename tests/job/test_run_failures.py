"""What a job leaves out, what stops it, and what it goes on without."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import tokenmill
from tests.conftest import MakeConfig, Run, documents, rejects, texts, tree
from tests.support.jobs import prepare
from tokenmill.errors import (
    DifferentJobError,
    InputError,
    OutputError,
    RejectLimitError,
    TokenizerError,
)


def test_what_was_left_out_is_written_down(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "guide.md").write_text("# read me")
    result = run()
    assert result.left_out == 1
    assert tokenmill.open(tmp_path / "out").manifest["left_out"] == [
        {"name": "guide.md", "why": "not JSON Lines, Parquet, Arrow or .txt"}
    ]
    (inputs / "NOTES.md").write_text("more")
    assert run().already_complete


def test_the_output_of_another_job_below_the_input_is_not_read(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(output=inputs / "older")
    run()
    assert documents(tmp_path / "out") == [b"a"]
    (left,) = tokenmill.open(tmp_path / "out").manifest["left_out"]
    assert left["name"] == "older/job.json"
    assert "nothing in that directory is read" in left["why"]


def test_more_rejects_than_allowed_stop_the_job_which_can_go_on(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*"abcdefgh") + b"broken\n" * 2)
    with pytest.raises(RejectLimitError, match=r"2 of 10 records were rejected \(20 %: broken_json 2\)"):
        run(max_rejects="10%")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert len(rejects(tmp_path / "out")) == 2
    assert run(max_rejects="20%").complete
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_count_of_rejects_stops_the_job_at_once(inputs: Path, tmp_path: Path, run: Run) -> None:
    good, bad = texts("x" * 400_000), b"broken\n"
    (inputs / "a.jsonl").write_bytes(bad + good * 10 + bad)
    with pytest.raises(RejectLimitError):
        run(max_rejects=0)
    assert [r["detail"] for r in rejects(tmp_path / "out")] == ["Expecting value: line 1 column 1 (char 0)"]


def test_an_unreadable_file_does_not_stop_the_others(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").symlink_to(tmp_path / "late.jsonl")
    (inputs / "c.jsonl").write_bytes(texts("c"))
    result = run()
    assert not result.complete
    assert result.missing == {"b.jsonl": "b.jsonl cannot be read: No such file or directory"}
    assert documents(tmp_path / "out") == [b"a", b"c"]
    # Once it is fixed, the same job completes, and is what it would have been.
    (tmp_path / "late.jsonl").write_bytes(texts("b"))
    assert run().complete
    assert documents(tmp_path / "out") == [b"a", b"b", b"c"]
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_file_that_vanishes_after_the_plan_is_missing(inputs: Path, tmp_path: Path, config: MakeConfig) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("b"))
    job = prepare(config())
    (inputs / "b.jsonl").unlink()
    result = job.run()
    assert list(result.missing) == ["b.jsonl"]
    assert documents(tmp_path / "out") == [b"a"]


def test_a_file_that_changes_after_the_plan_is_never_mixed_in(
    inputs: Path, tmp_path: Path, run: Run, config: MakeConfig
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("b"))
    job = prepare(config())
    (inputs / "b.jsonl").write_bytes(texts("changed"))
    result = job.run()
    assert result.missing == {"b.jsonl": "b.jsonl changed since the job was planned: restore it, or use --overwrite"}
    assert documents(tmp_path / "out") == [b"a"]
    with pytest.raises(DifferentJobError, match=r"input changed: b\.jsonl"):
        run()


def test_strange_file_names_are_data(inputs: Path, tmp_path: Path, run: Run) -> None:
    names = ["new\nline.jsonl", "\x1b[31mred.jsonl", os.fsdecode(b"latin \xe9.jsonl"), "日本 😀.jsonl", "-o.jsonl"]
    for name in names:
        (inputs / name).write_bytes(texts("good") + b"broken\n")
    run()
    assert {r["file"] for r in rejects(tmp_path / "out")} == set(names)
    assert {d.file for d in tokenmill.open(tmp_path / "out").documents()} == set(names)


def test_wrong_inputs_are_refused_before_anything_is_written(inputs: Path, tmp_path: Path, run: Run) -> None:
    with pytest.raises(InputError):
        run()
    (inputs / "a.jsonl").write_bytes(texts("a"))
    with pytest.raises(TokenizerError):
        run(tokenizer="absent.json")
    with pytest.raises(tokenmill.ConfigError, match="no engine 'stream'; did you mean 'streaming'"):
        run(engine="stream")
    assert not (tmp_path / "out").exists()


def test_a_directory_with_a_job_file_of_somebody_else_is_not_touched(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    output = tmp_path / "out"
    for name in ("job.json", "manifest.json", "tmp/keep.txt", "chunks/00000-0000.npy", "units/mine.txt"):
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text('{"my": "job"}')
    before = tree(output)
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="not tokenmill's"):
            run(overwrite=overwrite)
    assert tree(output) == before


def test_the_output_of_a_job_that_died_early_is_no_input(inputs: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(output=inputs / "older")
    shutil.rmtree(inputs / "older" / "units")
    (inputs / "older" / "manifest.json").unlink()
    assert run().files == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.json", "{"),
        ("job.json", "[]"),
        ("plan.jsonl", ""),
        ("plan.jsonl", "{}\n"),
        ("plan.jsonl", '{"unit": 0, "size": -1, "parts": [], "files": []}\n'),
        ("plan.jsonl", '{"unit": 0, "size": 1, "parts": [[0, 0, null]], "files": []}\n'),
        ("plan.jsonl", None),
        ("job.json", None),
    ],
)
def test_a_damaged_job_or_plan_is_named_and_can_be_started_over(
    inputs: Path, tmp_path: Path, run: Run, name: str, content: str | None
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    before = tree(tmp_path / "out")
    path = tmp_path / "out" / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(OutputError, match=rf"{name} is (damaged|missing).*--overwrite"):
        run()
    run(overwrite=True)
    assert tree(tmp_path / "out") == before
