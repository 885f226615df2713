"""The plan as it is stored: a unit per line, read when it is asked for, never all at once."""

from __future__ import annotations

import json
import os
import tracemalloc

import pytest

from tokenmill.output.plan_file import Plan, Skipped
from tokenmill.output.schema import SkippedEntry
from tokenmill.output.spool import Spool
from tokenmill.plan.cut import cut_units
from tokenmill.read.corpus import Corpus
from tokenmill.records import Codec, Format, InputFile, Part, Unit
from tokenmill.storage.memory import MemoryStorage

ODD_NAME = os.fsdecode(b"odd \xff\n\x1b[31m.jsonl")


def file(name: str, size: int = 100, problem: str | None = None) -> InputFile:
    return InputFile(name=name, size=size, fingerprint="f", format=Format.JSONL, codec=Codec.PLAIN, problem=problem)


def plan_of(*names: str) -> Plan:
    """A unit for each file."""
    return Plan.of(Unit(n, (Part(n),), (file(name),), 100) for n, name in enumerate(names))


def read_back(lines: bytes) -> Plan:
    return Plan(Spool(MemoryStorage({"plan.jsonl": lines}).open("plan.jsonl")))


def test_a_plan_survives_being_written_down() -> None:
    found = plan_of("a.jsonl", ODD_NAME)
    again = read_back(b"".join(found.lines()))
    assert list(again.units()) == list(found.units())
    assert again.digest == found.digest
    assert [f.name for _, f in again.inputs()] == ["a.jsonl", ODD_NAME]
    assert (list(again.sizes), again.files) == ([100, 100], 2)


def test_a_plan_is_a_line_per_unit_with_sorted_keys() -> None:
    described = '{"name": "a", "size": 100, "fingerprint": "f", "format": "jsonl", "codec": "plain", "problem": null}'
    line = f'{{"files": [{described}], "parts": [[0, 0, null]], "size": 100, "unit": 0}}\n'
    (found,) = plan_of("a").lines()
    assert json.loads(found) == json.loads(line)
    assert [key for key, _ in json.loads(found, object_pairs_hook=list)] == ["files", "parts", "size", "unit"]


def test_a_plan_of_nothing_has_no_files() -> None:
    found = Plan.of([])
    assert (found.files, list(found.sizes), list(found.inputs())) == (0, [], [])


def test_units_of_a_plan_are_a_sequence() -> None:
    units = plan_of(*"abcde").units()
    assert len(units) == 5
    assert list(units[1:3]) == [units[1], units[2]]
    assert [u.index for u in units[::-1]] == [4, 3, 2, 1, 0]
    assert [u.index for u in plan_of(*"abcde").units([4, 1])] == [4, 1]


def test_an_input_of_several_parts_is_listed_once() -> None:
    big = file("big", 200)
    units = [Unit(0, (Part(0, 0, 100),), (big,), 100), Unit(1, (Part(0, 100, 200), Part(1)), (big, file("b")), 200)]
    found = Plan.of(units)
    assert list(found.inputs()) == [(0, big), (1, file("b"))]
    assert found.files == 2


def test_a_plan_of_many_files_is_not_in_memory() -> None:
    corpus = Corpus(MemoryStorage())
    count = 6000
    files = (file(f"part-{n:06d}.jsonl") for n in range(count))
    weight = 100 + (16 << 10)
    tracemalloc.start()
    found = Plan.of(cut_units(files, 100 * weight, corpus))
    assert sum(len(unit.parts) for unit in found.units()) == count == found.files
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The bare list of files would take 900 kB, its JSON as much; a unit of 100 takes 200 kB.
    assert peak < 450_000


def test_a_plan_in_which_nothing_was_repaired_stays_the_same() -> None:
    found = plan_of("a.jsonl")
    assert found.with_inputs({}) is found


def test_a_repaired_input_counts_with_its_size_in_every_unit_that_reads_it() -> None:
    gone = file("b.jsonl", 0, "No such file or directory")
    before = Plan.of(
        [Unit(0, (Part(0), Part(1)), (file("a.jsonl"), gone), 100), Unit(1, (Part(2),), (file("c"),), 100)]
    )
    found = before.with_inputs({1: file("b.jsonl", 7)})
    assert list(found.sizes) == [107, 100]
    assert [f.problem for _, f in found.inputs()] == [None, None, None]
    assert found.digest != before.digest


def test_a_plan_with_a_name_that_no_file_can_have_is_refused() -> None:
    (line,) = plan_of("a.jsonl").lines()
    with pytest.raises(ValueError, match="surrogates not allowed"):
        read_back(line.replace(b"a.jsonl", b"\\ud800.jsonl"))


def test_units_out_of_order_are_refused() -> None:
    first, second = plan_of("a", "b").lines()
    with pytest.raises(ValueError, match="unit 1 in the place of unit 0"):
        read_back(second + first)


def test_what_was_skipped_is_kept_in_order_whatever_its_name() -> None:
    skipped = Skipped()
    assert not skipped
    skipped.append("b.md", "not an input")
    skipped.append(ODD_NAME, "hidden")
    assert len(skipped) == 2
    assert list(skipped) == [
        SkippedEntry(name="b.md", why="not an input"),
        SkippedEntry(name=ODD_NAME, why="hidden"),
    ]
