"""The benchmark: what is measured is the same work, what is compared gave the same ids, the advice follows from it."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
from collections import Counter
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import xxhash

from tests.conftest import Run, ids, texts
from tokenmill.benchmark import limit as measuring
from tokenmill.benchmark import run_benchmark as benchmarking
from tokenmill.benchmark.corpus import Generator, write_corpus
from tokenmill.benchmark.limit import Limit
from tokenmill.benchmark.methods import method_names, run_method
from tokenmill.benchmark.peers import PEERS, compare, digests_of, find_python, find_shards
from tokenmill.benchmark.report import Method, Report
from tokenmill.benchmark.run_benchmark import Benchmark
from tokenmill.benchmark.runs import Contender, Measured, measure, python, tree_memory
from tokenmill.cli import main
from tokenmill.config import Config
from tokenmill.errors import BenchmarkError
from tokenmill.plan.make import make_plan

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def too_short_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it took: on a busy machine a run of nothing may take seconds."""
    monkeypatch.setattr("tokenmill.benchmark.report.LEAST_SECONDS", float("inf"))


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
    ways = ["single_{}", "batch_{}_32", "batch_{}_64", "batch_{}_100", "batch_{}_256"]
    methods = {way.format(library) for library in ("fast", "fastokens") for way in ways}
    assert methods <= table.keys()
    assert " 1.0x " in table["single_fast"]
    assert "tokenmill run INPUT OUTPUT --engine auto --num-workers" in said.stdout
    assert f"tokenmill: 1 of {len(table)}: single_fast\n" in said.stderr


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
        (["--workers", "two"], "is no list of numbers"),
        (["--workers", "0"], "is no list of numbers"),
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
    let_differ(monkeypatch, "batch_fastokens_64")
    assert main(["benchmark", "--num-docs", "2", "--repeat", "1", "--quiet"]) == 1
    *table, _ = capsys.readouterr().out.split("recommendation")
    assert "left out, for they gave other ids than single_fast: batch_fastokens_64\n" in table[0]
    assert table[0].count("batch_fastokens_64") == 1


@pytest.mark.parametrize("odd", ["batch_fastokens_100", "fastokens"])
def test_without_batches_to_compare_the_size_goes_by_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], odd: str
) -> None:
    let_differ(monkeypatch, odd)
    assert main(["benchmark", "--num-docs", "2", "--repeat", "1", "--quiet"]) == 1
    assert "--batch-size 100\n" in capsys.readouterr().out


def test_every_method_gives_the_ids_of_the_reference(tiny_tokenizer: str) -> None:
    documents = ["a b", "ünï", "<|endoftext|>", "x" * 1000]
    state = xxhash.xxh3_128()
    for text in documents:
        state.update(np.array(ids(text), "<u4").tobytes() + b"|")
    assert len(method_names()) >= 10
    for name in method_names():
        found = run_method(name, documents, tiny_tokenizer)
        assert (found["tokens"], found["digest"]) == (1021, state.hexdigest()), name


