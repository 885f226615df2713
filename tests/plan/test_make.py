"""The plan of a job: what is read, what is skipped, and what is said about it."""

from __future__ import annotations

import gzip
import json
import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SmallUnits, jsonl, texts
from tests.support.sources import arrow_bytes, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.errors import ConfigError, InputError
from tokenmill.output.plan_file import Skipped
from tokenmill.plan import cut
from tokenmill.plan.make import Planned, listed, make_plan
from tokenmill.read.corpus import Corpus
from tokenmill.storage.local import LocalStorage

LINE = texts("a")


def plan(*inputs: Path | str, output: Path = Path("somewhere/out"), options: ReadOptions | None = None) -> Planned:
    return make_plan([*map(str, inputs)], output, partial(Corpus, options=options))


def names(found: Planned) -> list[str]:
    return [file.name for _, file in found.plan.inputs()]


def skipped(found: Planned) -> dict[str, str]:
    return {entry.name: entry.why for entry in found.skipped}


def test_a_plan_has_every_input_once_and_knows_where_they_lie(inputs: Path) -> None:
    for name in ("x/b.jsonl", "x/a.jsonl", "y/a.jsonl"):
        (inputs / name).parent.mkdir(exist_ok=True)
        (inputs / name).write_bytes(LINE)
    found = plan(inputs / "x", inputs / "y" / "a.jsonl", f"{inputs}/x/*.jsonl")
    assert names(found) == ["x/a.jsonl", "x/b.jsonl", "y/a.jsonl"]
    assert found.plan.files == 3
    assert found.inputs == LocalStorage(inputs)


def test_files_that_are_not_inputs_are_skipped_and_named(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "README.md").write_text("# read me")
    (inputs / "settings.json").write_text('{\n  "features": {}\n}\n')
    (inputs / "app.log").write_text('started\n{"text": "a"}\nended\n')
    (inputs / ".cache").mkdir()
    (inputs / ".hidden.jsonl").write_bytes(LINE)
    os.mkfifo(inputs / "pipe.jsonl")
    found = plan(inputs)
    assert names(found) == ["a.jsonl"]
    assert skipped(found) == {
        "README.md": "not JSON Lines, Parquet or .txt",
        "settings.json": "JSON, but not one object per line",
        "app.log": "not JSON Lines, Parquet or .txt",
        ".cache": "hidden",
        ".hidden.jsonl": "hidden",
        "pipe.jsonl": "not a regular file",
    }
    assert "skipped 6 files that are not a supported input: .cache (hidden); " in caplog.text


def test_one_file_that_is_not_an_input_is_one_file(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "b.md").write_text("x")
    plan(inputs)
    assert caplog.messages == [
        "skipped 1 file that is not a supported input: b.md (not JSON Lines, Parquet or .txt)",
    ]


