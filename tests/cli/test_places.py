"""No command takes an address or a stream for a path of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import texts, tree
from tokenmill.cli import main

STORE = "s3://bucket/x"
COMMANDS = {
    "output": ["run", "in", STORE],
    "input": ["run", STORE, "out"],
    "second input": ["run", "in", STORE, "out"],
    "--input-dir": ["run", "--input-dir", STORE, "out"],
    "--output-dir": ["run", "in", "--output-dir", STORE],
    "tokenizer": ["run", "in", "out", "--tokenizer", STORE],
    "config": ["run", "in", "out", "--config", STORE],
    "verify": ["verify", STORE],
    "source": ["verify", "done", "--source", STORE],
    "show": ["show", STORE],
    "stats": ["stats", STORE],
    "benchmark": ["benchmark", "--input", STORE, "--num-docs", "1"],
    "result": ["benchmark", "--num-docs", "1", "--json", STORE],
    "plot": ["benchmark", "--num-docs", "1", "--plot", STORE],
    "peers": ["benchmark", "--engines", "all", "--peers", STORE],
}


@pytest.fixture
def folder(tmp_path: Path, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(texts("a"))
    assert main(["run", "in", "done", "--tokenizer", tiny_tokenizer]) == 0
    return tmp_path


def exit_code(command: list[str]) -> object:
    try:
        return main(command)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("path", [STORE, "-"])
def test_no_command_takes_an_object_store_or_a_stream_for_a_path(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str], path: str
) -> None:
    before = {p.name for p in folder.iterdir()}
    assert exit_code([path if part == STORE else part for part in command]) == 2
    said = capsys.readouterr().err
    assert ("object stores are not supported yet" if path == STORE else "-: ") in said
    assert "defect" not in said
    assert {p.name for p in folder.iterdir()} == before


def test_the_home_directory_is_expanded_by_every_command(folder: Path, tiny_tokenizer: str) -> None:
    (folder / "t.json").write_bytes(Path(tiny_tokenizer).read_bytes())
    (folder / "job.toml").write_text("seq-len = 2048\n")
    assert main(["run", "~/in/*.jsonl", "~/out", "--tokenizer=~/t.json", "--config=~/job.toml"]) == 0
    assert os.path.isdir(folder / "out")
    for command in (
        ["verify", "~/out", "--source=~/in", "--against-source", "all"],
        ["show", "~/out"],
        ["stats", "~/out"],
    ):
        assert main(command) == 0
    assert tree(folder / "out").keys() == tree(folder / "done").keys()


def test_one_path_beside_the_inputs_of_a_file_is_the_output(
    folder: Path, tiny_tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job.toml").write_text(f'inputs = "in"\ntokenizer = "{tiny_tokenizer}"\n')
    assert main(["run", "--config", "job.toml", "out"]) == 0
    assert tree(folder / "out") == tree(folder / "done")
    (folder / "job.toml").write_text(f'inputs = "in"\noutput = "x"\ntokenizer = "{tiny_tokenizer}"\n')
    assert main(["run", "--config", "job.toml", "out"]) == 2
    assert "write --output-dir out or --input-dir out" in capsys.readouterr().err
