"""Rows taken apart into documents, and documents found by their file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.conftest import EOS, Run, SmallUnits, texts
from tokenmill.errors import ConfigError
from tokenmill.inspect.show import Viewer


def test_a_row_is_taken_apart_into_documents(output: Path) -> None:
    viewer = Viewer(output)
    first = viewer.row(0)
    assert first.token_ids == [*b"abc", EOS, *b"defg"]
    assert [(s.start, s.end, s.file, s.record, s.begins, s.ends) for s in first.spans] == [
        (0, 4, "part-001.jsonl", 1, True, True),
        (4, 8, "part-001.jsonl", 3, True, False),
    ]
    middle = viewer.row(2)  # in another chunk than both ends of its document
    assert [(s.file, s.record, s.begins, s.ends) for s in middle.spans] == [("part-001.jsonl", 3, False, False)]
    last = viewer.row(len(viewer.rows) - 1)
    assert last.spans[-1].file is None
    assert sum(s.end - s.start for s in last.spans) == 8


def spans(viewer: Viewer, row: int) -> list[tuple[int, int, int | None, bool, bool]]:
    return [(s.start, s.end, s.record, s.begins, s.ends) for s in viewer.row(row).spans]


def test_a_document_that_ends_with_a_row_or_a_chunk_ends_there_and_the_next_begins_behind(edges: Path) -> None:
    viewer = Viewer(edges)
    assert len(viewer.rows) == 8
    assert spans(viewer, 0) == [(0, 4, 1, True, True)]
    assert spans(viewer, 1) == [(0, 4, 2, True, False)]
    for row in (2, 3, 4):  # a chunk in which no document ends, and half of the next
        assert spans(viewer, row) == [(0, 4, 2, False, False)]
    assert spans(viewer, 5) == [(0, 4, 2, False, True)]
    assert spans(viewer, 6) == [(0, 2, 3, True, True), (2, 4, 4, True, False)]
    assert spans(viewer, 7) == [(0, 2, 4, False, True), (2, 4, 5, True, True)]
    assert {s.file for n in range(8) for s in viewer.row(n).spans} == {"a.jsonl"}
    for row in (-1, 8):
        with pytest.raises(ConfigError, match=f"there is no row {row}: the output has 8 rows, from 0 on"):
            viewer.row(row)


def test_the_rows_of_a_document_are_those_it_lies_in_and_no_more(edges: Path) -> None:
    viewer = Viewer(edges)
    assert viewer.find("a.jsonl", 1).rows == [0]
    assert viewer.find("a.jsonl", 2).rows == [1, 2, 3, 4, 5]
    assert viewer.find("a.jsonl", 3).rows == [6]
    assert viewer.find("a.jsonl", 4).rows == [6, 7]
    assert viewer.find("a.jsonl", 5).rows == [7]
    with pytest.raises(ConfigError, match=r"^record 6 of a\.jsonl is in no row: it is empty or not there$"):
        viewer.find("a.jsonl", 6)
    with pytest.raises(ConfigError, match="records count from 1"):
        viewer.find("a.jsonl", 0)


def test_a_document_at_the_start_of_a_unit_did_not_begin_in_the_unit_before(
    inputs: Path, tmp_path: Path, run: Run, small_units: SmallUnits
) -> None:
    """The first unit ends without the end of its last document, which was dropped."""
    small_units(10, file_cost=100)
    (inputs / "a.jsonl.gz").write_bytes(gzip.compress(texts("aaaaaa")))
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts("bbb", "bbb")))
    run(seq_len=4, tail="drop")
    viewer = Viewer(tmp_path / "out")
    assert len(viewer.rows.manifest["units"]) == 2
    assert len(viewer.rows) == 3
    (dropped,) = viewer.row(0).spans
    assert (dropped.file, dropped.record) == ("(a document whose end was dropped)", None)
    assert (dropped.begins, dropped.ends) == (True, False)
    assert spans(viewer, 1) == [(0, 4, 1, True, True)]
    assert viewer.find("b.jsonl", 1).rows == [1]
    assert viewer.find("b.jsonl", 2).rows == [2]
    with pytest.raises(ConfigError, match=r"it is empty or not there or its end was dropped \(--tail drop\)$"):
        viewer.find("a.jsonl", 1)


def test_a_document_is_found_by_file_and_record(output: Path) -> None:
    viewer = Viewer(output)
    assert viewer.find("part-001", 1).rows == [0]
    for typed in ("corpus/part-001.jsonl", "/mnt/corpus/part-001.jsonl", "./part-001.jsonl"):
        assert viewer.find(typed, 1).rows == [0]
    assert viewer.find("part-001.jsonl", 3).rows == [0, 1, 2, 3]
    assert viewer.find("002", 2).rows == [3, 4]
    for file, record, said in (
        ("part", 1, "2 inputs have 'part' in their name"),
        ("absent", 1, r"no input has 'absent' in its name\. The inputs: part-001\.jsonl, part-002\.jsonl$"),
        ("part-001", 2, "is in no row: it is empty"),
        ("part-002", 1, r"^line 1 of part-002\.jsonl was rejected: broken_json "),
    ):
        with pytest.raises(ConfigError, match=said):
            viewer.find(file, record)


def test_a_document_is_known_among_the_others_of_its_rows(edges: Path) -> None:
    viewer = Viewer(edges)
    asked = viewer.find("a.jsonl", 4)
    rows = [viewer.row(number) for number in asked.rows]
    assert [[asked.covers(row, span) for span in row.spans] for row in rows] == [[False, True], [True, False]]


def test_a_name_that_many_inputs_have_is_answered_with_some_of_them(inputs: Path, tmp_path: Path, run: Run) -> None:
    for number in range(16):
        (inputs / f"part-{number:02}.jsonl").write_bytes(texts("a"))
    run()
    said = r"--file: 16 inputs have 'part' in their name: part-00.jsonl, .*, part-04.jsonl and 11 more$"
    with pytest.raises(ConfigError, match=said):
        Viewer(tmp_path / "out").find("part", 1)


def test_a_document_is_found_by_its_own_id(inputs: Path, tmp_path: Path, run: Run) -> None:
    records = [
        b'{"text": "aaaaaaaaaa", "id": "one"}',
        b'{"text": "b", "id": 17}',
        b'{"text": "c", "id": "caf\\u00e9"}',
        b'{"text": "d", "id": "17"}',
        b'{"text": "e", "id": "caf\xc3\xa9"}',
        b'{"text": "f", "id": null}',
        b'{"text": "h", "id": "\\u0068"}',
        b'{"text": "g", "id": "a \\"b\\" \\\\"}',
    ]
    (inputs / "a.jsonl").write_bytes(b"\n".join(records))
    run(seq_len=4, sequences_per_chunk=2, id_field="id")
    viewer = Viewer(tmp_path / "out")
    assert [asked.rows for asked in viewer.find_id("one")] == [[0, 1, 2]]
    assert [len(viewer.find_id(wanted)) for wanted in ("17", "café", "null", "h", 'a "b" \\')] == [2, 2, 1, 1, 1]
    (second,) = viewer.find_id("null")
    assert second == viewer.find("a.jsonl", 6)
    with pytest.raises(ConfigError, match=r"^--id: no document has 'two' as its id$"):
        viewer.find_id("two")


def test_an_id_cannot_be_found_where_there_are_none(output: Path) -> None:
    with pytest.raises(ConfigError, match="the job was run without --id-field"):
        Viewer(output).find_id("one")


def test_characters_spread_over_tokens_are_shown_together(output: Path) -> None:
    found = Viewer(output).texts([*"aéb".encode()])
    assert [(t.text, len(t.token_ids)) for t in found] == [("a", 1), ("é", 2), ("b", 1)]


def test_samples_are_the_same_for_the_same_seed_and_others_for_another(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("x" * 799))
    run()
    viewer = Viewer(tmp_path / "out")
    assert len(viewer.rows) == 100
    assert viewer.sample(3, 1) == viewer.sample(3, 1) != viewer.sample(3, 2)
    for seed in range(10):
        chosen = viewer.sample(3, seed)
        assert len(set(chosen)) == 3
        assert chosen == sorted(chosen)
    # Every row has its chance, and there are no more than there are.
    assert {row for seed in range(100) for row in viewer.sample(10, seed)} == set(range(100))
    assert viewer.sample(1000, 0) == list(range(100))
