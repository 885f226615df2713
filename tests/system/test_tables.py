"""Whole jobs over tables: the same bytes after any stop, and nothing that is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tests.conftest import Run, SmallUnits, documents, rejects, tree
from tests.support.sources import arrow_bytes, parquet_file
from tests.support.stops import stop_at_checkpoint, stop_at_units
from tokenmill.check.verify import verify
from tokenmill.errors import Interrupted

VALUES = [f"document {n} " + "x" * (n % 13) for n in range(400)]


def batches(values: list[Any], rows: int = 20) -> list[dict[str, Any]]:
    cuts = range(0, len(values), rows)
    return [{"text": values[i : i + rows], "id": list(range(i, i + rows))} for i in cuts]


def save_to_disk(folder: Path) -> None:
    """As Hugging Face datasets does it: streams, and two notes that name them."""
    folder.mkdir()
    shards = [f"data-0000{n}-of-00002.arrow" for n in range(2)]
    for name, values in zip(shards, (VALUES[:200], VALUES[200:]), strict=True):
        (folder / name).write_bytes(arrow_bytes(batches(values)))
    state = {"_data_files": [{"filename": s} for s in shards], "_fingerprint": "0123456789abcdef", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"text": {"dtype": "string"}}}, indent=2))


def test_a_saved_dataset_is_read_as_it_lies(inputs: Path, run: Run, tmp_path: Path) -> None:
    save_to_disk(inputs / "train")
    result = run()
    assert documents(tmp_path / "out") == [v.encode() for v in VALUES]
    assert (result.ledger.records, result.ledger.rejected, result.files) == (400, 0, 2)
    found = list(tokenmill.open(tmp_path / "out").documents())
    assert (found[200].file, found[200].record) == ("train/data-00001-of-00002.arrow", 1)
    assert verify(tmp_path / "out", against_source="all").good


def test_a_job_that_was_stopped_gives_the_same_bytes_whichever_engine_goes_on(
    inputs: Path, run: Run, tmp_path: Path, small_units: SmallUnits
) -> None:
    small_units(3000, file_cost=0)
    values: list[Any] = [*VALUES[:150], None, *VALUES[151:]]
    for name, kind, compression in (("a", "file", "lz4"), ("b", "stream", None)):
        data = arrow_bytes(batches(values), kind, compression)
        (inputs / f"{name}.arrow").write_bytes(data)
        (inputs / f"{name}-cut.arrow").write_bytes(data[: len(data) * 2 // 3])
    options: dict[str, Any] = {"id_field": "id", "sequences_per_chunk": 40}
    run(output=tmp_path / "fresh", engine="streaming", **options)
    wanted = tree(tmp_path / "fresh")
    assert len([name for name in wanted if name.startswith("units/")]) > 2
    with pytest.raises(Interrupted):
        run(stop=stop_at_checkpoint(tmp_path / "out"), engine="streaming", **options)
    with pytest.raises(Interrupted):
        run(stop=stop_at_units(tmp_path / "out", 2), engine="extreme", num_workers=2, **options)
    run(engine="enhanced", **options)
    assert tree(tmp_path / "out") == wanted
    listed = rejects(tmp_path / "out")
    assert [(r["file"], r["row"], r["offset"]) for r in listed if r["reason"] == "text_not_a_string"] == [
        (name, 151, None) for name in ("a-cut.arrow", "a.arrow", "b-cut.arrow", "b.arrow")
    ]
    assert [r["file"] for r in listed if r["reason"] == "truncated_file"] == ["a-cut.arrow", "b-cut.arrow"]
    verdict = verify(tmp_path / "out", against_source="all")
    assert [f.what.split(" is damaged")[0] for f in verdict.faults] == [
        "the input a-cut.arrow",
        "the input b-cut.arrow",
    ]


def test_a_file_of_many_record_batches_becomes_many_units(
    inputs: Path, run: Run, tmp_path: Path, small_units: SmallUnits
) -> None:
    small_units(2000, file_cost=0)
    (inputs / "a.arrow").write_bytes(arrow_bytes(batches(VALUES), "file"))
    run()
    assert documents(tmp_path / "out") == [v.encode() for v in VALUES]
    units = json.loads((tmp_path / "out" / "manifest.json").read_text())["units"]
    parts = [p for unit in units for p in unit["parts"]]
    assert len(parts) > 5
    assert [p["start"] for p in parts[1:]] == [p["end"] for p in parts[:-1]]
    assert [p["first_record"] for p in parts] == [1 + 20 * p["start"] for p in parts]


def test_parquet_of_spark_with_a_wrong_checksum_is_not_read_as_other_text(
    inputs: Path, run: Run, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    data = parquet_file(["first", "second"], row_group_size=1, write_page_checksum=True, **options)
    (inputs / "a.parquet").write_bytes(data.replace(b"second", b"sedond"))
    result = run()
    assert documents(tmp_path / "out") == [b"first"]
    assert [(name, d.reason, d.record, d.lost_rows) for name, d in result.damaged.items()] == [
        ("a.parquet", "corrupt_file", 2, 1)
    ]
