"""The benchmark: what is measured is the same work, what is compared gave the same ids, the advice follows from it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import texts
from tests.support.processes import PROJECT
from tests.support.tokenizers import unigram_json
from tokenmill.benchmark import report
from tokenmill.benchmark import run_benchmark as benchmarking
from tokenmill.benchmark.generate import write_corpus
from tokenmill.benchmark.run_benchmark import Benchmark
from tokenmill.benchmark.runs import Measured, python
from tokenmill.cli import main
from tokenmill.errors import BenchmarkError, ConfigError


@pytest.fixture
def too_short_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it took: on a busy machine a run of nothing may take seconds."""
    monkeypatch.setattr(report, "LEAST_SECONDS", float("inf"))


def test_the_guides_table_is_printed_and_ends_with_a_command() -> None:
    """By the script that the guide names."""
    script = PROJECT / "scripts" / "benchmark_tokenization.py"
    said = subprocess.run(python(str(script), "--num-docs", "5", "--repeat", "1"), capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[0].startswith("5 documents, ")
    assert "all of these gave the same ids" in lines[0]
    assert lines[1].split()[:8] == ["Method", "Time", "(s)", "Docs/sec", "Tokens/sec", "Speedup", "MB/s", "Peak"]
    table = {line.split()[0]: line for line in lines[2:] if "x " in line}
    ways = ["{}_single", "{}_batch_32", "{}_batch_64", "{}_batch_100", "{}_batch_256"]
    methods = {way.format(library) for library in ("huggingface", "fastokens") for way in ways}
    assert methods <= table.keys()
    assert " 1.0x " in table["huggingface_single"]
    assert "tokenmill run INPUT OUTPUT --engine auto --num-workers" in said.stdout
    assert f"tokenmill: 1 of {len(table)}: huggingface_single\n" in said.stderr


@pytest.mark.usefixtures("too_short_to_tell")
def test_whole_runs_are_measured_beside_their_limit(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(inputs, 400_000, shards=2)
    result, chart = tmp_path / "result.json", tmp_path / "chart.svg"
    arguments = ["benchmark", "--input", str(inputs), "--engines", "streaming,extreme", "--workers", "1,2"]
    assert main([*arguments, "--repeat", "1", "--json", str(result), "--plot", str(chart)]) == 0
    found = json.loads(result.read_text())
    assert [(e["name"], e["workers"]) for e in found["engines"]] == [("streaming", 1), ("extreme", 1), ("extreme", 2)]
    assert set(found["limit_cpu_seconds"]) == {"read", "parse", "encode", "pack", "write"}
    for engine in found["engines"]:
        assert engine["to_limit"] > 0
        assert engine["peak_memory"] > 50_000_000
        assert engine["cpu_seconds"].keys() == found["limit_cpu_seconds"].keys()
    assert len({e["tokens"] for e in found["engines"]}) == 1
    assert {"fastokens", "tokenizers", "numpy"} <= found["versions"].keys()
    assert f"tokenmill run {inputs} OUTPUT --engine auto" in capsys.readouterr().out
    drawn = chart.read_text()
    assert drawn.startswith("<?xml")
    assert "tokenmill extreme, 2 workers" in drawn


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engines", "ulta"], "did you mean 'ultra'"),
        (["--workers", "two"], "expected numbers such as 1,2"),
        (["--workers", "0"], "expected numbers such as 1,2"),
        (["--num-docs", "0"], "--num-docs: must be at least 1"),
        (["--repeat", "0"], "--repeat: must be at least 1"),
        (["--peers", "."], "add --engines"),
        (["--peers", "absent"], "there is no directory absent"),
        (["--plot", "chart.pdf"], "must end in .svg or .png"),
        (["--json", "absent/result.json"], "there is no directory"),
        (["--size", "much"], "is not a size"),
        (["--size", "10"], "too little to measure"),
    ],
)
def test_wrong_options_are_told_before_anything_is_measured(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarking, "run_benchmark", lambda *_: pytest.fail("it was measured"))
    assert main(["benchmark", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_options_of_whole_runs_are_warned_of_without_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_benchmark(*_: object) -> NoReturn:
        raise ConfigError("no such field", "text_field")

    monkeypatch.setattr(benchmarking, "run_benchmark", run_benchmark)
    assert main(["benchmark", "--size", "2MB", "--workers", "2"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "tokenmill: warning: --workers is for whole runs: without --engines it is of no use",
        "tokenmill: warning: --size is for whole runs: without --engines it is of no use",
        "tokenmill: error: --text-field: no such field",
    ]


def test_every_option_arrives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Benchmark] = []

    def run_benchmark(options: Benchmark, _: object) -> NoReturn:
        given.append(options)
        raise BenchmarkError("enough")

    monkeypatch.setattr(benchmarking, "run_benchmark", run_benchmark)
    everything = ["--num-docs", "7", "--input", "a", "--input", "b", "--engines", "ultra,extreme", "--workers", "1,3"]
    everything += ["--repeat", "5", "--size", "2MB", "--tokenizer", "x", "--text-field", "t", "--peers", str(tmp_path)]
    assert [main(["benchmark", *arguments]) for arguments in (everything, ["--engines", "all"], [])] == [1, 1, 1]
    assert given == [
        Benchmark(
            inputs=("a", "b"),
            num_docs=7,
            engines=("ultra", "extreme"),
            workers=(1, 3),
            peers=tmp_path,
            repeat=5,
            tokenizer="x",
            text_field="t",
            size=2_000_000,
        ),
        Benchmark(engines=("enhanced", "streaming", "ultra", "extreme")),
        Benchmark(num_docs=1000),
    ]


def let_differ(monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """Methods with this in their name give other ids."""

    def measured(command: list[str], _: Path) -> Measured:
        digest = "other" if any(odd in argument for argument in command) else "same"
        output = {"seconds": 1.0, "tokens": 1, "digest": digest, "peak_memory": 1}
        return Measured(seconds=1.0, peak_memory=1, output=json.dumps(output))

    monkeypatch.setattr(benchmarking, "measure", measured)


def test_methods_that_disagree_are_named_and_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_differ(monkeypatch, "fastokens_batch_64")
    assert main(["benchmark", "--num-docs", "2", "--repeat", "1", "--quiet"]) == 1
    *table, _ = capsys.readouterr().out.split("recommendation")
    assert "skipped, because their ids differ from those of huggingface_single: fastokens_batch_64\n" in table[0]
    assert table[0].count("fastokens_batch_64") == 1


@pytest.mark.parametrize("odd", ["fastokens_batch_100", "fastokens"])
def test_without_batches_to_compare_the_size_goes_by_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], odd: str
) -> None:
    let_differ(monkeypatch, odd)
    assert main(["benchmark", "--num-docs", "2", "--repeat", "1", "--quiet"]) == 1
    assert "--batch-size 100\n" in capsys.readouterr().out


@pytest.mark.usefixtures("too_short_to_tell")
def test_what_cannot_be_read_is_no_matter_of_speed(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad lines, a missing file, numbers in place of text, a folder with a space in its name."""
    folder = inputs / "odd shards"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"body": "\xe9"}\n' + b'{"body": ' * 3000 + b"\n" + b'{"body": "good"}\n' * 50)
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    pq.write_table(pa.table({"body": [1]}), folder / "b.parquet")
    pq.write_table(pa.table({"body": [b"bytes", b"\xff", None]}), folder / "c.parquet")
    (folder / "d.parquet").write_bytes(b"PAR1 broken PAR1")
    arguments = ["--input", str(folder), "--text-field", "body", "--engines", "streaming", "--repeat", "1"]
    assert main(["benchmark", *arguments]) == 0
    said = capsys.readouterr().out
    assert "51 documents, " in said  # fifty good lines, and the first row of c.parquet
    assert f"tokenmill run '{folder}' OUTPUT --text-field body --engine auto" in said


@pytest.mark.usefixtures("too_short_to_tell")
def test_a_tokenizer_that_fastokens_refuses_is_measured_without_it(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = tmp_path / "unigram.json"
    tokenizer.write_text(json.dumps(unigram_json()))
    (inputs / "a.jsonl").write_bytes(texts(*(f"text number {n}" for n in range(20))))
    command = ["benchmark", "--input", str(inputs), "--tokenizer", str(tokenizer), "--repeat", "1"]
    assert main([*command, "--num-docs", "5", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "huggingface_batch_32" in said
    assert "fastokens_batch_32" not in said
    assert "fastokens cannot use this tokenizer: ValueError: normalizer error" in said
    assert "batches of 32, 64, 100, 256" in said
    result = tmp_path / "result.json"
    assert main([*command, "--engines", "streaming", "--quiet", "--json", str(result)]) == 0
    found = json.loads(result.read_text())
    assert found["engines"][0]["documents"] == 20
    assert found["limit_cpu_seconds"]["encode"] > 0
    assert found["libraries_that_refuse"].keys() == {"fastokens"}
    assert "batch size by rule: fastokens cannot use this tokenizer" in capsys.readouterr().out


def test_a_tokenizer_that_no_library_can_use_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Measured(seconds=1.0, peak_memory=1, output=json.dumps({"problem": "ValueError: no"}))
    monkeypatch.setattr(benchmarking, "measure", lambda *_: refused)
    assert main(["benchmark", "--num-docs", "2", "--repeat", "1", "--quiet"]) == 1
    assert "error: no library can use this tokenizer: ValueError: no; ValueError: no" in capsys.readouterr().err
