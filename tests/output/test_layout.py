"""Names of files: each thing has one, and it leads back to the thing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tokenmill
from tests.support.outputs import UNIT, chunk_entry
from tokenmill.output import layout


def test_the_files_of_a_unit_are_named_by_its_number() -> None:
    assert layout.receipt_file(UNIT) == "units/00007.json"
    assert layout.checkpoint_file(UNIT) == "units/00007.checkpoint.json"
    assert layout.rejects_file(UNIT) == "units/00007.rejects.jsonl"


def test_chunks_are_named_by_unit_and_number() -> None:
    assert layout.chunk_name(UNIT, 12) == "00007-0012"
    plain = layout.chunk_files(chunk_entry(3))
    assert plain == ["chunks/00007-0003.npy", "chunks/00007-0003.docs.npy"]
    assert layout.chunk_files(chunk_entry(3, ids_xxh3="c")) == [*plain, "chunks/00007-0003.ids.jsonl"]
    assert layout.base_name(plain[0]) == "00007-0003.npy"
    assert layout.base_name("job.json") == "job.json"


def test_what_a_committed_unit_has_in_its_folder() -> None:
    assert list(layout.unit_files("00007", has_rejects=False)) == ["00007.json"]
    assert list(layout.unit_files("00007", has_rejects=True)) == ["00007.json", "00007.rejects.jsonl"]


@pytest.mark.parametrize(
    ("name", "unit", "stands_for_something"),
    [
        ("00007.json", None, True),
        ("00007.checkpoint.json", "00007", True),
        ("00007.rejects.jsonl", None, False),
        ("123456.checkpoint.json", "123456", True),
    ],
)
def test_a_file_of_a_unit_is_known_by_its_name(name: str, unit: str | None, stands_for_something: bool) -> None:
    assert layout.unit_of_checkpoint(name) == unit
    assert layout.is_receipt_or_checkpoint(name) == stands_for_something


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("00007-0000.npy", "00007"),
        ("00007-0012.docs.npy", "00007"),
        ("123456-0000.ids.jsonl", "123456"),
        ("00007.rejects.jsonl", "00007"),
        ("00007.json", None),
        ("00007.checkpoint.json", None),
        ("000071", None),
        ("manifest.json", None),
        ("rejects.jsonl", None),
    ],
)
def test_a_draft_leads_to_the_unit_that_grows_in_it(name: str, unit: str | None) -> None:
    assert layout.unit_of_draft(name) == unit


@pytest.mark.parametrize(
    ("names", "is_output"),
    [
        ({"job.json"}, False),
        ({"job.json", "a.jsonl", "chunks"}, False),
        ({"job.json", "plan.jsonl"}, True),
        ({"job.json", "units", "a"}, True),
        ({"job.json", "tmp"}, True),
    ],
)
def test_an_output_is_known_by_what_lies_beside_its_job(names: set[str], is_output: bool) -> None:
    assert layout.looks_like_an_output(names) == is_output


def test_no_other_module_knows_a_file_name_of_an_output() -> None:
    known = {name for name in layout.WHOLE_FILES if name != layout.TOKENIZER}  # as tokenizers call theirs, too
    known |= {layout.LOCK, layout.TIMELINE, layout.INPUTS, layout.DOCUMENTS, layout.IDS}
    known |= {".checkpoint.json", ".rejects.jsonl"}
    package = Path(tokenmill.__file__).parent
    for path in package.rglob("*.py"):
        if path != Path(layout.__file__):
            nodes = ast.walk(ast.parse(path.read_text()))
            texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            assert not texts & known, path
