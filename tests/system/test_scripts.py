"""Scripts and examples, run as the documentation says, and what the README shows of them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from backports import zstd

from tests.conftest import documents, texts
from tests.support.processes import PROJECT, python
from tokenmill.cli import main
from tokenmill.config import ENGINES
from tokenmill.messages import wrapped

README = (PROJECT / "README.md").read_text()


def run_python(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(python(*arguments), cwd=PROJECT, capture_output=True, text=True)


def shown_in_the_readme(command: str) -> list[str]:
    """What the README shows below a command, up to the next one or to the end of the example."""
    _, found, rest = README.partition(f"    $ {command}\n")
    assert found, command
    shown = []
    for line in rest.splitlines():
        if line.startswith("    $ ") or (line and not line.startswith("    ")):
            break
        shown.append(line.removeprefix("    "))
    return "\n".join(shown).strip().splitlines()


def test_every_script_is_run_here_or_by_the_tests_of_the_benchmark() -> None:
    names = {f"tokenize_finpile_{engine}.py" for engine in ENGINES} | {"benchmark_tokenization.py"}
    assert {path.name for path in (PROJECT / "scripts").iterdir() if path.is_file()} == names


@pytest.mark.parametrize("engine", ENGINES)
def test_the_scripts_of_the_guide_run_the_engine_that_they_are_named_after(
    engine: str, inputs: Path, tmp_path: Path, tiny_tokenizer: str
) -> None:
    script = PROJECT / "scripts" / f"tokenize_finpile_{engine}.py"
    (inputs / "a.jsonl").write_bytes(texts("one", "two"))
    out = tmp_path / "tokenized"
    done = run_python(
        script, "--input-dir", inputs, "--output-dir", out, "--tokenizer", tiny_tokenizer, "--seq-len", "8"
    )
    assert done.returncode == 0, done.stderr
    assert f"tokenmill: engine: {engine}, " in done.stderr
    assert done.stdout.startswith("complete\n")
    assert documents(out) == [b"one", b"two"]


def test_a_script_gives_the_exit_code_of_the_program(tmp_path: Path) -> None:
    script = PROJECT / "scripts" / "tokenize_finpile_streaming.py"
    done = run_python(script, "--input-dir", tmp_path / "absent", "--output-dir", tmp_path / "out")
    assert done.returncode == 2
    assert "there is no file or directory" in done.stderr


# the sample


@dataclass(frozen=True)
class Demo:
    """The output of the sample, and what the run said."""

    out: Path
    said: list[str]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Made as `make demo` and the README do."""
    out = tmp_path_factory.mktemp("build") / "demo"
    done = run_python("-m", "tokenmill", "run", "examples/sample", out, "--max-rejects", "5%")
    assert done.returncode == 0, done.stderr
    return Demo(out, (done.stderr + done.stdout).replace(str(out), "build/demo").splitlines())


def test_the_readme_shows_what_a_run_of_the_sample_says(demo: Demo) -> None:
    shown = shown_in_the_readme("tokenmill run examples/sample build/demo --max-rejects 5%")
    of_the_machine = ("tokenmill: engine: ", "time ", "rate ", "peak memory ")
    same = [line for line in shown if not line.startswith(of_the_machine)]
    assert len(same) == len(shown) - 4
    assert [line for line in demo.said if not line.startswith(of_the_machine)] == same


def test_the_readme_shows_what_the_example_reads_from_it(demo: Demo) -> None:
    done = run_python("examples/read_rows.py", demo.out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines() == shown_in_the_readme("python examples/read_rows.py build/demo")


def test_the_example_alone_says_how_to_use_it() -> None:
    done = run_python("examples/read_rows.py")
    assert (done.returncode, done.stderr) == (1, "usage: python examples/read_rows.py OUTPUT\n")


def test_the_readme_shows_what_verify_says_of_it(demo: Demo, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(demo.out), "--against-source", "all"]) == 0
    shown = shown_in_the_readme("tokenmill verify build/demo --against-source all")
    on_a_terminal = wrapped(capsys.readouterr().out.rstrip(), 80, 4)
    assert on_a_terminal.splitlines() == shown


def test_the_readme_shows_a_row_of_it(demo: Demo, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(demo.out), "--file", "news-plain", "--record", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    shown = shown_in_the_readme("tokenmill show build/demo --file news-plain --record 2")
    assert len(shown) == 5
    for line in shown:  # … where the README leaves out the rest of a text
        assert any(other.startswith(line.removesuffix(" …")) for other in said), line


def content(path: Path) -> object:
    """What a file holds, whatever version of a library compressed it."""
    unpack = {".gz": gzip.decompress, ".zst": zstd.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return unpack.get(path.suffix, bytes)(path.read_bytes())


def test_the_sample_is_what_its_script_makes(tmp_path: Path) -> None:
    done = run_python("examples/make_sample.py", tmp_path / "sample")
    assert done.returncode == 0, done.stderr
    made, kept = tmp_path / "sample", PROJECT / "examples" / "sample"
    names = sorted(path.name for path in kept.iterdir())
    assert sorted(path.name for path in made.iterdir()) == names
    assert len(names) == 8
    for name in names:
        assert content(made / name) == content(kept / name), name
