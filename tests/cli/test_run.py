"""`tokenmill run`: which job the arguments make, what it does, and how it ends."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.conftest import SmallUnits, rejects, texts, tree
from tokenmill.cli import build_parser, main, option_names
from tokenmill.config import Config, EncoderChoice, InputAccess, RejectLimit, SpecialTokens, Tail, options_of
from tokenmill.encode.encoder import FastokensEncoder, HuggingFaceEncoder
from tokenmill.errors import ConfigError, Interrupted
from tokenmill.records import TokenBatch


def test_a_finished_job_says_so(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(job)
    capsys.readouterr()
    assert main(job) == 0
    assert capsys.readouterr().out.startswith("already complete, nothing to do\n")


@pytest.mark.parametrize("quiet", [False, True])
def test_a_damaged_file_is_exit_code_3_and_named_with_the_way_out_even_if_quiet(
    job: list[str], inputs: Path, capfd: pytest.CaptureFixture[str], quiet: bool
) -> None:
    whole = gzip.compress(texts(*map(str, range(50_000))))
    (inputs / "cut\x1b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    for _ in range(2):  # the second time it is complete already, and lacks the same
        assert main([*job, *(["--quiet"] if quiet else [])]) == 3
        said = capfd.readouterr()
        assert r"error: damaged: cut\x1b.jsonl.gz (truncated_file at record " in said.err
        assert "the file was cut off; how much is missing cannot be told)" in said.err
        assert "replace them with whole copies and start over with --overwrite" in said.err
        assert "\x1b" not in said.err
        assert re.search(r"^files +2 \(1 damaged\)$", said.out, re.MULTILINE) or quiet


def test_of_many_damaged_files_some_are_named(
    job: list[str], inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for n in range(23):
        (inputs / f"{n:02}.jsonl.gz").write_bytes(gzip.compress(texts("text"))[:-3])
    assert main([*job, "--max-rejects", "100%"]) == 3
    said = capfd.readouterr()
    assert said.out.startswith("complete, except for 23 damaged files\n")
    assert said.err.count("damaged: ") == 20
    assert "3 more are named in manifest.json; what could not be read" in said.err
    assert len(json.loads((tmp_path / "out" / "manifest.json").read_text())["damaged"]) == 23


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
    end, shown = capsys.readouterr()
    assert end.startswith("complete, except for 1 missing file\n")
    assert r"missing: b\x1b[2J.jsonl" in shown
    assert "\x1b" not in shown
    assert "run the same command again" in shown


def test_a_different_job_is_exit_code_1(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(job)
    assert main([*job[:-1], "32"]) == 1
    assert "--seq-len was 16 and is now 32" in capsys.readouterr().err
    assert main([*job[:-1], "32", "--overwrite"]) == 0


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


@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "b", "out", "--seq-len", "77"],
        ["--seq-len", "77", "a", "b", "out"],
        ["a", "--seq-len", "77", "b", "out"],
        ["a", "b", "--seq-len=77", "out"],
        ["--seq-len", "77", "a", "--quiet", "b", "--no-eos", "out"],
    ],
    ids=" ".join,
)
def test_options_may_stand_before_behind_and_between_the_paths(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = config_of(arguments, monkeypatch)
    assert (found.inputs, found.output, found.seq_len) == (("a", "b"), Path("out"), 77)


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
    "--read": ("mmap", "read", InputAccess.MMAP),
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
    assert {field for _, field, _ in OPTIONS.values()} | {"inputs", "output"} == {
        option.name for option in options_of(Config)
    }


def test_an_option_that_the_job_cannot_use_is_called_what_was_typed(
    job: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise ConfigError("there is no unit 9", "redo")

    monkeypatch.setattr("tokenmill.job.execute.run", refuse)
    assert main([*job, "--redo", "9"]) == 2
    assert capsys.readouterr().err == "tokenmill: error: --redo: there is no unit 9\n"


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


def test_help_carries_an_example_and_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit):
            build_parser().parse_args(arguments)
        shown = capsys.readouterr().out
        assert "tokenmill run corpus/ tokenized/" in shown
        assert "exit codes:" in shown
    explained = dict(re.findall(r"^  (--[a-z-]+)(?: [A-Z{][^ ]*)?\s+([a-z].+)$", shown, re.MULTILINE))
    assert set(explained) == run_options()


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
    inputs: Path, tmp_path: Path, tiny_tokenizer: str, small_units: SmallUnits, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, list[tuple[int, int]]]]:
    """Run 0.jsonl.gz to 7.jsonl.gz, a unit each: which the kernel was asked to read ahead, from where, how much."""
    small_units(1)
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
