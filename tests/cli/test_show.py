"""`tokenmill show`: rows as they are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_display import lines_on, on_a_terminal
from tests.conftest import Run, jsonl
from tests.inspect.conftest import run_two_files
from tokenmill.cli import main
from tokenmill.cli.show import visible
from tokenmill.inspect.show import Viewer


@pytest.fixture
def output(inputs: Path, run: Run) -> Path:
    return run_two_files(inputs, run)


def test_rows_are_shown_plainly_when_not_on_a_terminal(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(output)]) == 0
    said = capsys.readouterr().out
    assert "row 0: 8 tokens" in said
    assert "── part-001.jsonl:1, 4 tokens ──" in said
    assert "── part-001.jsonl:3, 4 tokens, goes on after this row ──" in said
    assert "abc<|endoftext|>" in said
    assert main(["show", str(output), "--file", "002", "--record", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "row 3: 8 tokens",
        "── 1 other document, 5 tokens ──",
        "── part-002.jsonl:2, 3 tokens, goes on after this row ──",
        "é\\x1b",
        "",
        "row 4: 8 tokens",
        "── part-002.jsonl:2, 4 tokens, begins before this row ──",
        "[2J<|endoftext|>",
        "── padding, 4 tokens ──",
        "",
    ]
    assert main(["show", str(output), "--row", "4"]) == 0
    assert "── padding, 4 tokens ──" in capsys.readouterr().out
    assert main(["show", str(output), "--ids", "--row", "0"]) == 0
    assert "97=a 98=b 99=c 256=<|endoftext|>" in capsys.readouterr().out


def rows_shown(output: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    assert main(["show", str(output), "--json", *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_rows_are_shown_as_json(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_shown(output, capsys, "--row", "0,2")
    assert [row["row"] for row in rows] == [0, 2]
    assert set(rows[0]) == {"row", "ids", "documents"}
    assert rows[0]["ids"] == Viewer(output).row(0).token_ids
    assert rows[0]["documents"] == [
        {
            "start": 0,
            "end": 4,
            "file": "part-001.jsonl",
            "record": 1,
            "begins": True,
            "ends": True,
            "text": "abc<|endoftext|>",
        },
        {
            "start": 4,
            "end": 8,
            "file": "part-001.jsonl",
            "record": 3,
            "begins": True,
            "ends": False,
            "text": "defg",
        },
    ]


def test_the_row_around_a_document_is_dimmed_on_a_terminal(output: Path) -> None:
    code, shown = on_a_terminal(["show", str(output), "--file", "001", "--record", "1"])
    assert code == 0
    assert b"\x1b[2mdefg\x1b[0m" in shown
    assert b"\x1b[30;106ma\x1b[0m\x1b[30;103mb\x1b[0m" in shown


def test_json_tells_which_document_was_asked_for(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows_shown(output, capsys, "--file", "001", "--record", "1")
    found: Any = row["documents"]
    assert [document["asked"] for document in found] == [True, False]


def test_documents_with_an_id_are_shown_up_to_a_few(
    inputs: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl(*({"text": f"{n:06}", "id": "same" if n else "one"} for n in range(17))))
    run(id_field="id", seq_len=7)
    assert main(["show", str(tmp_path / "out"), "--id", "one"]) == 0
    assert "000000<|endoftext|>" in capsys.readouterr().out
    assert main(["show", str(tmp_path / "out"), "--id", "same"]) == 0
    shown = capsys.readouterr()
    assert [shown.out.count(f"{n:06}") for n in (0, 1, 5, 6)] == [0, 1, 1, 0]
    assert shown.err == "tokenmill: 16 documents have this id; these are the first 5\n"
    assert "── a.jsonl:2, id same, 7 tokens ──\n" in shown.out
    (row,) = rows_shown(tmp_path / "out", capsys, "--id", "one")
    found: Any = row["documents"]
    assert [document["id"] for document in found] == ["one"]


def test_a_document_that_goes_on_in_the_next_chunk_has_its_id_there_too(
    inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl({"text": "a" * 20, "id": 7}))
    output = run(id_field="id", seq_len=8, sequences_per_chunk=1).output
    documents: list[Any] = [row["documents"] for row in rows_shown(output, capsys, "--row", "0-2")]
    assert [[document["id"] for document in row] for row in documents] == [[7], [7], [7, None]]


def test_a_few_lines_of_the_neighbours_are_shown_on_a_terminal_and_the_others_counted(inputs: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl(*({"text": str(n) * 600} for n in range(5))))
    code, shown = on_a_terminal(
        ["show", str(run(seq_len=4096).output), "--file", "a.jsonl", "--record", "3"], columns=60
    )
    assert code == 0
    lines = [line.rstrip() for line in lines_on(shown) if line.strip()]
    assert lines[:3] == ["row 0: 4,096 tokens", "── 1 other document, 601 tokens ──", "── a.jsonl:2, 601 tokens ──"]
    assert [line.count("1") for line in lines[3:6]] == [60, 60, 47]  # and EOS
    assert lines[6] == "── a.jsonl:3, 601 tokens ──"
    after = lines.index("── a.jsonl:4, 601 tokens ──")
    assert lines[after + 1 :] == ["3" * 60] * 3 + ["── 1 other document and padding, 1,692 tokens ──"]


def test_an_output_without_rows_says_so(inputs: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "a.jsonl").write_bytes(b"")
    output = run().output
    assert main(["show", str(output)]) == 2
    assert "there is no row 0: the output has no rows\n" in capsys.readouterr().err
    assert main(["show", str(output), "--sample", "3"]) == 0
    assert "warning: the output has no rows\n" in capsys.readouterr().err


def test_a_seed_without_a_sample_is_warned_of(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(output), "--seed", "1"]) == 0
    assert "warning: --seed is of no use without --sample\n" in capsys.readouterr().err


def test_the_seed_chooses_the_rows_of_a_sample(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    viewer = Viewer(output)
    for seed in (1, 1, 2, 3):
        rows = rows_shown(output, capsys, "--sample", "3", "--seed", str(seed))
        assert [row["row"] for row in rows] == viewer.sample(3, seed)
    assert rows_shown(output, capsys, "--sample", "2") == rows_shown(output, capsys, "--sample", "2", "--seed", "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--row", "99"], "there is no row 99"),
        (["--row", "x"], "--row: "),
        (["--row", "1,5-3"], "--row: expected row numbers such as 0,17 or 3-5, got '1,5-3'"),
        (["--row=-1"], "--row: "),
        (["--file", "002", "--record", "0"], "--record: records count from 1, not from 0"),
        (["--sample", "-1"], "must be at least 1"),
        (["--file", "a"], "--file and --record go together"),
        (["--row", "1", "--sample", "2"], "choose one"),
        (["--row", "1", "--id", "2"], "choose one"),
        (["--id", "2"], "--id: the documents have no ids of their own: the job was run without --id-field"),
    ],
)
def test_wrong_choices_are_told(
    output: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(output), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_nothing_can_play_tricks_on_a_terminal() -> None:
    assert visible("a\x1b[31m\r\n\tb\u202e") == "a\\x1b[31m\\r⏎\n→\tb\\u202e"
