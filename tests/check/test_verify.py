"""`tokenmill verify`: whatever is done to an output is found, named, and can be mended by what is advised."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from tests.conftest import Run, jsonl, texts, tree
from tokenmill.check.source import choose
from tokenmill.check.verify import ALL, verify
from tokenmill.cli import main
from tokenmill.errors import ConfigError, InputError
from tokenmill.read.sniff import fingerprint_of
from tokenmill.records import InputFile

OPTIONS: dict[str, Any] = {"sequences_per_chunk": 4, "id_field": "id", "engine": "streaming"}


@pytest.fixture
def job(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four units, several chunks each, bad records, a document over three chunks, ids."""
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 500)
    monkeypatch.setattr("tokenmill.plan.cut.FILE_COST_BYTES", 400)
    records = [{"id": n, "text": f"document {n} " + "x" * (n % 7)} for n in range(20)]
    (inputs / "a.jsonl").write_bytes(jsonl(*records[:8]) + b"broken\n" + jsonl({"id": 99, "text": "long " * 20}))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(*records[8:15], {"text": ""})))
    (inputs / "c.jsonl").write_bytes(jsonl(*records[15:]))
    return inputs


@pytest.fixture
def output(job: Path, tmp_path: Path, run: Run) -> Path:
    assert job.exists()
    run(**OPTIONS)
    return tmp_path / "out"


def test_a_whole_output_is_good(output: Path) -> None:
    verdict = verify(output, against_source=ALL)
    assert verdict.good, verdict.faults
    assert verdict.units == 4
    assert verdict.chunks > 6
    assert verdict.documents == 21 == verdict.compared
    assert verify(output, against_source=5, seed=1).compared == 5
    assert verify(output, against_source="all").compared == verify(output, against_source=ALL).compared > 5
    with pytest.raises(ConfigError, match="a number of documents or all"):
        verify(output, against_source="some")  # type: ignore[arg-type]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def swap(one: Path, other: Path) -> None:
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def edit_text(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


Damage = Callable[[Path], object]
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
        "chunks do not add up",
    ),
    "white space in a receipt": (
        lambda o: edit_text(o / "units/00001.json", '"unit"', ' "unit"'),
        "is not as it was written",
    ),
    "an edited receipt": (
        lambda o: edit(o / "units/00001.json", lambda r: r["ledger"].update(tokens=r["ledger"]["tokens"] + 8, rows=0)),
        "do not add up",
    ),
}


@pytest.mark.parametrize("name", REDO)
def test_damage_to_a_unit_is_found_and_mended_by_doing_it_again(output: Path, run: Run, name: str) -> None:
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


BOOKS: dict[str, tuple[Damage, str]] = {
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
    "an edited list of what was left out": (
        lambda o: edit_text(o / "manifest.json", "not JSON Lines", "not JSON lines"),
        "its checksum is wrong",
    ),
    "a manifest that is none": (lambda o: (o / "manifest.json").write_text("{"), "manifest.json cannot be read"),
    "a missing manifest": (lambda o: (o / "manifest.json").unlink(), "manifest.json is missing"),
    "an edited reject": (lambda o: edit_text(o / "rejects.jsonl", '"line": 9', '"line": 8'), "rejects.jsonl, line 1"),
    "a removed reject": (lambda o: (o / "rejects.jsonl").write_text(""), "rejects.jsonl, line 1"),
    "missing rejects": (lambda o: (o / "rejects.jsonl").unlink(), "rejects.jsonl cannot be read"),
    "another tokenizer": (lambda o: (o / "tokenizer.json").write_text("{}"), "is not the tokenizer of the job"),
    "no tokenizer": (lambda o: (o / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
}


@pytest.mark.parametrize("name", BOOKS)
def test_damage_to_the_books_is_found_and_mended_by_running_again(
    job: Path, tmp_path: Path, run: Run, name: str
) -> None:
    (job / "notes.md").write_text("# no input")
    run(**OPTIONS)
    output = tmp_path / "out"
    before = tree(output)
    damage, said = BOOKS[name]
    damage(output)
    verdict = verify(output)
    assert any(said in f.what for f in verdict.faults), verdict.faults
    (output / "manifest.json").unlink(missing_ok=True)  # as the messages say
    run(**OPTIONS)
    assert tree(output) == before
    assert verify(output).good


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "chunks/00001-0099.npy",
        "chunks/x",
        "chunks/00001-000.npy",
        "units/00007.json",
        "units/1.x",
        "tmp/",
    ],
)
def test_what_is_not_of_the_job_is_found(output: Path, name: str) -> None:
    path = output / name
    if name.endswith("/"):
        path.mkdir()
    else:
        path.write_text("x")
    (fault,) = verify(output).faults
    assert "is not of this job: remove it" in fault.what
    assert name.strip("/") in fault.what


