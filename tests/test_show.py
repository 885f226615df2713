"""`tokenmill show` and `tokenmill stats`: what a person sees of an output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import EOS, Run, texts
from tokenmill.cli import main
from tokenmill.cli.show import visible
from tokenmill.errors import ConfigError
from tokenmill.show import Viewer
from tokenmill.stats import collect_stats


@pytest.fixture
def output(inputs: Path, tmp_path: Path, run: Run) -> Path:
    """Rows of 8 in chunks of 2: "abc|" "defghijklmnopqrstuvwxyz0|" "é|" and padding."""
    (inputs / "part-001.jsonl").write_bytes(texts("abc", "", "defghijklmnopqrstuvwxyz0"))
    (inputs / "part-002.jsonl").write_bytes(b"broken\n" + texts("é\x1b[2J"))
    run(sequences_per_chunk=2)
    return tmp_path / "out"


def test_a_row_is_taken_apart_into_documents(output: Path) -> None:
    viewer = Viewer(output)
    first = viewer.row(0)
    assert first.ids == [*b"abc", EOS, *b"defg"]
    assert [(s.start, s.end, s.file, s.record, s.begins, s.ends) for s in first.spans] == [
        (0, 4, "part-001.jsonl", 1, True, True),
        (4, 8, "part-001.jsonl", 3, True, False),
    ]
    middle = viewer.row(2)  # in another chunk than both ends of its document
    assert [(s.file, s.record, s.begins, s.ends) for s in middle.spans] == [("part-001.jsonl", 3, False, False)]
    last = viewer.row(len(viewer.rows) - 1)
    assert last.spans[-1].file is None
    assert sum(s.end - s.start for s in last.spans) == 8


def test_a_document_is_found_by_file_and_record(output: Path) -> None:
    viewer = Viewer(output)
    assert viewer.find("part-001", 1) == [0]
    assert viewer.find("part-001.jsonl", 3) == [0, 1, 2, 3]
    assert viewer.find("002", 2) == [3, 4]
    for file, record, said in (
        ("part", 1, "2 inputs have 'part' in their name"),
        ("absent", 1, "no input has 'absent' in its name"),
        ("part-001", 2, "is in no row: it is empty"),
        ("part-002", 1, "rejected"),
    ):
        with pytest.raises(ConfigError, match=said):
            viewer.find(file, record)


def test_characters_spread_over_tokens_are_shown_together(output: Path) -> None:
    pieces = Viewer(output).pieces([*"aéb".encode()])
    assert [(p.text, len(p.ids)) for p in pieces] == [("a", 1), ("é", 2), ("b", 1)]


def test_rows_are_shown_plainly_when_not_on_a_terminal(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(output)]) == 0
    said = capsys.readouterr().out
    assert "row 0: 8 tokens" in said
    assert "── part-001.jsonl:1, 4 tokens ──" in said
    assert "── part-001.jsonl:3, 4 tokens, goes on after this row ──" in said
    assert "abc<|endoftext|>" in said
    assert main(["show", str(output), "--file", "002", "--record", "2"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "é\\x1b" in said
    assert "── padding" in said
    assert main(["show", str(output), "--ids", "--row", "0"]) == 0
    assert "97=a 98=b 99=c 256=<|endoftext|>" in capsys.readouterr().out


def test_samples_are_the_same_for_the_same_seed(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in ("1", "1", "2"):
        assert main(["show", str(output), "--sample", "2", "--seed", seed, "--json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    rows = [json.loads(line) for line in said[0].splitlines()]
    assert len(rows) == 2
    assert set(rows[0]) == {"row", "ids", "documents"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--row", "99"], "there is no row 99"),
        (["--row", "x"], "is no list of row numbers"),
        (["--sample", "-1"], "must be at least 1"),
        (["--file", "a"], "--file and --record go together"),
        (["--row", "1", "--sample", "2"], "choose one"),
    ],
)
def test_wrong_choices_are_told(
    output: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(output), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_nothing_can_play_tricks_on_a_terminal() -> None:
    assert visible("a\x1b[31m\r\n\tb\u202e") == "a\\x1b[31m\\r⏎\n→\tb\\u202e"


def test_stats_count_documents_tokens_and_lengths(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = collect_stats(output)
    assert stats.by_file == {"part-001.jsonl": (2, 4 + 25), "part-002.jsonl": (1, 7)}
    assert {n: c for n, c in enumerate(stats.lengths) if c} == {2: 2, 4: 1}
    assert stats.frequent[0] == (EOS, "<|endoftext|>", 3)
    assert stats.padding_share == pytest.approx(4 / 40)
    assert stats.bytes_per_token == 1.0
    assert main(["stats", str(output)]) == 0
    said = capsys.readouterr().out
    assert "part-001.jsonl          2      29" in said
    assert "16 to 31" in said
    assert "broken_json" in said
    assert main(["stats", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ledger"]["documents"] == 3
