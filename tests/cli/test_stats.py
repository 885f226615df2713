"""`tokenmill stats`: counts as they are printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.inspect.conftest import run_two_files
from tokenmill.cli import main


@pytest.fixture
def output(inputs: Path, run: Run) -> Path:
    return run_two_files(inputs, run)


def test_counts_are_shown_in_tables(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(output)]) == 0
    said = capsys.readouterr().out
    first, second, *_ = said.splitlines()
    assert first == "3 documents, 33 tokens (+ 3 separators), 5 rows"
    assert second == "1.00 bytes per token, 10.000 % padding, 1 empty document"
    assert "part-001.jsonl          2      27" in said  # and 6 of the other file make 33
    assert "16 to 31" in said
    assert "broken_json" in said
    assert "\x1b" not in said


def test_only_so_many_files_are_listed(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(output), "--files", "1"]) == 0
    said = capsys.readouterr().out
    assert "part-001.jsonl" in said  # the one with the most tokens
    assert "part-002.jsonl" not in said
    assert "… and 1 more file" in said
    assert main(["stats", str(output), "--files", "-1"]) == 2


def test_counts_can_be_had_as_json(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ledger"]["documents"] == 3
    assert found["by_file"]["part-002.jsonl"] == [1, 6]
    assert found["padding_share"] == pytest.approx(4 / 40)
