"""Shards that begin badly are read; data that is skipped all the same is not passed over in silence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conftest import Run, documents, rejects, texts
from tokenmill.check.verify import verify
from tokenmill.cli import main

PRETTY = '[\n {"text": "lost"}\n]\n'

SHARDS = {
    "a.json.gz": (gzip.compress(b"broken\n" + texts("a" * 70_000)), ["a" * 70_000], ["broken_json"]),
    "b.json.gz": (gzip.compress(b"\n") + gzip.compress(texts("b")), ["b"], []),
    "c.json.gz": (gzip.compress(b"{") + gzip.compress(texts("c")[1:]), ["c"], []),
    "d.json.gz": (gzip.compress(b"\xef\xbb\xbf") + gzip.compress(texts("d")), ["d"], []),
    "e.json": (b" " * 70_000 + b"\n" + texts("e"), ["e"], []),
    "part-00000": (b"broken\n" + texts("f"), ["f"], ["broken_json"]),
    "part-00001": (b'{"n": ' + b"9" * 5000 + b', "text": "g"}\n' + texts("h"), ["g", "h"], []),
    "part-00002": (b'{"text":' * 9000 + b"1" + b"}" * 9000 + b"\n" + texts("i"), ["i"], ["broken_json"]),
    "part-00003.gz": (gzip.compress(b"x\n" * 9 + texts("j")), ["j"], ["broken_json"] * 9),
}


def test_a_shard_is_read_whatever_it_begins_with_and_only_its_bad_lines_are_rejected(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    for name, (data, _, _) in SHARDS.items():
        (inputs / name).write_bytes(data)
    assert run().complete
    assert documents(tmp_path / "out") == [text.encode() for _, good, _ in SHARDS.values() for text in good]
    assert [(r["file"], r["reason"]) for r in rejects(tmp_path / "out")] == [
        (name, reason) for name, (_, _, bad) in SHARDS.items() for reason in bad
    ]


@pytest.fixture
def job(inputs: Path, tmp_path: Path, tiny_tokenizer: str) -> list[str]:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "pretty.json").write_text(PRETTY)
    return ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer, "--seq-len", "8"]


def test_data_that_is_skipped_is_exit_code_3_in_every_run_and_a_problem_for_verify(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(job) == 3
    out, err = capsys.readouterr()
    assert out.startswith("complete, except for 1 skipped file that looks like data\n")
    assert "error: skipped, although it looks like data: pretty.json (JSON, but not one object per line). " in err
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    assert json.loads(before)["left_out"] == [
        {"name": "pretty.json", "why": "JSON, but not one object per line", "looks_like_data": True}
    ]
    assert main([*job, "--quiet"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "pretty.json" in err
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    (fault,) = verify(tmp_path / "out").faults
    assert fault.what.startswith("pretty.json looks like data and was skipped: JSON, but not one object per line. ")


def test_files_beside_data_are_counted_apart_from_what_is_warned_of(
    job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "pretty.json").unlink()
    for name in ("_SUCCESS", ".a.jsonl.crc", "app.log"):
        (inputs / name).write_text("x")
    assert main(job) == 0
    out, err = capsys.readouterr()
    assert "skipped 1 file: app.log (not JSON Lines, Parquet, Arrow or .txt)" in err
    assert f"{'files':24}1 (1 skipped, named in manifest.json, 2 known side files)\n" in out


def test_once_the_file_is_left_out_the_same_output_is_complete(job: list[str], inputs: Path, tmp_path: Path) -> None:
    assert main(job) == 3
    units = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "units").iterdir()}
    assert main([*job[:1], f"{inputs}/*.jsonl", *job[2:]]) == 0
    assert verify(tmp_path / "out").good
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "units").iterdir()} == units
    assert main(job) == 3  # and back
    assert not verify(tmp_path / "out").good


def test_a_file_that_comes_later_makes_a_finished_output_incomplete(
    job: list[str], inputs: Path, tmp_path: Path
) -> None:
    (inputs / "pretty.json").unlink()
    assert main(job) == 0
    (inputs / "pretty.json").write_text(PRETTY)
    assert main(job) == 3
    assert not verify(tmp_path / "out").good


def test_a_missing_file_and_one_that_is_skipped_are_both_told(
    job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "b.jsonl").symlink_to(inputs / "nowhere")
    (inputs / "more.json").write_text(PRETTY)
    assert main(job) == 3
    said = "complete, except for 1 missing file and 2 skipped files that look like data\n"
    assert capsys.readouterr().out.startswith(said)
