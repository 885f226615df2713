"""`tokenmill verify`: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run, texts
from tests.support.damage import edit_text, flip
from tokenmill.cli import main
from tokenmill.errors import RejectLimitError


@pytest.fixture
def output(inputs: Path, tmp_path: Path, run: Run) -> Path:
    (inputs / "a.jsonl").write_bytes(texts(*(f"document {n}" for n in range(20))))
    run(sequences_per_chunk=10)
    return tmp_path / "out"


def test_the_command_tells_its_verdict(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(output), "--against-source", "all"]) == 0
    said = capsys.readouterr().out
    assert "verified: 1 unit" in said
    assert "20 documents (20 compared with their source), no problem found" in said
    flip(output / "chunks/00000-0001.npy", -1)
    assert main(["verify", str(output)]) == 1
    said = capsys.readouterr().out
    assert "chunk 00000-0001: the checksum of the rows" in said
    assert "FAILED: 1 problem found in 1 unit, " in said
    assert f"tokenmill run INPUT... {output} --redo 0" in said


def test_sources_that_are_not_there_are_said_once_and_are_exit_code_2(
    output: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", str(output), "--against-source", "all", "--source", str(tmp_path / "nowhere")]
    assert main(command) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        f"not compared: 20 documents, because 1 source file is not in {tmp_path / 'nowhere'}: a.jsonl. Name the folder "
        "of the inputs with --source"
    )
    assert second.endswith("20 documents, no problem found, but nothing compared with its source")
    assert main([*command, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["good"] is False
    flip(output / "chunks/00000-0001.npy", -1)
    assert main(command) == 1
    assert "FAILED: 1 problem found" in capsys.readouterr().out
    assert main(["verify", str(output), "--source", str(inputs)]) == 1
    assert "warning: --source is of no use without --against-source" in capsys.readouterr().err


def test_some_sources_that_are_not_there_are_said_and_many_are_counted(
    inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        (inputs / f"{number:02}.jsonl").write_bytes(texts("text"))
    output = run().output
    for number in range(16):
        (inputs / f"{number:02}.jsonl").unlink()
    assert main(["verify", str(output), "--against-source", "all"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert f"16 documents, because 16 source files are not in {inputs}: 00.jsonl, " in first
    assert "04.jsonl and 11 more. " in first
    assert "20 documents (4 compared with their source), no problem found" in second


def test_tokens_are_told_with_their_separators_and_sources_that_are_absent_but_not_asked_for_are_not(
    inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        (inputs / f"{name}.jsonl").write_bytes(texts("" if name == "a" else "text"))
    output = run().output
    (inputs / "a.jsonl").unlink()
    assert main(["verify", str(output), "--against-source", "all"]) == 0
    (said,) = capsys.readouterr().out.splitlines()
    assert said.endswith(
        "1 row, 5 tokens (1 separator included), 1 document (1 compared with their source), no problem found"
    )


def test_dropped_separators_are_not_guessed(inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "a.jsonl").write_bytes(texts("text " * 20))
    assert main(["verify", str(run(tail="drop", seq_len=8).output)]) == 0
    assert " 96 tokens (separators included), " in capsys.readouterr().out


def test_a_job_that_stopped_by_its_rejects_needs_a_higher_limit(
    inputs: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("text") + b"broken\n")
    with pytest.raises(RejectLimitError):
        run(max_rejects=0)
    assert main(["verify", str(tmp_path / "out")]) == 1
    assert "if it stopped because of --max-rejects, with a higher --max-rejects" in capsys.readouterr().out


def test_the_verdict_can_be_had_as_json(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["documents"]) == (True, 20)
    flip(output / "chunks/00000-0001.npy", -1)
    assert main(["verify", str(output), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["good"] is False
    assert found["faults"][0]["unit"] == 0


def test_what_is_no_output_and_no_number_of_documents_is_wrong_usage(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path / "nowhere")]) == 2
    assert "there is no directory" in capsys.readouterr().err
    assert main(["verify", str(output), "--against-source", "some"]) == 2
    assert "'some' is neither a number of documents nor all" in capsys.readouterr().err


@pytest.mark.parametrize("version", ['"\\u001b[2J"', "7"])
def test_the_job_of_another_version_is_an_error_that_cannot_play_tricks(
    output: Path, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    edit_text(output / "job.json", '"format_version": 1', f'"format_version": {version}')
    assert main(["verify", str(output)]) == 1
    said = capsys.readouterr()
    assert "job.json" in said.err
    assert "\x1b" not in said.err + said.out