def test_many_skipped_files_are_counted_not_all_listed(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    for n in range(30):
        (inputs / f"{n:02d}.log").write_text("x")
    with caplog.at_level(logging.WARNING):
        plan(inputs)
    assert "skipped 30 files" in caplog.text
    assert "and 25 more" in caplog.text


def test_a_file_that_is_not_what_its_name_says_is_read_and_named(
    inputs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / "a.jsonl.gz").write_bytes(LINE)
    (inputs / "b.jsonl").write_bytes(LINE)
    assert names(plan(inputs)) == ["a.jsonl.gz", "b.jsonl"]
    assert caplog.messages == [
        "1 file is not what its name says: a.jsonl.gz (the name says gzip, the content is plain)"
    ]
    (inputs / "c.txt").write_bytes(LINE)
    plan(inputs)
    assert caplog.messages[-1].startswith("2 files are not what their names say: a.jsonl.gz (")


def test_inputs_as_they_should_be_are_not_commented_on(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    plan(inputs)
    assert caplog.messages == []


def test_nothing_to_read_is_an_error_that_says_what_was_looked_for(inputs: Path) -> None:
    with pytest.raises(InputError, match=rf"^no input found in {inputs}: looked for JSON Lines \(plain, \.gz, .*\.txt"):
        plan(inputs)
    (inputs / "a.md").write_text("x")
    (inputs / "b.md").write_text("x")
    with pytest.raises(InputError, match=r"; skipped a\.md \(not JSON Lines, Parquet or \.txt\); and 1 more$"):
        plan(inputs)


def test_a_file_named_by_the_user_that_is_not_an_input_is_an_error(inputs: Path) -> None:
    (inputs / "README.md").write_text("# read me")
    with pytest.raises(InputError, match=r"README.md: not JSON Lines"):
        plan(inputs / "README.md")
    (inputs / "lines.json").write_text('{\n "a": 1\n}\n')
    with pytest.raises(InputError, match=r"lines.json: JSON, but not one object per line"):
        plan(inputs / "lines.json")


def test_a_hidden_file_that_the_user_names_is_read(inputs: Path) -> None:
    (inputs / ".a.jsonl").write_bytes(LINE)
    (inputs / "b.jsonl").write_bytes(LINE)
    assert names(plan(inputs / ".a.jsonl", inputs)) == [".a.jsonl", "b.jsonl"]


def saved(folder: Path, *, pretty: bool) -> None:
    """A folder as Hugging Face datasets saves it, in its present form and in an older one."""
    folder.mkdir(parents=True)
    for n in range(2):
        (folder / f"data-0000{n}-of-00002.arrow").write_bytes(arrow_bytes([{"text": ["a"]}]))
    indent = 2 if pretty else None
    state = {"_data_files": [{"filename": f"data-0000{n}-of-00002.arrow"} for n in range(2)], "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state, indent=indent))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"text": {"_type": "Value"}}}, indent=indent))
    (folder.parent / "dataset_dict.json").write_text('{"splits": ["train"]}')


@pytest.mark.parametrize("pretty", [True, False])
def test_the_notes_of_a_saved_dataset_are_skipped_quietly(
    inputs: Path, pretty: bool, caplog: pytest.LogCaptureFixture
) -> None:
    saved(inputs / "train", pretty=pretty)
    found = plan(inputs, options=ReadOptions())
    assert names(found) == ["train/data-00000-of-00002.arrow", "train/data-00001-of-00002.arrow"]
    assert caplog.messages == []
    why = "a description of the data beside it"
    assert skipped(found) == {
        "dataset_dict.json": why,
        "train/dataset_info.json": why,
        "train/state.json": why,
    }


def test_data_with_the_name_of_a_note_is_read(inputs: Path) -> None:
    (inputs / "state.json").write_bytes(jsonl({"text": "a", "state": "Ohio"}))
    assert names(plan(inputs, options=ReadOptions())) == ["state.json"]
    (inputs / "state.json").write_bytes(jsonl({"body": "a", "state": "Ohio"}))
    with pytest.raises(InputError, match="no input found"):
        plan(inputs, options=ReadOptions())
    with pytest.raises(ConfigError, match="'text'"):  # which the user named
        plan(inputs / "state.json", options=ReadOptions())


def test_a_cache_beside_saved_data_is_not_read_twice_and_is_named(
    inputs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What `map` left there was computed from the data."""
    saved(inputs / "train", pretty=True)
    caches = ["cache-0123456789abcdef.arrow", "cache-0123456789abcdef_00001_of_00004.arrow"]
    for cache in (*caches, "cache-of-mine.arrow"):
        (inputs / "train" / cache).write_bytes(arrow_bytes([{"text": ["A"]}]))
    found = plan(inputs)
    assert [name for name in names(found) if "cache" in name] == ["train/cache-of-mine.arrow"]
    why = "made by Hugging Face datasets from other files: to read it, name it"
    assert {n: w for n, w in skipped(found).items() if "cache" in n} == {f"train/{cache}": why for cache in caches}
    assert "skipped 2 files" in caplog.text
    assert names(plan(inputs / "train" / caches[0])) == [caches[0]]


# options that cannot be right


def refused(inputs: Path, **options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        plan(inputs, options=ReadOptions(**options))
    assert error.value.exit_code == 2
    assert "ix the input" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_table_without_the_column_refuses_the_job_and_names_its_columns(inputs: Path, kind: str) -> None:
    (inputs / "a.parquet").write_bytes(parquet_file(["a"]))
    (inputs / "b.arrow").write_bytes(arrow_bytes([{"body": ["a"], "n": [1]}], kind))
    assert refused(inputs) == (
        f"text_field: there is no column 'text' in {inputs}/b.arrow. The columns are: body, n. Choose one of these, or "
        "leave the file out of the inputs"
    )
    assert refused(inputs, text_field="body").startswith(
        f"text_field: there is no column 'body' in {inputs}/a.parquet. The columns are: text. "
    )
    assert refused(inputs, id_field="id").startswith(f"id_field: there is no column 'id' in {inputs}/a.parquet")


def test_lines_without_the_field_refuse_the_job_and_name_their_fields(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "b.jsonl").write_bytes(jsonl({"body": "a", "n": 1}))
    assert refused(inputs) == (
        f"text_field: no record at the beginning of {inputs}/b.jsonl has the field 'text'. The fields are: body, n. "
        "Choose one of these, or leave the file out of the inputs"
    )
    assert refused(inputs, id_field="n").startswith(f"id_field: no record at the beginning of {inputs}/a.jsonl ")
    (inputs / "b.jsonl").write_bytes(b"{}\n")
    assert refused(inputs).endswith(
        " has the field 'text'. There are no fields at all: leave the file out of the inputs"
    )


def test_only_the_first_few_of_many_fields_are_named_and_none_can_play_tricks_on_a_terminal(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl({"\x1b[2J": 1} | {f"f{n}": n for n in range(30)}))
    said = refused(inputs)
    assert "are: \\x1b[2J, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10 and 19 more. " in said


def test_files_that_begin_with_broken_lines_refuse_nothing(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(b"broken\n" * 20_000)
    (inputs / "b.parquet").write_bytes(b"PAR1 broken")
    (inputs / "c.arrow").write_bytes(b"ARROW1 broken")
    (inputs / "d.jsonl").symlink_to(inputs / "nowhere")
    assert len(names(plan(inputs, options=ReadOptions(id_field="id")))) == 4


def test_the_output_of_a_job_is_not_read_wherever_it_is(inputs: Path) -> None:
    """Not even if it looks like lines of JSON, which its job.json does."""
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "older").mkdir()
    (inputs / "older" / "job.json").write_text('{"format_version": 1, "options": {}, "tokenizer": {}}\n')
    found = plan(inputs)
    assert names(found) == ["a.jsonl"]
    assert skipped(found) == {"older/job.json": "the output of a job: nothing in that directory is read"}


def test_the_plan_does_not_depend_on_the_place(tmp_path: Path) -> None:
    plans = []
    for place in ("one", "two/deeper"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_bytes(LINE)
        plans.append(list(plan(folder).plan.lines()))
    assert plans[0] == plans[1]


def test_an_unreadable_file_is_planned_with_its_problem(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    (inputs / "itself").symlink_to(inputs / "itself")
    (inputs / "itself.jsonl").symlink_to(inputs / "itself.jsonl")
    (inputs / "below.txt").symlink_to(inputs / "a.jsonl" / "x")
    found = plan(inputs)
    assert {file.name: file.problem for _, file in found.plan.inputs()} == {
        "a.jsonl": None,
        "below.txt": "Not a directory",
        "gone.jsonl": "No such file or directory",
        "itself.jsonl": "Too many levels of symbolic links",
    }
    assert skipped(found).keys() == {"itself"}


def test_a_unit_is_as_heavy_as_all_inputs_together_want_it(
    inputs: Path, small_units: SmallUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_units(1, file_cost=0)
    monkeypatch.setattr(cut, "UNITS_WANTED", 4)
    for n in range(8):
        (inputs / f"{n}.jsonl.gz").write_bytes(gzip.compress(LINE, mtime=0))
    assert [len(u.parts) for u in plan(inputs).plan.units()] == [2, 2, 2, 2]


def test_the_first_few_of_many_are_listed_and_the_others_counted() -> None:
    def entries(names: str) -> Skipped:
        found = Skipped()
        for name in names:
            found.append(name, "not an input")
        return found

    assert listed(entries("a")) == "a (not an input)"
    assert listed(entries("ab"), 2) == "a (not an input); b (not an input)"
    assert listed(entries("abc"), 1) == "a (not an input); and 2 more"
    assert listed(entries("abcdef")).endswith("e (not an input); and 1 more")