def test_the_limit_does_the_work_of_a_run(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many tokens come out of the kernels as of a run, for every format; a bad line is passed over in both."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (inputs / "a.jsonl").write_bytes(texts("one", "two") + b"broken\n" + b'{"text": "\xe9"}\n' + texts("three"))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts(*("four" * n for n in range(1, 50)))))
    (inputs / "c.txt").write_text("five")
    pq.write_table(pa.table({"text": ["six", "", "seven"]}), inputs / "d.parquet")
    ledger = run().ledger
    config = Config(inputs=(str(inputs),), output=tmp_path / "none", tokenizer=tiny_tokenizer)
    clock = itertools.count()  # which a second passes on each time it is looked at
    monkeypatch.setattr(measuring, "thread_time", lambda: float(next(clock)))
    with (tmp_path / "tokens").open("wb", buffering=0) as out:
        limit = Limit(config, out)
        plan = make_plan(config)
        for _, file in plan.inputs():
            limit.add(plan.root / file.name, file)
    assert (tmp_path / "tokens").stat().st_size == 2 * (ledger.tokens + ledger.separators)
    assert min(asdict(limit.stage_seconds).values()) > 0


@pytest.mark.usefixtures("too_short_to_tell")
def test_what_cannot_be_read_is_no_matter_of_speed(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad lines, a missing file, Parquet without the column, a folder with a space in its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = inputs / "odd shards"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"body": "\xe9"}\n' + b'{"body": ' * 3000 + b"\n" + b'{"body": "good"}\n' * 50)
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    pq.write_table(pa.table({"other": [1]}), folder / "b.parquet")
    pq.write_table(pa.table({"body": [b"bytes", b"\xff", None]}), folder / "c.parquet")
    (folder / "d.parquet").write_bytes(b"PAR1 broken PAR1")
    arguments = ["--input", str(folder), "--text-field", "body", "--engines", "streaming", "--repeat", "1"]
    assert main(["benchmark", *arguments]) == 0
    said = capsys.readouterr().out
    assert "51 documents, " in said  # fifty good lines, and the first row of c.parquet
    assert f"tokenmill run '{folder}' OUTPUT --text-field body --engine auto" in said


def test_the_generated_corpus_is_the_same_for_the_same_seed_and_varied() -> None:
    first, again, other = (list(islice(Generator(seed), 300)) for seed in (1, 1, 2))
    assert first == again != other
    lengths = sorted(map(len, first))
    assert lengths[-1] > 20 * lengths[len(lengths) // 2]
    everything = "".join(first)
    for kind in ("\n\n", "%", "$", "<p>", "https://", "а", "α"):
        assert kind in everything
    words = Counter(everything.split())
    assert words.most_common(1)[0][0] == "the"
    rare = sum(1 for count in words.values() if count == 1)
    assert rare > len(words) / 3  # a long tail


def test_memory_is_that_of_the_whole_process_tree() -> None:
    hold = "x = bytearray(60_000_000); x[::4096] = x[::4096]; print('held', flush=True); input()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with subprocess.Popen(python("-c", program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"held\n"  # by the child
        found = tree_memory(process.pid)
        process.stdin.write(b"\n")
    assert found > 65_000_000
    assert tree_memory(2**22) == 0  # no such process


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"exit code 3: .*no such luck"):
        measure(python("-c", "import sys; print('no such luck', file=sys.stderr); sys.exit(3)"), tmp_path / "log")


# peers


def test_peers_are_found_by_their_environments(tmp_path: Path) -> None:
    peer = PEERS[1]
    assert find_python(peer, tmp_path) is None
    (tmp_path / "others" / "bin").mkdir(parents=True)
    (tmp_path / "others" / "bin" / "python").touch()
    assert find_python(peer, tmp_path) is None
    package = tmp_path / "others" / "lib" / "python3.11" / "site-packages" / peer.package
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert find_python(peer, tmp_path) == tmp_path / "others" / "bin" / "python"


def test_shards_of_one_kind_are_needed(inputs: Path) -> None:
    (inputs / "a.jsonl.gz").touch()
    assert find_shards([str(inputs)], "text").pattern == "*.jsonl.gz"
    (inputs / "b.jsonl").touch()
    with pytest.raises(BenchmarkError, match="shards of one kind"):
        find_shards([str(inputs)], "text")


def test_the_outputs_of_peers_are_compared_document_by_document(inputs: Path, tmp_path: Path, run: Run) -> None:
    """In the format of each peer; one of them shuffles, one writes no EOS."""
    import pyarrow as pa

    (inputs / "a.jsonl").write_bytes(texts("one", "two", "two", "three"))
    run()
    ours = digests_of(tmp_path / "out", 256)
    documents = [np.frombuffer(t.encode(), np.uint8).astype(np.uint16) for t in ("three", "two", "one", "two")]
    with_eos = [np.append(d, np.uint16(256)) for d in documents]
    ends = np.cumsum([len(d) for d in with_eos])
    out = tmp_path / "peer"
    (out / "tokens").mkdir(parents=True)
    np.concatenate(with_eos).tofile(out / "tokens" / "part-0.npy")
    rows = "".join(f"{e - len(d)},{e},id,file,1\n" for d, e in zip(with_eos, ends, strict=True))
    (out / "tokens" / "part-0.csv.gz").write_bytes(gzip.compress(rows.encode()))
    np.concatenate(with_eos).tofile(out / "tokens" / "0.ds")
    ends.astype(np.uint64).tofile(out / "tokens" / "0.ds.index")
    np.concatenate(documents).tofile(out / "tokens.bin")
    np.save(out / "ends.npy", np.cumsum([len(d) for d in documents]))
    table = pa.table({"input_ids": [d.tolist() for d in documents]})
    with pa.OSFile(str(out / "tokens" / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    assert len(PEERS) == 4
    for peer in PEERS:
        assert compare(peer.read(out, np.dtype("<u2")), ours, 256) == "same ids", peer.name
    assert compare(iter(documents[1:]), ours, 256) == "1 of 4 documents differ"
    assert compare(iter([*documents[1:], np.array([1], np.uint16)]), ours, 256) == "1 of 4 documents differ"


# the advice


def contender(name: str, workers: int, seconds: float, memory: int) -> Contender:
    return Contender(
        name=name,
        workers=workers,
        seconds=[seconds, seconds * 1.2],
        peak_memory=memory,
        documents=100,
        tokens=1000,
        text_bytes=4000,
        cpu_seconds={"encode": seconds / 2},
    )


def report(**changes: Any) -> Report:
    methods = [
        Method(name=f"batch_fastokens_{n}", documents=10, text_bytes=1, seconds=[s, s * 1.01, s * 1.02], tokens=1)
        for n, s in changes.pop("batches", {32: 1.0, 100: 1.01, 256: 0.99}).items()
    ]
    values: dict[str, Any] = {"cores": 2, "inputs": ("shards",), "generated": False, "methods": methods}
    return Report(**values | changes)


def test_the_fastest_is_recommended_and_of_equals_the_one_with_less_memory() -> None:
    engines = [contender("ultra", 2, 10, 900), contender("extreme", 2, 10.3, 500), contender("streaming", 1, 20, 100)]
    advice = report(engines=engines).recommendation()
    assert advice[1].strip() == "tokenmill run shards OUTPUT --engine extreme --num-workers 2 --batch-size 100"
    assert "ties with ultra" in advice[2]
    engines[1] = contender("extreme", 2, 15, 500)
    assert "--engine ultra --num-workers 2" in report(engines=engines).recommendation()[1]


def test_runs_of_a_second_are_too_short_to_recommend_from() -> None:
    advice = report(engines=[contender("ultra", 2, 1.0, 900)]).recommendation()
    assert "--engine auto" in advice[1]
    assert "too short to tell" in advice[2]


def test_another_batch_size_is_recommended_only_if_it_is_clearly_faster() -> None:
    assert "--batch-size 256" in report(batches={32: 1.0, 100: 1.0, 256: 0.5}).recommendation()[1]


def test_the_ratio_to_the_limit_counts_the_cores_in_use() -> None:
    found = report(limit={"encode": 3.0, "parse": 1.0})
    assert found.to_limit(contender("streaming", 1, 5.0, 1)) == pytest.approx(1.25)
    assert found.to_limit(contender("ultra", 2, 5.0, 1)) == pytest.approx(2.5)
    assert found.to_limit(contender("ultra", 8, 5.0, 1)) == pytest.approx(2.5)  # there are but two


def test_peers_that_are_absent_or_fail_are_named() -> None:
    failed = Contender(name="dolma tokens", workers=2, seconds=[], problem="it ended with exit code 1")
    engines, limit = [contender("ultra", 2, 1.0, 900)], {"encode": 1.0}
    said = "\n".join(report(engines=engines, limit=limit, peers=[failed], absent=["datasets.map"]).lines())
    assert "datasets.map: not installed; `make peers`" in said
    assert "dolma tokens: it ended with exit code 1" in said
