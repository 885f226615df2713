"""What tools write beside data is skipped without a word; data is not, whatever it is called."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import jsonl, texts
from tests.support.sources import arrow_bytes, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.errors import ConfigError, InputError
from tokenmill.plan.make import Planned, make_plan
from tokenmill.read.corpus import Corpus

LINE = texts("a")
PRETTY = b'{\n  "features": {}\n}\n'


def plan(*inputs: Path, options: ReadOptions | None = None) -> Planned:
    return make_plan([*map(str, inputs)], Path("somewhere/out"), partial(Corpus, options=options or ReadOptions()))


def names(found: Planned) -> list[str]:
    return [file.name for _, file in found.plan.inputs()]


def skipped(found: Planned) -> dict[str, str]:
    return {entry.name: entry.why for entry in found.skipped}


SIDE_FILES = {
    "_SUCCESS": b"",
    "._SUCCESS.crc": b"crc\0",
    ".part-00000.crc": b"crc\0",
    "part-00000.crc": LINE,
    "_metadata": parquet_file(["footer"]),
    "_common_metadata": parquet_file([]),
    "_started_123": b"",
    "_committed_123": b'{"added": ["part-00000"], "removed": []}',
    "_delta_log/00000.json": jsonl({"commitInfo": {}}, {"add": {}}),
    ".gitattributes": b"*.parquet filter=lfs",
    "README.md": b"# read me",
    "README": b'{"text": like this}',
    "LICENSE": b"You may.",
    "LICENSE-MIT.md": b"You may.",
    "CITATION.cff": b"cff-version: 1",
    "dataset_infos.json": PRETTY,
    "dataset_info.json": b'{"features": {}}',
    "SHA256SUMS": b"0123  a.jsonl",
    "checksums.txt": b"0123  a.jsonl",
    "a.jsonl.sha256": b"0123  a.jsonl",
}


def lay(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(data)


def test_what_tools_write_beside_data_is_skipped_without_a_word(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    lay(inputs, SIDE_FILES | {"part-00000": LINE})
    found = plan(inputs)
    assert names(found) == ["part-00000"]
    assert skipped(found).keys() == SIDE_FILES.keys()
    assert not found.skipped.data()
    assert caplog.messages == []


def test_what_is_skipped_without_a_word_is_told_to_who_asks(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    lay(inputs, {"_SUCCESS": b"", "a.jsonl": LINE})
    with caplog.at_level(logging.DEBUG, "tokenmill"):
        plan(inputs)
    assert caplog.messages == ["skipped 1 known file beside the data: _SUCCESS (written beside data, and none itself)"]


@pytest.mark.parametrize(
    "name",
    ["README.jsonl", "README.txt", "license.parquet", "CHECKSUMS", "notice-00000", "README_en", "_started_x.jsonl"],
)
def test_what_can_be_read_is_read_although_it_is_called_like_a_note(inputs: Path, name: str) -> None:
    (inputs / name).write_bytes(parquet_file(["a"]) if name.endswith("parquet") else LINE)
    assert names(plan(inputs)) == [name]


@pytest.mark.parametrize("name", ["citations.json", "notices-2024.json", "readme.json", "state.json", "metadata.json"])
def test_a_name_that_may_be_one_of_data_does_not_hide_it(inputs: Path, name: str) -> None:
    lay(inputs, {name: PRETTY, "a.jsonl": LINE})
    assert [entry.name for entry in plan(inputs).skipped.data()] == [name]


@pytest.mark.parametrize("name", ["_SUCCESS", "README.md", "dataset_infos.json"])
def test_a_side_file_that_the_user_names_is_not_skipped_quietly(inputs: Path, name: str) -> None:
    lay(inputs, {name: SIDE_FILES[name], "a.jsonl": LINE})
    with pytest.raises(InputError, match=name):
        plan(inputs, inputs / name)


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
    found = plan(inputs)
    assert names(found) == ["train/data-00000-of-00002.arrow", "train/data-00001-of-00002.arrow"]
    assert caplog.messages == []
    why = "a description of the data beside it"
    assert skipped(found) == {
        "dataset_dict.json": why,
        "train/dataset_info.json": why,
        "train/state.json": why,
    }


def test_data_with_the_name_of_a_note_is_read(inputs: Path) -> None:
    (inputs / "dataset_info.json").write_bytes(jsonl({"text": "a", "state": "Ohio"}))
    assert names(plan(inputs)) == ["dataset_info.json"]
    (inputs / "dataset_info.json").write_bytes(jsonl({"body": "a", "state": "Ohio"}))
    with pytest.raises(InputError, match="no input found"):
        plan(inputs)
    with pytest.raises(ConfigError, match="'text'"):  # which the user named
        plan(inputs / "dataset_info.json")


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
