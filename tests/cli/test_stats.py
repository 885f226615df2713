"""`tokenmill stats`: counts as they are printed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.test_display import lines_on, on_a_terminal
from tests.conftest import Run, texts
from tests.inspect.conftest import run_two_files
from tokenmill.cli import main
from tokenmill.messages import columns_of


@pytest.fixture
def output(inputs: Path, run: Run) -> Path:
    return run_two_files(inputs, run)


def test_counts_are_shown_in_tables(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(output)]) == 0
    said = capsys.readouterr().out
    first, second, *_ = said.splitlines()
    assert first == "3 documents, 33 tokens + 3 separators, 5 rows"
    assert second == "1.00 bytes per token, 10.000 % padding, 1 empty document"
    assert "part-001.jsonl          2      27" in said  # and 6 of the other file make 33
    assert "16 to 31" in said
    assert "broken_json" in said
    assert "\x1b" not in said


def test_what_is_not_in_the_output_is_mentioned(inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a" * 10))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts("b"))[:-9])
    (inputs / "c.jsonl").symlink_to(inputs / "nowhere")
    (inputs / "d.csv").write_text("text\nlost\n")
    output = run(tail="drop", max_rejects="100%").output
    assert main(["stats", str(output)]) == 0
    said = capsys.readouterr().out
    assert "\ndropped: 5 tokens (38.5 %); 2 documents are not, or not wholly, in the rows\n" in said
    assert "\nmissing: c.jsonl\ndamaged: b.jsonl.gz\nskipped, but it looks like data: d.csv\n" in said
    assert "\nno document is wholly in the rows\n" in said
    assert main(["stats", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["missing"].keys(), found["damaged"].keys()) == ({"c.jsonl"}, {"b.jsonl.gz"})


def test_an_output_without_rows_has_no_shares_and_no_empty_tables(
    inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "a.jsonl").write_bytes(texts(""))
    assert main(["stats", str(run().output)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0 documents, 0 tokens + 0 separators, 0 rows",
        "1 empty document",
        "",
        "the output has no documents",
    ]


@pytest.mark.parametrize("columns", [60, 80])
def test_tables_fit_the_terminal(inputs: Path, run: Run, columns: int) -> None:
    for name in ("a" * 120, "語" * 60):
        (inputs / f"{name}-1.jsonl").write_bytes(texts("x" * 1000))
    code, shown = on_a_terminal(["stats", str(run().output)], columns)
    assert code == 0
    lines = lines_on(shown)
    assert max(map(columns_of, lines)) <= columns
    assert any("…" in line and "-1.jsonl " in line for line in lines)


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
