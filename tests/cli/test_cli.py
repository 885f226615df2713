"""The command line: what users type, what they read, which exit code they get."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import tokenmill
from tests.conftest import rejects, texts, tree
from tokenmill.cli import build_parser, main, option_names
from tokenmill.config import OPTION_NAMES, Config, EncoderChoice, RejectLimit, SpecialTokens, Tail
from tokenmill.encode.encoder import FastokensEncoder, HuggingFaceEncoder
from tokenmill.errors import Interrupted
from tokenmill.job import progress
from tokenmill.records import Ledger, TokenBatch


@pytest.fixture
def job(inputs: Path, tmp_path: Path, tiny_tokenizer: str) -> list[str]:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(50))))
    return ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer, "--seq-len", "16"]


def test_the_end_of_a_run_is_a_table(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "complete"
    table = {row[:24].rstrip(): row[24:] for row in rows}
    # "text 0" to "text 49" are 10 x 6 + 40 x 7 bytes, and with 50 times EOS fill 24 rows of 16 and the 25th up to 6.
    assert list(table.items())[:8] == [
        ("files", "1"),
        ("documents", "50"),
        ("empty", "0"),
        ("rejected", "0"),
        ("tokens", "340 (+ 50 separators)"),
        ("rows", "25"),
        ("padding", "10 (2.500 %)"),
        ("bytes per token", "1.00"),
    ]
    assert list(table)[8:] == ["output", "time", "rate", "peak memory"]
    assert table["output"].endswith(f" kB in {job[2]}")


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
    assert main(job) == 0
    guide = ["run", "--input-dir", str(inputs), "--output-dir", str(tmp_path / "guide"), *job[3:]]
    assert main([*guide, "--num-workers", "16", "--batch-size", "100", "--sequences-per-chunk", "50000"]) == 0
    assert tree(tmp_path / "guide") == tree(tmp_path / "out")


def test_options_may_stand_in_a_toml_file(job: list[str], inputs: Path, tmp_path: Path) -> None:
    assert main(job) == 0
    config = tmp_path / "job.toml"
    config.write_text(f'inputs = "{inputs}"\noutput = "{tmp_path / "toml"}"\ntokenizer = "{job[4]}"\nseq-len = 99\n')
    assert main(["run", "--config", str(config), "--seq-len", "16"]) == 0
    assert tree(tmp_path / "toml") == tree(tmp_path / "out")


def config_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Config:
    """The job that `tokenmill run` makes of these arguments. It is not run."""
    jobs: list[Config] = []

    def run(config: Config, **_: Any) -> NoReturn:
        jobs.append(config)
        raise Interrupted("it was made, which is enough")

    monkeypatch.setattr("tokenmill.job.execute.run", run)
    assert main(["run", *arguments]) == 130
    (job,) = jobs
    return job


OPTIONS: dict[str, tuple[str | None, str, Any]] = {
    "--text-field": ("body", "text_field", "body"),
    "--id-field": ("meta.id", "id_field", "meta.id"),
    "--max-document-bytes": ("3MiB", "max_document_bytes", 3 << 20),
    "--max-rejects": ("7%", "max_rejects", RejectLimit(share=0.07)),
    "--tokenizer": ("tok.json", "tokenizer", "tok.json"),
    "--encoder": ("huggingface", "encoder", EncoderChoice.HUGGINGFACE),
    "--special-tokens-in-text": ("reject", "special_tokens_in_text", SpecialTokens.REJECT),
    "--eos-token": ("</s>", "eos_token", "</s>"),
    "--bos-token": ("<s>", "bos_token", "<s>"),
    "--no-eos": (None, "no_eos", True),
    "--seq-len": ("77", "seq_len", 77),
    "--sequences-per-chunk": ("9", "sequences_per_chunk", 9),
    "--tail": ("drop", "tail", Tail.DROP),
    "--redo": ("7,12", "redo", (7, 12)),
    "--overwrite": (None, "overwrite", True),
    "--engine": ("ultra", "engine", "ultra"),
    "--num-workers": ("3", "num_workers", 3),
    "--batch-size": ("11", "batch_size", 11),
    "--prefetch-files": ("0", "prefetch_files", 0),
    "--max-memory": ("4GB", "max_memory", 4_000_000_000),
}
"""Of the job, beside its inputs and its output: what is written, which field of the Config it is, and its value."""
PLACES = {"--input-dir", "--output-dir", "--config"}
MESSAGES = {"--quiet", "--log-format", "--debug"}


def run_options() -> set[str]:
    """Every option that `tokenmill run` takes."""
    commands = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return set(option_names(commands.choices["run"])) - {"--help"}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_arrives_in_its_field_and_in_no_other(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written, field, value = OPTIONS[option]
    found = config_of(["in", "out", option, *filter(None, [written])], monkeypatch)
    assert found == Config(inputs=("in",), output=Path("out"), **{field: value})
    assert found != Config(inputs=("in",), output=Path("out"))


def test_every_option_is_looked_at_above_and_every_field_can_be_set() -> None:
    assert set(OPTIONS) | PLACES | MESSAGES == run_options()
    assert {field for _, field, _ in OPTIONS.values()} | {"inputs", "output"} == set(OPTION_NAMES)


@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "b", "out"],
        ["a", "b", "--output-dir", "out"],
        ["--input-dir", "a", "--input-dir", "b", "out"],
        ["--input-dir", "a", "--input-dir", "b", "--output-dir", "out"],
    ],
    ids=" ".join,
)
def test_inputs_and_output_may_stand_by_position_or_by_name(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config_of(arguments, monkeypatch) == Config(inputs=("a", "b"), output=Path("out"))


@pytest.mark.parametrize("kind", [FastokensEncoder, HuggingFaceEncoder])
def test_documents_are_encoded_by_the_library_and_in_the_batches_that_were_asked_for(
    job: list[str], monkeypatch: pytest.MonkeyPatch, kind: type[FastokensEncoder | HuggingFaceEncoder]
) -> None:
    sizes = []
    encode = kind.encode

    def encode_and_count(self: Any, texts: Sequence[str]) -> TokenBatch:
        sizes.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(kind, "encode", encode_and_count)
    assert main([*job, "--engine", "streaming", "--encoder", kind.name, "--batch-size", "7"]) == 0
    assert sizes[-8:] == [7, 7, 7, 7, 7, 7, 7, 1]  # what came before was the check of the tokenizer


@pytest.fixture
def read_ahead(
    inputs: Path, tmp_path: Path, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, list[tuple[int, int]]]]:
    """Run 0.jsonl.gz to 7.jsonl.gz, a unit each: which the kernel was asked to read ahead, from where, how much."""
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 1)
    asked: dict[str, list[tuple[int, int]]] = {}

    def advise(handle: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        asked.setdefault(Path(os.readlink(f"/proc/self/fd/{handle}")).name, []).append((offset, length))

    monkeypatch.setattr(os, "posix_fadvise", advise)

    def run(options: list[str], first: bytes = b"") -> dict[str, list[tuple[int, int]]]:
        for n in range(8):
            # The first is the largest, with which ultra begins.
            (inputs / f"{n}.jsonl.gz").write_bytes(gzip.compress((first if n == 0 else b"") + texts("x" * 100), 0))
        job = ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer, "--num-workers", "1"]
        assert main([*job, *options]) == (3 if first else 0)
        return asked

    return run


@pytest.mark.parametrize("engine", ["ultra", "extreme"])
@pytest.mark.parametrize("count", [0, 3])
def test_as_many_files_are_read_ahead_as_were_asked_for(read_ahead: Any, engine: str, count: int) -> None:
    options = ["--engine", engine, "--prefetch-files", str(count), "--max-rejects", "0"]
    assert sorted(read_ahead(options, first=b"broken\n" * 10)) == ["1.jsonl.gz", "2.jsonl.gz", "3.jsonl.gz"][:count]


def test_each_file_is_read_ahead_once_and_as_a_whole(read_ahead: Any, inputs: Path) -> None:
    size = len(gzip.compress(texts("x" * 100), 0))
    found = read_ahead(["--engine", "extreme", "--prefetch-files", "2"])
    assert found == {path.name: [(0, size)] for path in inputs.iterdir() if path.name != "0.jsonl.gz"}


def test_no_more_is_read_ahead_than_the_budget_has_left(read_ahead: Any) -> None:
    # One thread takes 390 MB; half of the other 400 bytes is for four files.
    found = read_ahead(["--engine", "extreme", "--max-memory", "390000400"])
    assert len(found) == 7
    assert {tuple(wishes) for wishes in found.values()} == {((0, 50),)}


def test_a_traceback_is_shown_with_debug_only(
    inputs: Path,
    tmp_path: Path,
    tiny_tokenizer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer]
    assert main(command) == main([*command, "--quiet"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main([*command, "--debug"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in make_plan\n" in said
    assert "tokenmill: error: no input found in" in said

    def fail(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("one by none")

    monkeypatch.setattr("tokenmill.job.execute.run", fail)
    assert main(command) == 1
    said = capsys.readouterr().err
    assert (
        "error: ZeroDivisionError: one by none. This is a defect: please report it with the output of --debug" in said
    )
    assert "Traceback" not in said
    assert main([*command, "--debug"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "in fail\n" in said


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
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is written, though there is a document in the folder `in`."""
    (inputs / "a.jsonl").write_bytes(texts("a"))
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    assert code == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == [inputs]


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