def forge(output: Path, chunk: str, change: Callable[[Any], None], suffix: str = ".npy") -> None:
    """Change an array and make its checksum right again, as a defect of the writer would."""
    path = output / "chunks" / f"{chunk}{suffix}"
    array = np.load(path)
    change(array)
    np.save(path, array)
    receipt = output / "units" / f"{chunk[:5]}.json"
    key = "xxh3" if suffix == ".npy" else "docs_xxh3"

    def put(data: dict[str, Any]) -> None:
        for entry in data["chunks"]:
            if entry["name"] == chunk:
                entry[key] = xxhash.xxh3_128_hexdigest(array.tobytes())

    edit(receipt, put)
    (output / "manifest.json").unlink()


FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "an id beyond the vocabulary": (
        lambda o: forge(o, "00001-0000", lambda a: a.__setitem__((0, 1), 300)),
        "it holds the id 300, but the vocabulary ends at 258",
    ),
    "an EOS inside a document": (
        lambda o: forge(o, "00001-0000", lambda a: a.__setitem__((0, 1), 256)),
        "EOS stands",
    ),
    "a document without EOS": (
        lambda o: forge(o, "00001-0000", lambda a: a.__setitem__(a == 256, 65)),
        "does not end with EOS",
    ),
    "something behind the last token": (
        lambda o: forge(o, last_chunk(o), lambda a: a.__setitem__((-1, -1), 65)),
        "not padding",
    ),
    "ends that do not increase": (
        lambda o: forge(o, "00001-0000", lambda a: a["end"].__setitem__(slice(None), 5), ".docs.npy"),
        "do not increase",
    ),
    "a record that is not there": (
        lambda o: forge(o, "00001-0000", lambda a: a["record"].__setitem__(-1, 1000), ".docs.npy"),
        "is not of this unit",
    ),
    "a record twice": (
        lambda o: forge(o, "00001-0000", lambda a: a["record"].__setitem__(slice(None), 0), ".docs.npy"),
        "comes twice",
    ),
}


def last_chunk(output: Path) -> str:
    return max(p.name.split(".")[0] for p in (output / "chunks").glob("00001-*.docs.npy"))


@pytest.mark.parametrize("name", FORGED)
def test_rows_that_no_tokenizer_wrote_are_found_though_their_checksums_are_right(
    output: Path, run: Run, name: str
) -> None:
    damage, said = FORGED[name]
    damage(output)
    run(**OPTIONS)  # makes the manifest anew from the receipts
    verdict = verify(output)
    assert any(said in f.what for f in verdict.faults), verdict.faults
    assert verdict.units_to_redo() == [1]


@pytest.fixture
def framed(inputs: Path, tmp_path: Path, run: Run) -> Path:
    """Chunks of 8 tokens: `Bab| Bcd|`, `Be|B fghi`, `j|pp`: a document begins with a chunk, one goes on in the next."""
    (inputs / "a.jsonl").write_bytes(texts("ab", "cd", "e", "fghij"))
    run(**FRAMED)
    return tmp_path / "out"


FRAMED: dict[str, Any] = {"seq_len": 4, "sequences_per_chunk": 2, "bos_token": "<|bos|>"}


