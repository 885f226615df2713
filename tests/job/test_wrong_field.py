"""An option that names a field which is not there: the job is refused, and nobody is told to fix the input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run, documents, jsonl, texts, tree
from tests.support.sources import arrow_bytes, parquet_file
from tests.support.stops import stop_at_checkpoint
from tokenmill.cli import main
from tokenmill.errors import ConfigError, Interrupted, RejectLimitError

VALUES = [f"document {n}" for n in range(40)]

WRONG = {
    "a.jsonl": jsonl({"body": "a", "key": 1}),
    "a.parquet": parquet_file(["a"]).replace(b"text", b"body"),
    "a.arrow": arrow_bytes([{"body": ["a"], "key": [1]}], "file"),
    "b.arrow": arrow_bytes([{"body": ["a"], "key": [1]}], "stream"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("option", ["--text-field", "--id-field"])
def test_a_field_that_a_file_does_not_have_is_exit_code_2_before_anything_is_written(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_tokenizer: str, name: str, option: str
) -> None:
    (inputs / name).write_bytes(WRONG[name])
    options = [] if option == "--text-field" else ["--text-field", "body", "--id-field", "id"]
    command = ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer, "--max-rejects", "100%"]
    assert main([*command, *options]) == 2
    said = capsys.readouterr().err
    assert f"{option}: " in said
    assert "body" in said.partition(name)[2]
    assert "ix the input" not in said
    assert not (tmp_path / "out").exists()


def test_a_job_that_is_continued_is_refused_like_a_new_one(inputs: Path, run: Run, tmp_path: Path) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*VALUES))
    with pytest.raises(Interrupted):
        run(stop=stop_at_checkpoint(tmp_path / "out"), sequences_per_chunk=2, engine="streaming")
    before = tree(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"text_field: no record .* has the field 'body'"):
        run(sequences_per_chunk=2, text_field="body")
    assert tree(tmp_path / "out") == before
    run(sequences_per_chunk=2)
    assert documents(tmp_path / "out") == [v.encode() for v in VALUES]


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_3000_dots_is_not_there_and_nothing_worse(inputs: Path, run: Run, name: str) -> None:
    (inputs / name).write_bytes(WRONG[name])
    with pytest.raises(ConfigError, match=r"^text_field: .* body"):
        run(text_field=".".join("x" * 3000))


def test_a_file_that_begins_with_broken_lines_is_read(inputs: Path, run: Run, tmp_path: Path) -> None:
    (inputs / "a.jsonl").write_bytes((b"broken " * 1500 + b"\n") * 200 + texts("good"))
    run()
    assert documents(tmp_path / "out") == [b"good"]


@pytest.mark.parametrize(
    ("records", "asked"),
    [([{"body": "a"}] * 2, True), ([{"text": 1}] * 2, True), ([{"text": 1}, {"body": "a"}], True), ([3, 4], False)],
    ids=["no text", "not a string", "both", "not an object"],
)
def test_too_many_rejects_ask_about_the_option_where_that_may_be_wrong(
    inputs: Path, run: Run, records: list[object], asked: bool
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a") + jsonl(*records))
    with pytest.raises(RejectLimitError) as error:
        run(max_rejects=0)
    said = str(error.value)
    assert ("Is --text-field text right? If not, start over with another one and --overwrite, or " in said) == asked
    assert ("Fix the input" in said) != asked
