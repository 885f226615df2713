"""The plan of a job: what is read, what is skipped, and what is said about it."""

from __future__ import annotations

import gzip
import logging
import os
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import SmallUnits, texts
from tokenmill.config import ReadOptions
from tokenmill.errors import InputError
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
    (inputs / "guide.md").write_text("# read me")
    (inputs / "app.log").write_text('started\n{"text": "a"}\nended\n')
    (inputs / ".cache").mkdir()
    (inputs / ".hidden.jsonl").write_bytes(LINE)
    os.mkfifo(inputs / "pipe.jsonl")
    found = plan(inputs)
    assert names(found) == ["a.jsonl"]
    assert skipped(found) == {
        "guide.md": "not JSON Lines, Parquet, Arrow or .txt",
        "app.log": "not JSON Lines, Parquet, Arrow or .txt",
        ".cache": "hidden",
        ".hidden.jsonl": "hidden",
        "pipe.jsonl": "not a regular file",
    }
    assert "skipped 5 files: .cache, .hidden.jsonl (hidden); app.log" in caplog.text


def test_one_file_that_is_not_an_input_is_one_file(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "b.md").write_text("x")
    plan(inputs)
    assert caplog.messages == [
        "skipped 1 file: b.md (not JSON Lines, Parquet, Arrow or .txt)",
    ]


def test_a_file_that_looks_like_data_is_named_apart_from_the_others(
    inputs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "b.md").write_text("x")
    (inputs / "c.json").write_text('[\n {"text": "a"}\n]\n')
    found = plan(inputs)
    assert [entry.name for entry in found.skipped.data()] == ["c.json"]
    assert caplog.messages == [
        "skipped 1 file that looks like data but cannot be read: c.json (JSON, but not one object per line)",
        "skipped 1 file: b.md (not JSON Lines, Parquet, Arrow or .txt)",
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
    with pytest.raises(InputError, match=r"; skipped a\.md and 1 more \(not JSON Lines, Parquet, Arrow or \.txt\)$"):
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


# files with several names


SECOND = "another name of a file that is read already"


@pytest.mark.parametrize(
    "arguments",
    [
        ["in"],
        ["in", "in/x/s.jsonl"],
        ["in", "in/x"],
        ["in/x", "in/link.jsonl"],
        ["in/x/s.jsonl", "second/s.jsonl"],
        ["second", "in"],
        ["second", "in/x", "in/link.jsonl", "other/../in/x/s.jsonl", "in/x/../link.jsonl"],
        ["*/x", "in/**/*.jsonl"],
        ["in/x/s.jsonl", "in/x/s.jsonl"],
    ],
    ids=" ".join,
)
def test_a_file_is_read_once_by_whatever_names_it_is_reached(inputs: Path, arguments: list[str]) -> None:
    (inputs / "x").mkdir()
    (inputs / "x" / "s.jsonl").write_bytes(LINE)
    (inputs / "link.jsonl").symlink_to("x/s.jsonl")
    (inputs / "x" / "again.jsonl").symlink_to("s.jsonl")
    (inputs.parent / "second").symlink_to(inputs / "x")
    (inputs.parent / "other").mkdir()
    found = plan(*(f"{inputs.parent}/{argument}" for argument in arguments))
    assert len(names(found)) == 1
    assert set(skipped(found).values()) <= {SECOND}


def test_the_first_of_several_names_is_kept_and_the_others_are_told(
    inputs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / "b.jsonl").write_bytes(LINE)
    (inputs / "a.jsonl").symlink_to("b.jsonl")
    (inputs / "c.jsonl").symlink_to("a.jsonl")
    (inputs / "d.jsonl").write_bytes(LINE)
    (inputs / "gone-1.jsonl").symlink_to("nowhere")
    (inputs / "gone-2.jsonl").symlink_to("nowhere")
    with caplog.at_level(logging.INFO, "tokenmill"):
        found = plan(inputs)
    assert names(found) == ["a.jsonl", "d.jsonl", "gone-1.jsonl", "gone-2.jsonl"]
    assert skipped(found) == {"b.jsonl": SECOND, "c.jsonl": SECOND}
    assert caplog.messages == [f"skipped 2 duplicates: b.jsonl, c.jsonl ({SECOND})"]


def test_a_name_that_cannot_be_read_does_not_stand_for_one_that_can(inputs: Path) -> None:
    """As in the cache of a hub, where files are called by their checksum and links by their name."""
    (inputs / "blobs").mkdir()
    (inputs / "blobs" / "0123").write_bytes(b"a letter")
    (inputs / "letter.txt").symlink_to("blobs/0123")
    (inputs / ".hidden.jsonl").write_bytes(LINE)
    (inputs / "seen.jsonl").symlink_to(".hidden.jsonl")
    assert names(plan(inputs)) == ["letter.txt", "seen.jsonl"]


def test_hard_links_are_files_of_their_own(inputs: Path) -> None:
    """Nothing in their names says otherwise, and a copy of the corpus has two files."""
    (inputs / "a.jsonl").write_bytes(LINE)
    os.link(inputs / "a.jsonl", inputs / "b.jsonl")
    assert names(plan(inputs)) == ["a.jsonl", "b.jsonl"]


def test_what_is_read_once_weighs_once(inputs: Path, small_units: SmallUnits, monkeypatch: pytest.MonkeyPatch) -> None:
    small_units(1, file_cost=0)
    monkeypatch.setattr(cut, "UNITS_WANTED", 4)
    for n in range(8):
        (inputs / f"{n}.jsonl.gz").write_bytes(gzip.compress(LINE, mtime=0))
        (inputs / f"{n}-again.jsonl.gz").symlink_to(f"{n}.jsonl.gz")
    assert [len(u.parts) for u in plan(inputs).plan.units()] == [2, 2, 2, 2]


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

    mixed = entries("ab")
    mixed.append("c", "hidden")
    mixed.append("d", "not an input")
    assert listed(mixed, 2) == "a, b and 1 more (not an input); c (hidden)"
    assert listed(mixed, 1) == "a and 2 more (not an input); and 1 more"
    assert listed(entries("a")) == "a (not an input)"
    assert listed(entries("ab"), 2) == "a, b (not an input)"
    assert listed(entries("abc"), 1) == "a and 2 more (not an input)"
    assert listed(entries("abcdef")) == "a, b, c, d, e and 1 more (not an input)"
