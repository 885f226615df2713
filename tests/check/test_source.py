"""Documents are compared with the records they came from: some at random, or all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.check.conftest import OPTIONS
from tests.conftest import Run, texts
from tests.support.damage import edit_text, forge
from tokenmill.check.source import sample_documents
from tokenmill.check.verify import verify
from tokenmill.read.source import fingerprint_of
from tokenmill.storage.memory import MemoryStorage


def test_a_wrong_token_is_found_only_by_comparing_with_the_source(output: Path, run: Run) -> None:
    forge(output, "00001-0000", lambda a: a.__setitem__((0, 1), a[0, 1] + 1))
    run(**OPTIONS)
    assert verify(output).good
    verdict = verify(output, against_source="all")
    (fault,) = verdict.faults
    assert "record 7 of a.jsonl differs from its source from token 1 on" in fault.what
    assert fault.unit == 1


def restate_source(output: Path, path: Path, data: bytes) -> None:
    """Put other records into the source and have the plan say that they were there from the beginning."""
    before = json.loads((output / "plan.jsonl").read_text())["files"][0]
    path.write_bytes(data)
    fingerprint = fingerprint_of(MemoryStorage({"a": data}).open("a"))
    edit_text(output / "plan.jsonl", before["fingerprint"], fingerprint)
    edit_text(output / "plan.jsonl", f'"size": {before["size"]}', f'"size": {len(data)}')
    (output / "manifest.json").unlink()


RECORDS = [f"record {n}" for n in range(5)]


@pytest.mark.parametrize(
    ("options", "now", "said"),
    [
        ({}, RECORDS, None),
        ({}, [*RECORDS, "more"], "1 document of the source is not in the rows"),
        ({}, [*RECORDS, *["more"] * 70], "70 documents of the source are not in the rows"),
        ({}, RECORDS[:-1], "the rows hold documents that the source does not"),
        ({}, [], "the rows hold documents that the source does not"),
        ({}, ["", *RECORDS[1:]], "record 2 of a.jsonl is not where it should be"),
        # The last document is left over, and counted as dropped.
        ({"tail": "drop", "seq_len": 12}, RECORDS, None),
        ({"tail": "drop", "seq_len": 12}, [*RECORDS, "more"], "1 document of the source is not in the rows"),
        ({"tail": "drop", "seq_len": 12}, RECORDS[:-1], "1 document that was dropped is not in the source"),
    ],
)
def test_documents_that_are_missing_or_too_many_are_found_by_comparing_with_the_source(
    inputs: Path, tmp_path: Path, run: Run, options: dict[str, Any], now: list[str], said: str | None
) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*RECORDS))
    run(**options)
    restate_source(tmp_path / "out", inputs / "a.jsonl", texts(*now))
    run(**options)
    assert verify(tmp_path / "out").good
    verdict = verify(tmp_path / "out", against_source="all")
    assert [said in f.what if said else f for f in verdict.faults] == ([True] if said else [])
    assert verdict.units_to_redo() == ([0] if said else [])


def test_a_sampled_document_that_the_source_does_not_have_is_found(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*RECORDS))
    run()
    restate_source(tmp_path / "out", inputs / "a.jsonl", texts(*RECORDS[:3]))
    run()
    verdict = verify(tmp_path / "out", against_source=5)
    assert [f.what for f in verdict.faults] == [
        f"unit 00000: record {n} of a.jsonl is in the rows, but not in the source" for n in (4, 5)
    ]
    assert verdict.compared == 3


def test_the_seed_chooses_which_documents_are_compared(output: Path, run: Run) -> None:
    """One of 21 documents is wrong: whether ten at random show it depends on the seed alone."""
    forge(output, "00001-0000", lambda a: a.__setitem__((0, 1), a[0, 1] + 1))
    run(**OPTIONS)
    verdicts = [verify(output, against_source=10, seed=seed).good for seed in range(8)]
    assert set(verdicts) == {True, False}
    assert [verify(output, against_source=10, seed=seed).good for seed in range(8)] == verdicts


def test_documents_are_chosen_from_all_units_each_at_most_once() -> None:
    counts = [3, 0, 5, 2]
    everything = {0: [0, 1, 2], 2: [0, 1, 2, 3, 4], 3: [0, 1]}
    assert sample_documents(counts, 10, seed=0) == sample_documents(counts, 99, seed=5) == everything
    few = [sample_documents(counts, 3, seed) for seed in range(20)]
    assert all(sum(map(len, chosen.values())) == 3 for chosen in few)
    assert {(unit, place) for chosen in few for unit, places in chosen.items() for place in places} == {
        (unit, place) for unit, places in everything.items() for place in places
    }
    assert few == [sample_documents(counts, 3, seed) for seed in range(20)]
    assert sample_documents([], 3, seed=0) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"tail": "drop"},
        {"bos_token": "<|endoftext|>"},
        {"bos_token": "<|bos|>", "no_eos": True},
        {"bos_token": "<|bos|>"},
        {"special_tokens_in_text": "match"},
        {"special_tokens_in_text": "reject"},
    ],
)
def test_every_way_to_frame_documents_verifies_against_the_source(
    inputs: Path, tmp_path: Path, run: Run, options: dict[str, Any]
) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"<|endoftext|> {n}" if n % 5 == 0 else "y" * n for n in range(40))))
    (inputs / "b.txt").write_text("a text file")
    run(**options)
    verdict = verify(tmp_path / "out", against_source="all")
    assert verdict.good, verdict.faults
    assert verdict.compared > 20


def test_the_source_may_have_moved_but_not_changed(output: Path, job: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.move(job, moved)
    verdict = verify(output, against_source=3)
    assert verdict.faults == []
    assert (verdict.compared, verdict.uncompared, verdict.good) == (0, 3, False)
    assert verify(output, against_source=3, source=moved).good
    (moved / "c.jsonl").write_bytes(texts("other"))
    assert any("has changed since" in f.what for f in verify(output, against_source="all", source=moved).faults)


@pytest.mark.parametrize("folder", ["nowhere", "a file"])
def test_sources_that_are_not_there_are_no_problem_of_the_output(output: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / "a file").write_text("")
    verdict = verify(output, against_source="all", source=tmp_path / folder)
    assert verdict.faults == []
    assert verdict.absent == ["a.jsonl", "b.jsonl.gz", "c.jsonl"]
    assert verdict.source == str(tmp_path / folder)
    assert (verdict.compared, verdict.uncompared, verdict.documents) == (0, 21, 21)
    assert not verdict.good, "nobody may take this for a comparison"
    assert verify(output, source=tmp_path / folder).good


@pytest.mark.parametrize("options", [{}, {"tail": "drop"}])
@pytest.mark.parametrize("gone", ["a", "b", "c", "ab", "bc", "ac"])
def test_what_is_there_of_the_sources_is_compared_also_of_one_unit(
    inputs: Path, tmp_path: Path, run: Run, gone: str, options: dict[str, Any]
) -> None:
    for name in "abc":
        (inputs / f"{name}.jsonl").write_bytes(texts(*(f"text {n} of {name}" for n in range(5))))
    run(**options)
    assert verify(tmp_path / "out", against_source="all").units == 1
    for name in gone:
        (inputs / f"{name}.jsonl").unlink()
    verdict = verify(tmp_path / "out", against_source="all")
    assert verdict.faults == []
    assert verdict.good
    assert verdict.absent == [f"{name}.jsonl" for name in gone]
    assert verdict.compared + verdict.uncompared == verdict.documents
    assert 4 * len(gone) <= verdict.uncompared <= 5 * len(gone)
    some = [verify(tmp_path / "out", against_source=6, seed=seed) for seed in range(5)]
    assert all(v.compared + v.uncompared == 6 and v.faults == [] for v in some)
    assert any(v.uncompared for v in some)


def test_a_wrong_token_is_found_though_other_sources_are_not_there(output: Path, inputs: Path, run: Run) -> None:
    forge(output, "00001-0000", lambda a: a.__setitem__((0, 1), a[0, 1] + 1))
    run(**OPTIONS)
    (inputs / "c.jsonl").unlink()
    verdict = verify(output, against_source="all")
    (fault,) = verdict.faults
    assert "of a.jsonl differs from its source" in fault.what
    assert verdict.absent == ["c.jsonl"]


def test_a_source_that_cannot_be_read_is_a_problem(output: Path, inputs: Path) -> None:
    (inputs / "c.jsonl").unlink()
    (inputs / "c.jsonl").symlink_to("c.jsonl")
    (fault,) = verify(output, against_source="all").faults
    assert "c.jsonl cannot be read: Too many levels of symbolic links. Unit 0000" in fault.what


def test_every_changed_source_is_named_also_of_one_unit(inputs: Path, tmp_path: Path, run: Run) -> None:
    for name in "abc":
        (inputs / f"{name}.jsonl").write_bytes(texts(f"text of {name}"))
    run()
    for name in "ac":
        (inputs / f"{name}.jsonl").write_bytes(texts("other"))
    verdict = verify(tmp_path / "out", against_source="all")
    assert verdict.units == 1
    assert [Path(f.what.split()[2]).name for f in verdict.faults] == ["a.jsonl", "c.jsonl"]
    assert all("Unit 00000 is not compared with its source" in f.what for f in verdict.faults)


def test_a_file_that_is_missing_from_the_output_is_not_asked_of_the_source(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    run()
    verdict = verify(tmp_path / "out", against_source="all")
    assert [f.what.startswith("the input gone.jsonl is missing") for f in verdict.faults] == [True]
    assert verdict.compared == 1


def test_a_source_without_the_tokenizer_cannot_be_compared(output: Path) -> None:
    (output / "tokenizer.json").write_text("{}")
    faults = [f.what for f in verify(output, against_source=3).faults]
    assert any(what.startswith("the source cannot be compared: ") for what in faults), faults