@pytest.mark.parametrize("block_bytes", [2, 6, 1 << 20])
@pytest.mark.parametrize(
    ("chunk", "token"),
    [("00000-0000", 0), ("00000-0000", 4), ("00000-0001", 0), ("00000-0001", 3)],
    ids=["first of the unit", "inside a chunk", "first of a chunk", "goes on in the next chunk"],
)
def test_a_document_without_bos_is_found_wherever_it_begins(
    framed: Path, run: Run, monkeypatch: pytest.MonkeyPatch, chunk: str, token: int, block_bytes: int
) -> None:
    monkeypatch.setattr("tokenmill.check.chunks.BLOCK_BYTES", block_bytes)
    assert verify(framed).good
    forge(framed, chunk, lambda a: a.reshape(-1).__setitem__(token, ord("x")))
    run(**FRAMED)
    (fault,) = verify(framed).faults
    assert fault.what == f"chunk {chunk}: the document that begins at token {token} does not begin with BOS"
    assert fault.unit == 0


@pytest.mark.parametrize("block_bytes", [2, 6, 1 << 20])
@pytest.mark.parametrize(
    ("chunk", "token"), [("00000-0000", 3), ("00000-0000", 7), ("00000-0001", 2), ("00000-0002", 1)]
)
def test_a_document_without_eos_is_found_wherever_it_ends(
    framed: Path, run: Run, monkeypatch: pytest.MonkeyPatch, chunk: str, token: int, block_bytes: int
) -> None:
    monkeypatch.setattr("tokenmill.check.chunks.BLOCK_BYTES", block_bytes)
    forge(framed, chunk, lambda a: a.reshape(-1).__setitem__(token, ord("x")))
    run(**FRAMED)
    (fault,) = verify(framed).faults
    assert fault.what == f"chunk {chunk}: the document that ends at token {token + 1} does not end with EOS"


def test_a_damaged_chunk_raises_no_alarm_about_the_next(framed: Path) -> None:
    """Whether a document begins with it can then not be told."""
    flip(framed / "chunks/00000-0001.docs.npy", -20)
    (fault,) = verify(framed).faults
    assert fault.what.startswith("chunk 00000-0001: the checksum of the sidecar")


def test_a_wrong_token_is_found_only_by_comparing_with_the_source(output: Path, run: Run) -> None:
    forge(output, "00001-0000", lambda a: a.__setitem__((0, 1), a[0, 1] + 1))
    run(**OPTIONS)
    assert verify(output).good
    verdict = verify(output, against_source=ALL)
    (fault,) = verdict.faults
    assert "record 0 (from 0, of its part) of a.jsonl differs from its source from token 1 on" in fault.what
    assert fault.unit == 1


def restate_source(output: Path, path: Path, data: bytes) -> None:
    """Put other records into the source and have the plan say that they were there from the beginning."""
    before = InputFile.from_json(json.loads((output / "plan.jsonl").read_text())["files"][0])
    path.write_bytes(data)
    with path.open("rb") as file:
        fingerprint = fingerprint_of(file, len(data))
    edit_text(output / "plan.jsonl", before.fingerprint, fingerprint)
    edit_text(output / "plan.jsonl", f'"size": {before.size}', f'"size": {len(data)}')
    (output / "manifest.json").unlink()


RECORDS = [f"record {n}" for n in range(5)]


