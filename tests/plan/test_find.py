"""What the user names becomes names below one root, in order; what is not a corpus is not walked."""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import texts
from tokenmill.errors import InputError
from tokenmill.output.store import JOB_FILE_BYTES, is_job
from tokenmill.plan.find import find_files
from tokenmill.storage.base import Entry
from tokenmill.storage.local import LocalStorage
from tokenmill.storage.memory import MemoryStorage

LINE = texts("a")
JOB = b'{"format_version": 1, "options": {}, "tokenizer": {}}\n'


def find(*arguments: Path | str, output: Path = Path("somewhere/out")) -> list[tuple[str, bool]]:
    """Names, and whether the user named this very file."""
    return [(os.fsdecode(found.name), found.explicit) for found in find_files(map(str, arguments), output)[1]]


def names(*arguments: Path | str, output: Path = Path("somewhere/out")) -> list[str]:
    return [name for name, _ in find(*arguments, output=output)]


def write(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(LINE)


def test_a_directory_is_searched_recursively_and_sorted_by_bytes(inputs: Path) -> None:
    write(inputs, "b.jsonl", "a/z.jsonl", "a.jsonl", "Z.jsonl", "é.jsonl", "a-.jsonl", "a0.jsonl")
    assert names(inputs) == ["Z.jsonl", "a-.jsonl", "a.jsonl", "a/z.jsonl", "a0.jsonl", "b.jsonl", "é.jsonl"]


def test_names_are_below_the_common_root_of_all_that_is_named(inputs: Path) -> None:
    write(inputs, "x/a.jsonl", "x/b.jsonl", "y/a.jsonl")
    assert names(f"{inputs}/x/*.jsonl") == ["a.jsonl", "b.jsonl"]
    assert names(inputs / "x", inputs / "y" / "a.jsonl") == ["x/a.jsonl", "x/b.jsonl", "y/a.jsonl"]
    assert names(f"{inputs}/**/a.jsonl") == ["x/a.jsonl", "y/a.jsonl"]
    root, _ = find_files([f"{inputs}/x", f"{inputs}/y/a.jsonl"], Path("out"))
    assert root == LocalStorage(inputs)


def test_a_file_that_is_found_twice_is_given_once_as_named_if_it_was_named(inputs: Path) -> None:
    write(inputs, "x/a.jsonl", "x/b.jsonl")
    assert find(inputs / "x", f"{inputs}/x/a*.jsonl") == [("a.jsonl", True), ("b.jsonl", False)]
    assert find(inputs, inputs) == [("x/a.jsonl", False), ("x/b.jsonl", False)]


def test_nothing_by_that_name_is_an_error(inputs: Path) -> None:
    with pytest.raises(InputError, match="no file matches"):
        find(f"{inputs}/*.jsonl")
    with pytest.raises(InputError, match="no file or directory"):
        find(inputs / "absent.jsonl")


def test_a_loop_of_symbolic_links_ends_and_linked_files_are_read(inputs: Path) -> None:
    write(inputs, "a.jsonl")
    (inputs / "loop").symlink_to(inputs)
    (inputs / "again.jsonl").symlink_to(inputs / "a.jsonl")
    assert names(inputs) == ["a.jsonl", "again.jsonl"]


def test_a_link_that_leads_to_itself_is_a_file(inputs: Path) -> None:
    """Whoever opens it will say what is wrong with it."""
    (inputs / "itself").symlink_to(inputs / "itself")
    assert names(inputs) == ["itself"]
    assert find(inputs / "itself") == [("itself", True)]


def test_the_output_inside_the_input_is_not_read(inputs: Path) -> None:
    write(inputs, "a.jsonl", "out/rejects.jsonl", ".out/rejects.jsonl")
    (inputs / "link").symlink_to(inputs / "out")
    assert names(inputs, output=inputs / "out") == [".out", "a.jsonl"]
    assert names(inputs / "out" / "rejects.jsonl", output=inputs / ".out") == ["rejects.jsonl"]


def test_an_input_that_is_the_output_is_refused(inputs: Path) -> None:
    (inputs.parent / "link").symlink_to(inputs)
    for output in (inputs, inputs.parent / "link", inputs / ".." / "in"):
        with pytest.raises(InputError, match="is both an input and the output: choose another output"):
            find(inputs, output=output)


def test_directories_may_be_nested_deeper_than_python_calls(inputs: Path) -> None:
    deep = inputs.joinpath(*["d"] * 200)
    write(deep, "a.jsonl")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = names(inputs)
    finally:
        sys.setrecursionlimit(before)
    assert found == ["d/" * 200 + "a.jsonl"]


def test_a_hidden_directory_is_named_as_if_it_were_a_file_and_not_walked(inputs: Path) -> None:
    write(inputs, ".h/a.jsonl", ".h-", "a.jsonl")
    assert find(inputs, inputs, inputs / ".h-") == [(".h", False), (".h-", True), ("a.jsonl", False)]
    assert names(inputs / ".h") == ["a.jsonl"]  # which the user named


def test_a_directory_that_cannot_be_listed_is_named_with_a_way_out(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: LocalStorage, folder: str = "") -> list[Entry]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(LocalStorage, "list", refuse)
    with pytest.raises(InputError, match=rf"cannot list the directory {inputs}: Permission denied\. Make it readable"):
        find(inputs)


# outputs of other jobs


def test_a_directory_is_an_output_by_its_job_and_something_beside_it(inputs: Path) -> None:
    for folder in ("output", "corpus"):
        write(inputs / folder, "a.jsonl")
        (inputs / folder / "job.json").write_bytes(JOB)
    (inputs / "output" / "units").mkdir()
    assert names(inputs) == ["corpus/a.jsonl", "corpus/job.json", "output/job.json"]


@pytest.mark.parametrize("beside", ["plan.jsonl", "units/x", "tmp/x"])
def test_one_file_stands_for_the_output_of_another_job(inputs: Path, beside: str) -> None:
    write(inputs, f"older/{beside}", "older/deeper/a.jsonl")
    (inputs / "older" / "job.json").write_bytes(JOB)
    assert names(inputs) == ["older/job.json"]


def test_what_looks_like_an_output_but_is_a_corpus_is_read(inputs: Path) -> None:
    write(inputs, "job.json", "a.jsonl", "units/b.jsonl")
    assert names(inputs) == ["a.jsonl", "job.json", "units/b.jsonl"]


def test_a_job_is_known_by_its_first_megabyte() -> None:
    inputs = MemoryStorage({"job.json": JOB, "large.json": JOB + b" " * JOB_FILE_BYTES, "other.json": b"[]"})
    assert is_job(inputs, "job.json")
    assert is_job(inputs, "large.json")
    assert not is_job(inputs, "other.json")
    assert not is_job(inputs, "absent.json")


def test_names_that_are_not_unicode_are_found(inputs: Path) -> None:
    odd = os.fsdecode(b"odd \xff\n\x1b[31m.jsonl")
    write(inputs, odd)
    assert names(inputs) == [odd]


# files with several names


def links(*arguments: Path | str) -> dict[str, str | None]:
    """Where the files lie that are reached by a link, below the folder of the test."""
    found = find_files(map(str, arguments), Path("somewhere/out"))[1]
    return {os.fsdecode(f.name): f.real for f in found}


def test_names_that_lead_elsewhere_tell_where(inputs: Path) -> None:
    write(inputs, "x/a.jsonl", "y/b.jsonl")
    (inputs / "a.jsonl").symlink_to("x/a.jsonl")
    (inputs / "gone.jsonl").symlink_to("nowhere")
    (inputs / "a-folder").symlink_to("y")
    (inputs.parent / "second").symlink_to(inputs)
    real = os.path.realpath(inputs)
    assert (
        links(inputs)
        == links(inputs.parent / "second")
        == {
            "a-folder/b.jsonl": f"{real}/y/b.jsonl",
            "a.jsonl": f"{real}/x/a.jsonl",
            "gone.jsonl": None,
            "x/a.jsonl": None,
        }
    )
    assert links(inputs / "x" / "a.jsonl", inputs.parent / "second" / "x" / "a.jsonl") == {
        "in/x/a.jsonl": None,
        "second/x/a.jsonl": f"{real}/x/a.jsonl",
    }


def test_a_folder_that_is_reached_by_several_arguments_is_walked_once(inputs: Path) -> None:
    write(inputs, "x/a.jsonl", "x/deep/b.jsonl", "z.jsonl")
    (inputs.parent / "second").symlink_to(inputs / "x")
    assert names(inputs, inputs / "x" / "deep", inputs / "x") == ["x/a.jsonl", "x/deep/b.jsonl", "z.jsonl"]
    assert names(inputs / "x", inputs.parent / "second") == ["in/x/a.jsonl", "in/x/deep/b.jsonl"]


def test_behind_a_link_dots_lead_where_the_system_says(inputs: Path) -> None:
    write(inputs, "here/x.jsonl", "there/deep/y.jsonl", "there/x.jsonl")
    (inputs / "here" / "link").symlink_to(inputs / "there" / "deep")
    (root, found) = find_files([f"{inputs}/here/link/../x.jsonl"], Path("out"))
    assert root == LocalStorage(Path(os.path.realpath(inputs / "there")))
    assert [f.name for f in found] == [b"x.jsonl"]
