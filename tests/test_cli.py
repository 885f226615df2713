"""The command line: what users type, what they read, which exit code they get."""

from __future__ import annotations

import gzip
import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from tests.conftest import rejects, texts, tree
from tokenmill.cli import build_parser, main


@pytest.fixture
def job(inputs: Path, tmp_path: Path, tiny_tokenizer: str) -> list[str]:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(50))))
    return ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer, "--seq-len", "16"]


def test_the_end_of_a_run_is_a_table(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job) == 0
    shown = capsys.readouterr().out
    names = ["files", "documents", "empty", "rejected", "tokens", "rows", "padding", "bytes per token", "output"]
    for name in [*names, "time", "rate", "peak memory"]:
        assert f"\n{name} " in shown
    assert "\ndocuments               50\n" in shown


def test_damaged_input_is_told_at_the_end_however_few_rejects_it_makes(
    job: list[str], inputs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress(texts(*map(str, range(50_000))))
    (inputs / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert main(job) == 0
    said = capfd.readouterr()
    assert "some input is damaged (truncated_file 1): what could not be read of it is not in the output" in said.err


def test_a_finished_job_says_so(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(job)
    capsys.readouterr()
    assert main(job) == 0
    assert capsys.readouterr().out.startswith("already complete, nothing to do\n")


def test_the_spelling_of_the_guide_gives_the_same(job: list[str], inputs: Path, tmp_path: Path) -> None:
    main(job)
    guide = ["run", "--input-dir", str(inputs), "--output-dir", str(tmp_path / "guide"), *job[3:]]
    assert main([*guide, "--num-workers", "16", "--batch-size", "100", "--sequences-per-chunk", "50000"]) == 0
    assert tree(tmp_path / "guide") == tree(tmp_path / "out")


def test_options_may_stand_in_a_toml_file(job: list[str], inputs: Path, tmp_path: Path) -> None:
    main(job)
    config = tmp_path / "job.toml"
    config.write_text(f'inputs = "{inputs}"\noutput = "{tmp_path / "toml"}"\ntokenizer = "{job[4]}"\nseq-len = 99\n')
    assert main(["run", "--config", str(config), "--seq-len", "16"]) == 0
    assert tree(tmp_path / "toml") == tree(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["run"], "no inputs given"),
        (["run", "only-one"], "no output given"),
        (["run", "in", "out", "--seq-lenght", "3"], "did you mean '--seq-len'?"),
        (["run", "in", "out", "--seq-len", "0"], "seq_len: must be a whole number of at least 1"),
        (["run", "in", "out", "--seq-len", "x"], "invalid int value"),
        (["run", "in", "out", "--over"], "did you mean '--overwrite'?"),
        (["run", "in", "out", "--tail", "cut"], "invalid choice"),
        (["run", "in", "out", "--input-dir", "in"], "use one of them"),
        (["run", "absent", "out"], "there is no file or directory 'absent'"),
        (["run", ".", "out", "--tokenizer", "absent"], "neither a bundled name"),
        (["run", "in", "out", "--config", "absent.toml"], "cannot read the configuration file"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_the_reason(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    assert code == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_too_many_rejects_are_exit_code_3(
    job: list[str], inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "b.jsonl").write_bytes(b"broken\n" * 5)
    assert main(job) == 3
    shown = capsys.readouterr().err
    assert "5 of 55 records were rejected" in shown
    assert "--max-rejects 1%" in shown
    assert len(rejects(tmp_path / "out")) == 5
    assert main([*job, "--max-rejects", "10%"]) == 0


def test_a_missing_file_is_exit_code_3_and_says_how_to_retry(
    job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "b\x1b[2J.jsonl").symlink_to(inputs / "nowhere")
    assert main(job) == 3
    shown = capsys.readouterr().err
    assert r"missing: b\x1b[2J.jsonl" in shown
    assert "\x1b" not in shown
    assert "run the same command again" in shown


def test_a_different_job_is_exit_code_1(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(job)
    assert main([*job[:-1], "32"]) == 1
    assert "--seq-len was 16 and is 32" in capsys.readouterr().err
    assert main([*job[:-1], "32", "--overwrite"]) == 0


def test_quiet_prints_errors_only(job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "NOTES.md").write_text("left out")
    assert main([*job, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*job[:-1], "32", "--quiet"]) == 1
    assert "different job" in capsys.readouterr().err


def test_messages_can_be_json(job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "NOTES.md").write_text("left out")
    assert main([*job, "--log-format", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    entries = [json.loads(line) for line in shown.err.splitlines()]
    assert [e["event"] for e in entries] == ["message", "message", "message", "result"]
    assert "NOTES.md" in entries[0]["message"]
    assert entries[-1]["documents"] == 50


def test_a_reader_that_goes_away_is_no_error(job: list[str]) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *job], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    assert b"defect" not in command.stderr.read()
    command.stderr.close()
    assert command.wait() == 0


def test_logs_keep_a_time_line(job: list[str], tmp_path: Path) -> None:
    main(job)
    lines = (tmp_path / "out" / "logs" / "timeline.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    assert first["documents"] == 0
    assert last["documents"] == 50
    assert last["input_bytes"] == last["input_bytes_total"]
    assert last["memory_bytes"] > 0


def test_logging_is_left_as_it_was(job: list[str]) -> None:
    logger = logging.getLogger("tokenmill")
    before = (logger.level, logger.propagate, list(logger.handlers))
    main(job)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_help_carries_an_example_and_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit):
            build_parser().parse_args(arguments)
        shown = capsys.readouterr().out
        assert "tokenmill run FinPile/0fp-100dolma tokenized/" in shown
        assert "exit codes:" in shown


def test_python_dash_m_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "tokenmill", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tokenmill {tokenmill.__version__}\n"


def test_a_terminal_gets_a_live_display(job: list[str]) -> None:
    """Through a pseudo terminal: the display is drawn, and an error after it is still readable."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *job],
        stdin=child,
        stdout=child,
        stderr=child,
        env=os.environ | {"COLUMNS": "120"},
    )
    os.close(child)
    shown = b""
    try:
        while block := os.read(parent, 65536):
            shown += block
    except OSError:
        pass  # how Linux says that the other side is closed
    os.close(parent)
    assert process.wait() == 0
    assert b"documents" in shown
    assert b"time left" in shown
    assert b"tokens/s" in shown