@pytest.mark.parametrize(
    ("options", "now", "said"),
    [
        ({}, RECORDS, None),
        ({}, [*RECORDS, "more"], "1 documents of the source are not in the rows"),
        ({}, [*RECORDS, *["more"] * 70], "70 documents of the source are not in the rows"),
        ({}, RECORDS[:-1], "the rows hold documents that the source does not"),
        ({}, [], "the rows hold documents that the source does not"),
        ({}, ["", *RECORDS[1:]], "record 1 (from 0, of its part) of a.jsonl is not where it should be"),
        # The last document is left over, and counted as dropped.
        ({"tail": "drop", "seq_len": 12}, RECORDS, None),
        ({"tail": "drop", "seq_len": 12}, [*RECORDS, "more"], "1 documents of the source are not in the rows"),
        ({"tail": "drop", "seq_len": 12}, RECORDS[:-1], "1 documents that were dropped are not in the source"),
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
        f"unit 00000: record {n} (from 0, of its part) of a.jsonl is in the rows, but not in the source" for n in (3, 4)
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
    assert choose(counts, 10, seed=0) == choose(counts, 99, seed=5) == everything
    few = [choose(counts, 3, seed) for seed in range(20)]
    assert all(sum(map(len, chosen.values())) == 3 for chosen in few)
    assert {(unit, place) for chosen in few for unit, places in chosen.items() for place in places} == {
        (unit, place) for unit, places in everything.items() for place in places
    }
    assert few == [choose(counts, 3, seed) for seed in range(20)]
    assert choose([], 3, seed=0) == {}


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
    verdict = verify(tmp_path / "out", against_source=ALL)
    assert verdict.good, verdict.faults
    assert verdict.compared > 20


def test_the_source_may_have_moved_but_not_changed(output: Path, job: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.move(job, moved)
    verdict = verify(output, against_source=3)
    assert all("Name the folder of the inputs with --source" in f.what for f in verdict.faults)
    assert not verdict.good
    assert verify(output, against_source=3, source=moved).good
    (moved / "c.jsonl").write_bytes(texts("other"))
    assert any("has changed since" in f.what for f in verify(output, against_source=ALL, source=moved).faults)


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


def test_an_input_that_is_missing_from_the_output_is_a_fault(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    run()
    (fault,) = verify(tmp_path / "out").faults
    assert "the input gone.jsonl is missing from the output" in fault.what


def test_a_folder_that_is_no_output_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no output of tokenmill"):
        verify(tmp_path)
    assert main(["verify", str(tmp_path)]) == 2


def test_an_unfinished_job_is_one_fault_with_its_way_out(output: Path) -> None:
    (output / "manifest.json").unlink()
    for n in (1, 2):
        (output / "units" / f"0000{n}.json").unlink()
    (output / "tmp").mkdir()
    (fault,) = verify(output).faults
    assert "not complete: 2 of 4 units are still to be done. Run the same command again" in fault.what


@pytest.mark.parametrize(
    "damage",
    [
        lambda o: edit_text(o / "job.json", '"eos_id"', '"eos_ib"'),
        lambda o: edit_text(o / "job.json", '"uint16"', '"uint6"'),
        lambda o: edit_text(o / "job.json", '"format_version": 1', '"format_version": "\\u001b[2J"'),
        lambda o: edit_text(o / "plan.jsonl", '"unit": 1', '"unit": 7'),
    ],
)
def test_a_damaged_job_is_an_error_that_names_it(
    output: Path, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(output)
    assert main(["verify", str(output)]) == 1
    said = capsys.readouterr()
    assert "is damaged" in said.err
    assert "Start anew with --overwrite" in said.err
    assert "\x1b" not in said.err + said.out


def test_missing_folders_are_faults(output: Path) -> None:
    shutil.rmtree(output / "chunks")
    verdict = verify(output)
    assert any("chunks/ cannot be listed" in f.what for f in verdict.faults)
    assert verdict.units_to_redo() == [0, 1, 2, 3]


def test_the_command_tells_its_verdict(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(output), "--against-source", "all"]) == 0
    assert "verified: 4 units" in capsys.readouterr().out
    flip(output / "chunks/00001-0000.npy", -1)
    assert main(["verify", str(output)]) == 1
    said = capsys.readouterr().out
    assert "NOT GOOD: 1 fault(s)" in said
    assert f"tokenmill run INPUT... {output} --redo 1" in said
    assert main(["verify", str(output), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["good"] is False
    assert found["faults"][0]["unit"] == 1
    assert main(["verify", str(output), "--against-source", "some"]) == 2


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
