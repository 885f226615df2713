"""Job, plan, receipts, manifest and rejects are compared with each other; and nothing else lies beside them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Run, texts
from tests.support.damage import edit, edit_text
from tokenmill.check.verify import verify

LEDGER = {
    "rows": {"rows": 1, "padding": 8},
    "tokens": {"tokens": -1, "padding": 1},
    "documents": {"documents": 1, "records": 1},
    "rejects": {"rejected": 1, "records": 1},
}


@pytest.mark.parametrize("what", LEDGER)
def test_a_ledger_that_adds_up_by_itself_must_also_fit_the_chunks(output: Path, what: str) -> None:
    def change(receipt: dict[str, dict[str, int]]) -> None:
        for name, more in LEDGER[what].items():
            receipt["ledger"][name] += more

    edit(output / "units" / "00001.json", change)
    faults = [f for f in verify(output).faults if f"receipt of unit 00001: {what} do not add up" in f.what]
    assert [f.unit for f in faults] == [1]


def test_a_receipt_of_another_unit_is_found(output: Path) -> None:
    shutil.copy(output / "units" / "00000.json", output / "units" / "00001.json")
    assert any("00001.json is damaged (ValueError('it is of another unit'))" in f.what for f in verify(output).faults)


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "chunks/00001-0099.npy",
        "chunks/x",
        "chunks/00001-000.npy",
        "units/00007.json",
        "units/00000.rejects.jsonl",
        "units/1.x",
        "tmp/",
    ],
)
def test_what_is_not_of_the_job_is_found(output: Path, name: str) -> None:
    path = output / name
    assert not path.exists()
    if name.endswith("/"):
        path.mkdir()
    else:
        path.write_bytes(b"" if "rejects" in name else b"x")
    (fault,) = verify(output).faults
    assert "does not belong to this job: remove it" in fault.what
    assert name.strip("/") in fault.what


def test_missing_folders_are_faults(output: Path) -> None:
    shutil.rmtree(output / "chunks")
    verdict = verify(output)
    assert any("chunks/ cannot be listed" in f.what for f in verdict.faults)
    assert verdict.units_to_redo() == [0, 1, 2, 3]


def test_an_input_that_is_missing_from_the_output_is_a_fault(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    run()
    (fault,) = verify(tmp_path / "out").faults
    assert "the input gone.jsonl is missing from the output" in fault.what


def test_a_line_that_differs_is_shown_without_its_comma_and_with_its_way_out(output: Path) -> None:
    edit_text(output / "manifest.json", '"documents": 21,', '"documents": 22,')
    said = next(f.what for f in verify(output).faults if "line" in f.what)
    assert 'it says "documents": 22; by the receipts it should say "documents": 21. Remove manifest.json' in said
    assert said.endswith("and run the same command again: it is made again")
