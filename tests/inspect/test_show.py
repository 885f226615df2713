"""`tokenmill show` and `tokenmill stats`: what a person sees of an output."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conftest import EOS, Run, texts
from tokenmill.cli import main
from tokenmill.cli.show import visible
from tokenmill.errors import ConfigError
from tokenmill.inspect.show import Viewer
from tokenmill.inspect.stats import collect_stats


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


@pytest.fixture
def edges(inputs: Path, tmp_path: Path, run: Run) -> Path:
    """Rows of 4 in chunks of 2.

    aaa| bbbb  bbbb bbbb  bbbb bbb|  c|dd d|e|: the first ends with a row, the second with a chunk, and begins two
    chunks before; the last row is full, without padding.
    """
    (inputs / "a.jsonl").write_bytes(texts("aaa", "b" * 19, "c", "ddd", "e"))
    run(seq_len=4, sequences_per_chunk=2)
    return tmp_path / "out"


def spans(viewer: Viewer, row: int) -> list[tuple[int, int, int | None, bool, bool]]:
    return [(s.start, s.end, s.record, s.begins, s.ends) for s in viewer.row(row).spans]


def test_a_document_that_ends_with_a_row_or_a_chunk_ends_there_and_the_next_begins_behind(edges: Path) -> None:
    viewer = Viewer(edges)
    assert len(viewer.rows) == 8
    assert spans(viewer, 0) == [(0, 4, 1, True, True)]
    assert spans(viewer, 1) == [(0, 4, 2, True, False)]
    for row in (2, 3, 4):  # a chunk in which no document ends, and half of the next
        assert spans(viewer, row) == [(0, 4, 2, False, False)]
    assert spans(viewer, 5) == [(0, 4, 2, False, True)]
    assert spans(viewer, 6) == [(0, 2, 3, True, True), (2, 4, 4, True, False)]
    assert spans(viewer, 7) == [(0, 2, 4, False, True), (2, 4, 5, True, True)]
    assert {s.file for n in range(8) for s in viewer.row(n).spans} == {"a.jsonl"}
    for row in (-1, 8):
        with pytest.raises(ConfigError, match=f"there is no row {row}: the output has 8 rows, from 0 on"):
            viewer.row(row)


def test_the_rows_of_a_document_are_those_it_lies_in_and_no_more(edges: Path) -> None:
    viewer = Viewer(edges)
    assert viewer.find("a.jsonl", 1) == [0]
    assert viewer.find("a.jsonl", 2) == [1, 2, 3, 4, 5]
    assert viewer.find("a.jsonl", 3) == [6]
    assert viewer.find("a.jsonl", 4) == [6, 7]
    assert viewer.find("a.jsonl", 5) == [7]
    for record in (0, 6):
        with pytest.raises(ConfigError, match=f"record {record} of a.jsonl is in no row"):
            viewer.find("a.jsonl", record)


def test_a_document_at_the_start_of_a_unit_did_not_begin_in_the_unit_before(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first unit ends without the end of its last document, which was dropped."""
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 10)
    monkeypatch.setattr("tokenmill.plan.cut.FILE_COST_BYTES", 100)
    (inputs / "a.jsonl.gz").write_bytes(gzip.compress(texts("aaaaaa")))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts("bbb", "bbb")))
    run(seq_len=4, tail="drop")
    viewer = Viewer(tmp_path / "out")
    assert len(viewer.rows.manifest["units"]) == 2
    assert len(viewer.rows) == 3
    (dropped,) = viewer.row(0).spans
    assert (dropped.file, dropped.record) == ("(a document whose end was dropped)", None)
    assert (dropped.begins, dropped.ends) == (True, False)
    assert spans(viewer, 1) == [(0, 4, 1, True, True)]
    assert viewer.find("b.jsonl", 1) == [1]
    assert viewer.find("b.jsonl", 2) == [2]


def test_stats_count_documents_over_several_chunks(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, int]] = []
    for block in (1, 3, 1 << 22):
        monkeypatch.setattr("tokenmill.inspect.stats.BLOCK_TOKENS", block)
        stats = collect_stats(edges, lambda *told: done.append(told))
        assert stats.by_file == {"a.jsonl": (5, 4 + 20 + 2 + 4 + 2)}
        assert {n: c for n, c in enumerate(stats.lengths) if c} == {1: 2, 2: 2, 4: 1}
        assert stats.frequent == [
            (ord("b"), "b", 19),
            (EOS, "<|endoftext|>", 5),
            (ord("d"), "d", 3),
            (ord("a"), "a", 3),
            (ord("e"), "e", 1),
            (ord("c"), "c", 1),
        ]
        assert done[-1] == (32, 32)
        assert stats.padding_share == 0


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


def test_samples_are_the_same_for_the_same_seed_and_others_for_another(
    inputs: Path, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("x" * 799))
    run()
    viewer = Viewer(tmp_path / "out")
    assert len(viewer.rows) == 100
    said = []
    for seed in ("1", "1", "2"):
        assert main(["show", str(tmp_path / "out"), "--sample", "3", "--seed", seed, "--json"]) == 0
        said.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert said[0] == said[1]
    numbers = [[row["row"] for row in rows] for rows in said]
    assert numbers[0] != numbers[2]
    assert numbers == [viewer.sample(3, 1), viewer.sample(3, 1), viewer.sample(3, 2)]
    for chosen in numbers:
        assert len(set(chosen)) == 3
        assert chosen == sorted(chosen)
    assert set(said[0][0]) == {"row", "ids", "documents"}
    # Every row has its chance, and there are no more than there are.
    assert {row for seed in range(100) for row in viewer.sample(10, seed)} == set(range(100))
    assert viewer.sample(1000, 0) == list(range(100))


def test_without_a_seed_a_sample_is_that_of_seed_0(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for arguments in ([], ["--seed", "0"]):
        assert main(["show", str(output), "--sample", "2", *arguments]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].count("tokens") >= 2


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
