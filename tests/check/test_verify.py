"""verify: whatever is done to an output is found, named, and fixed by what is advised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.check.conftest import OPTIONS
from tests.conftest import Run, tree
from tests.support.damage import Damage, edit, edit_text, flip, swap
from tokenmill.check.verify import verify
from tokenmill.errors import ConfigError, InputError, OutputError


def test_a_whole_output_is_good(output: Path) -> None:
    verdict = verify(output, against_source="all")
    assert verdict.good, verdict.faults
    assert verdict.units == 4
    assert verdict.chunks > 6
    assert verdict.documents == 21 == verdict.compared
    assert verify(output).compared == 0
    assert verify(output, against_source=5, seed=1).compared == 5


@pytest.mark.parametrize("count", ["some", -1])
def test_a_number_of_documents_that_is_none_is_refused(output: Path, count: object) -> None:
    with pytest.raises(ConfigError, match="a number of documents or all"):
        verify(output, against_source=count)  # type: ignore[arg-type]


def test_nothing_is_written(output: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in output.rglob("*")}
    verify(output, against_source="all")
    assert {p: p.stat().st_mtime_ns for p in output.rglob("*")} == before


def _progress(output: Path, **options: Any) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    verify(output, progress=lambda done, total: told.append((done, total)), **options)
    return told


@pytest.mark.parametrize("against_source", [0, 1, "all"])
def test_progress_is_told_up_to_the_end(output: Path, against_source: int) -> None:
    done, totals = zip(*_progress(output, against_source=against_source), strict=True)
    assert len(set(totals)) == 1
    assert list(done) == sorted(done)
    assert done[-1] == totals[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda o: (o / "chunks/00001-0001.npy").unlink(),
        lambda o: flip(o / "chunks/00001-0000.npy", 60),
        lambda o: flip(o / "chunks/00001-0000.docs.npy", -20),
        lambda o: (o / "tokenizer.json").write_text("{}"),
        lambda o: [receipt.unlink() for receipt in (o / "units").glob("*.json")],
    ],
)
def test_progress_ends_with_everything_though_something_could_not_be_looked_at(output: Path, damage: Damage) -> None:
    damage(output)
    told = _progress(output, against_source="all")
    assert all(done <= total for done, total in told)
    assert told[-1][0] == told[-1][1]


REDO: dict[str, tuple[Damage, str]] = {
    "a flipped byte in the rows": (lambda o: flip(o / "chunks/00001-0000.npy", -1), "the checksum of the rows"),
    "a flipped byte in a header": (lambda o: flip(o / "chunks/00001-0000.npy", 60), "the header of .npy"),
    "a flipped byte in a sidecar": (lambda o: flip(o / "chunks/00001-0000.docs.npy", -20), "checksum of the sidecar"),
    "a flipped byte in the ids": (lambda o: flip(o / "chunks/00001-0000.ids.jsonl", 0), "checksum of the list of ids"),
    "a missing chunk": (lambda o: (o / "chunks/00001-0001.npy").unlink(), "00001-0001.npy is missing"),
    "a missing sidecar": (lambda o: (o / "chunks/00001-0000.docs.npy").unlink(), "docs.npy is missing"),
    "swapped chunks": (
        lambda o: swap(o / "chunks/00001-0000.npy", o / "chunks/00001-0001.npy"),
        "chunk 00001-0000: the checksum",
    ),
    "a truncated chunk": (
        lambda o: (o / "chunks/00001-0000.npy").write_bytes((o / "chunks/00001-0000.npy").read_bytes()[:-2]),
        "bytes instead of",
    ),
    "a missing receipt": (lambda o: (o / "units/00001.json").unlink(), "unit 00001 has no receipt"),
    "a damaged receipt": (lambda o: (o / "units/00001.json").write_text("{"), "units/00001.json is damaged"),
    "an edited list of rejects": (
        lambda o: edit_text(o / "units/00001.rejects.jsonl", '"part"', '"pxrt"'),
        "rejects.jsonl is not as it was written",
    ),
    "a flipped byte in the rejects": (
        lambda o: flip(o / "units/00001.rejects.jsonl", 30),
        "rejects.jsonl is not as it was written",
    ),
    "a reject too few": (lambda o: (o / "units/00001.rejects.jsonl").write_text(""), "has 0 bytes, its receipt says"),
    "a receipt of other types": (lambda o: edit(o / "units/00001.json", lambda r: r.update(lines=None)), "is damaged"),
    "a receipt with another chunk": (
        lambda o: edit(o / "units/00001.json", lambda r: r["chunks"][0].update(name="\x1b[2J../x")),
        "it names chunks that are not the unit's",
    ),
    "white space in a receipt": (
        lambda o: edit_text(o / "units/00001.json", '"unit"', ' "unit"'),
        "is not as it was written",
    ),
    "an edited receipt": (
        lambda o: edit(o / "units/00001.json", lambda r: r["ledger"].update(tokens=r["ledger"]["tokens"] + 8, rows=0)),
        "its ledger does not add up",
    ),
}


@pytest.mark.parametrize("name", REDO)
def test_damage_to_a_unit_is_found_and_fixed_by_doing_it_again(output: Path, run: Run, name: str) -> None:
    before = tree(output)
    damage, said = REDO[name]
    damage(output)
    verdict = verify(output)
    assert any(said in f.what for f in verdict.faults), verdict.faults
    assert verdict.units_to_redo() == [1]
    if any("units/00001.json is damaged" in f.what for f in verdict.faults):
        (output / "units/00001.json").unlink()  # as its message says
    run(redo=verdict.units_to_redo(), **OPTIONS)
    assert tree(output) == before
    assert verify(output).good


METADATA: dict[str, tuple[Damage, str]] = {
    "an edited number in the manifest": (
        lambda o: edit_text(o / "manifest.json", '"documents": 21', '"documents": 22'),
        "manifest.json, line",
    ),
    "an edited checksum in the manifest": (
        lambda o: edit_text(o / "manifest.json", '"xxh3": "', '"xxh3": "0'),
        "manifest.json",
    ),
    "a removed line of the manifest": (
        lambda o: edit_text(o / "manifest.json", (o / "manifest.json").read_text().splitlines(keepends=True)[-9], ""),
        "manifest.json",
    ),
    "an edited list of what was skipped": (
        lambda o: edit_text(o / "manifest.json", "not JSON Lines", "not JSON lines"),
        "its checksum is wrong",
    ),
    "a manifest that is not one": (lambda o: (o / "manifest.json").write_text("{"), "manifest.json cannot be read"),
    "a missing manifest": (lambda o: (o / "manifest.json").unlink(), "manifest.json is missing"),
    "an edited reject": (lambda o: edit_text(o / "rejects.jsonl", '"line": 9', '"line": 8'), "rejects.jsonl, line 1"),
    "a removed reject": (lambda o: (o / "rejects.jsonl").write_text(""), "rejects.jsonl, line 1"),
    "missing rejects": (lambda o: (o / "rejects.jsonl").unlink(), "rejects.jsonl cannot be read"),
    "another tokenizer": (lambda o: (o / "tokenizer.json").write_text("{}"), "is not the tokenizer of the job"),
    "no tokenizer": (lambda o: (o / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
}


@pytest.mark.parametrize("name", METADATA)
def test_damage_to_the_metadata_is_found_and_fixed_by_running_again(
    job: Path, tmp_path: Path, run: Run, name: str
) -> None:
    (job / "notes.md").write_text("# not an input")
    run(**OPTIONS)
    output = tmp_path / "out"
    before = tree(output)
    damage, said = METADATA[name]
    damage(output)
    verdict = verify(output)
    assert any(said in f.what for f in verdict.faults), verdict.faults
    (output / "manifest.json").unlink(missing_ok=True)  # as the messages say
    run(**OPTIONS)
    assert tree(output) == before
    assert verify(output).good


def test_redo_does_only_what_it_is_told(output: Path, run: Run) -> None:
    times = {p: p.stat().st_mtime_ns for p in (output / "chunks").iterdir()}
    before = tree(output)
    run(redo="1", **OPTIONS)
    again = {p.name[:5] for p, t in times.items() if p.stat().st_mtime_ns != t}
    assert again == {"00001"}
    assert tree(output) == before
    with pytest.raises(ValueError, match="there is no unit 7"):
        run(redo=(7,), **OPTIONS)
    assert tree(output) == before


# what cannot be verified


def test_a_folder_that_is_not_an_output_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a tokenmill output"):
        verify(tmp_path)
    with pytest.raises(InputError, match="there is no directory"):
        verify(tmp_path / "nowhere")


def test_an_unfinished_job_is_one_fault_with_its_way_out(output: Path) -> None:
    (output / "manifest.json").unlink()
    for n in (1, 2):
        (output / "units" / f"0000{n}.json").unlink()
    (output / "tmp").mkdir()
    (fault,) = verify(output).faults
    assert "not complete: 2 of 4 units are not done yet. Run the same command again" in fault.what


@pytest.mark.parametrize(
    "damage",
    [
        lambda o: edit_text(o / "job.json", '"eos_id"', '"eos_ib"'),
        lambda o: edit_text(o / "job.json", '"uint16"', '"uint6"'),
        lambda o: edit_text(o / "job.json", '"format_version": 1', '"format_version":  1'),
        lambda o: edit_text(o / "job.json", '"format_version": 1', '"format_version": null'),
        lambda o: edit_text(o / "plan.jsonl", '"unit": 1', '"unit": 7'),
        lambda o: (o / "plan.jsonl").write_text(""),
    ],
    ids=["another key", "another type", "white space", "no version", "another unit", "no unit"],
)
def test_a_damaged_job_is_an_error_that_names_it(output: Path, damage: Damage) -> None:
    damage(output)
    with pytest.raises(OutputError, match=r"(job.json|plan.jsonl) is damaged .*\. Start over with --overwrite"):
        verify(output)