class Patience:
    """Takes the place of an event that is waited for: 30 seconds pass in no time, then it is set."""

    seconds = 0.0

    def wait(self, seconds: float) -> bool:
        if Patience.seconds >= 30:
            return True
        Patience.seconds += seconds
        return False

    def set(self) -> None:
        pass


def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Patience, "seconds", 0.0)
    monkeypatch.setattr(progress, "threading", SimpleNamespace(Event=Patience, Thread=threading.Thread))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: Patience.seconds))
    meter = progress.Meter(total_bytes=1000)
    meter.start()
    meter.add(Ledger(documents=3, tokens=600, text_bytes=60_000_000, rejected=2), 250)
    with caplog.at_level(logging.INFO, "tokenmill"), progress.log_lines(meter):
        pass
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4  # after 10, 20 and 30 seconds, and at the end
    assert lines[0].startswith("25.0 % of 1.0 kB, 3 documents, 600 tokens, 6.0 MB/s, 60 tokens/s, memory ")
    assert [line.split(", ")[-2:] for line in lines] == [
        ["2 rejected", f"{left} left"] for left in ("0:30", "1:00", "1:30", "1:30")
    ]


def test_the_line_tells_where_a_long_run_stands_and_a_short_or_quiet_one_has_none(
    job: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(job) == 0
    assert " % of " not in capsys.readouterr().err
    slow = SimpleNamespace(monotonic=itertools.count(0, 10).__next__, time=time.time)  # ten seconds at every look
    monkeypatch.setattr(progress, "time", slow)
    assert main([*job, "--overwrite"]) == 0
    *_, line = capsys.readouterr().err.splitlines()
    assert re.match(r"\d\d:\d\d:\d\d tokenmill: 100\.0 % of 990 B, 50 documents, 340 tokens, .* 0:00 left$", line)
    assert main([*job, "--overwrite", "--log-format", "json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(e["documents"], e["tokens"], e["input_bytes"]) for e in entries if e["event"] == "progress"] == [
        (50, 340, entries[-1]["input_bytes_total"])
    ]
    assert main([*job, "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


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
    explained = dict(re.findall(r"^  (--[a-z-]+)(?: [A-Z{][^ ]*)?\s+([a-z].+)$", shown, re.MULTILINE))
    assert set(explained) == run_options()


def test_python_dash_m_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "tokenmill", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tokenmill {tokenmill.__version__}\n"


def on_a_terminal(arguments: list[str]) -> tuple[int, bytes]:
    """The exit code, and what a pseudo terminal was sent."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenmill", *arguments],
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
    return process.wait(), shown


def test_a_terminal_gets_a_live_display_and_an_error_after_it_is_still_readable(job: list[str], inputs: Path) -> None:
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    code, shown = on_a_terminal(job)
    assert code == 3
    assert b"50 documents" in shown
    assert b"time left" in shown
    assert b"tokens/s" in shown
    before, error, _ = shown.partition(
        b"tokenmill: error: missing: gone.jsonl (gone.jsonl cannot be read: No such file"
    )
    assert error
    assert before.endswith(b"\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2K")  # the cursor is back, both lines are cleared


def test_quiet_is_quiet_on_a_terminal_too(job: list[str]) -> None:
    assert on_a_terminal([*job, "--quiet"]) == (0, b"")
