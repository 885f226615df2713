"""Stage 1: what is found, what it is taken for, and how it is cut into units."""

from __future__ import annotations

import bz2
import gzip
import inspect
import json
import logging
import lzma
import os
import pickle
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from backports import zstd

from tests.conftest import texts
from tokenmill.config import Config
from tokenmill.errors import InputError, OutputError
from tokenmill.output.plan_file import Plan, write_plan
from tokenmill.output.spool import Spool
from tokenmill.plan import cut
from tokenmill.plan.cut import cut_units, unit_bytes, weight
from tokenmill.plan.make import listed, make_plan
from tokenmill.read.sniff import fingerprint_of
from tokenmill.records import Codec, Format, InputFile, Part

LINE = texts("a")
NOISE = random.Random(1).randbytes(200_000)


def named_only(value: object) -> str:
    """Ids of parameters that are the same in every process: names, not contents."""
    return "" if isinstance(value, bytes) else str(value)


def plan(*inputs: Path | str, output: Path = Path("somewhere/out")) -> Plan:
    return make_plan(Config(inputs=tuple(map(str, inputs)), output=output))


def kinds(found: Plan) -> dict[str, tuple[Format, Codec]]:
    return {i.name: (i.format, i.codec) for _, i in found.inputs()}


def names(found: Plan) -> list[str]:
    return [i.name for _, i in found.inputs()]


def test_a_directory_is_searched_recursively_and_sorted_by_bytes(inputs: Path) -> None:
    for name in ("b.jsonl", "a/z.jsonl", "a.jsonl", "Z.jsonl", "é.jsonl", "a-.jsonl", "a0.jsonl"):
        (inputs / name).parent.mkdir(exist_ok=True)
        (inputs / name).write_bytes(LINE)
    assert names(plan(inputs)) == ["Z.jsonl", "a-.jsonl", "a.jsonl", "a/z.jsonl", "a0.jsonl", "b.jsonl", "é.jsonl"]


@pytest.mark.parametrize(
    ("name", "data", "format_", "codec"),
    [
        ("a.jsonl", LINE, Format.JSONL, Codec.PLAIN),
        ("a.json", LINE, Format.JSONL, Codec.PLAIN),
        ("a.jsonl.gz", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP),
        ("a.json.gz", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP),
        ("a.jsonl.zst", zstd.compress(LINE), Format.JSONL, Codec.ZSTD),
        ("a.jsonl.bz2", bz2.compress(LINE), Format.JSONL, Codec.BZIP2),
        ("a.jsonl.xz", lzma.compress(LINE), Format.JSONL, Codec.XZ),
        ("a.txt", b"plain text", Format.TEXT, Codec.PLAIN),
        ("a.txt.gz", gzip.compress(b"plain text", mtime=0), Format.TEXT, Codec.GZIP),
        ("broken.jsonl", b"broken\n", Format.JSONL, Codec.PLAIN),
        ("empty.jsonl", b"", Format.JSONL, Codec.PLAIN),
        ("begins-broken.json", b"broken\n" + LINE, Format.JSONL, Codec.PLAIN),
        ("no-suffix", LINE, Format.JSONL, Codec.PLAIN),
        ("large.json.bz2", bz2.compress(LINE * 100_000), Format.JSONL, Codec.BZIP2),
        ("long-line.json.zst", zstd.compress(texts(NOISE.hex())), Format.JSONL, Codec.ZSTD),
        ("empty.jsonl.gz", b"", Format.JSONL, Codec.GZIP),
        ("long-line.json", b'{ "text": "' + b"x" * 100_000, Format.JSONL, Codec.PLAIN),
        ("long-line.jsonl", b'{"text": "' + b"x" * 100_000, Format.JSONL, Codec.PLAIN),
    ],
    ids=named_only,
)
def test_a_file_is_what_its_first_bytes_say(
    inputs: Path, name: str, data: bytes, format_: Format, codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / name).write_bytes(data)
    assert kinds(plan(inputs)) == {name: (format_, codec)}
    assert not caplog.records


def test_parquet_is_known_by_its_magic(inputs: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), inputs / "a.parquet")
    assert kinds(plan(inputs)) == {"a.parquet": (Format.PARQUET, Codec.PLAIN)}


@pytest.mark.parametrize(
    ("name", "data", "format_", "codec", "said"),
    [
        ("a.jsonl.zst", LINE, Format.JSONL, Codec.PLAIN, "says zstd, the content is plain"),
        ("a.jsonl", gzip.compress(LINE, mtime=0), Format.JSONL, Codec.GZIP, "says plain, the content is gzip"),
        ("a.jsonl.gz", zstd.compress(LINE), Format.JSONL, Codec.ZSTD, "says gzip, the content is zstd"),
        ("a.txt", LINE, Format.JSONL, Codec.PLAIN, "says text, the content is jsonl"),
    ],
    ids=named_only,
)
def test_a_name_that_says_otherwise_is_reported(
    inputs: Path,
    name: str,
    data: bytes,
    format_: Format,
    codec: Codec,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (inputs / name).write_bytes(data)
    assert kinds(plan(inputs)) == {name: (format_, codec)}
    assert said in caplog.text


def test_files_that_are_no_input_are_left_out_and_named(inputs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "README.md").write_text("# read me")
    (inputs / "dataset_info.json").write_text('{\n  "features": {}\n}\n')
    (inputs / "array.json").write_text('[\n{"text": "a"},\n{"text": "b"}\n]\n')
    (inputs / "registry.json").write_text('{\n"all": [\n{"n": 1},\n{"n": 2},\n{"n": 3}\n]}\n')
    (inputs / "app.log").write_text('started\n{"text": "a"}\nended\n')
    (inputs / ".cache").mkdir()
    (inputs / ".hidden.jsonl").write_bytes(LINE)
    os.mkfifo(inputs / "pipe.jsonl")
    found = plan(inputs)
    assert names(found) == ["a.jsonl"]
    left_out = {
        "README.md",
        "dataset_info.json",
        "array.json",
        "registry.json",
        "app.log",
        ".cache",
        ".hidden.jsonl",
        "pipe.jsonl",
    }
    assert found.left_out is not None
    assert {name for name, _ in found.left_out} == left_out
    assert f"left out {len(left_out)} file(s)" in caplog.text


def test_no_matching_input_is_an_error(inputs: Path) -> None:
    with pytest.raises(InputError, match="no input found"):
        plan(inputs)
    with pytest.raises(InputError, match="no file matches"):
        plan(f"{inputs}/*.jsonl")
    with pytest.raises(InputError, match="no file or directory"):
        plan(inputs / "absent.jsonl")


def test_a_file_named_by_the_user_that_is_no_input_is_an_error(inputs: Path) -> None:
    (inputs / "README.md").write_text("# read me")
    with pytest.raises(InputError, match=r"README.md: not JSON Lines"):
        plan(inputs / "README.md")


def test_globs_and_several_inputs_are_named_below_their_common_root(inputs: Path) -> None:
    for name in ("x/a.jsonl", "x/b.jsonl", "y/a.jsonl"):
        (inputs / name).parent.mkdir(exist_ok=True)
        (inputs / name).write_bytes(LINE)
    assert names(plan(f"{inputs}/x/*.jsonl")) == ["a.jsonl", "b.jsonl"]
    assert names(plan(inputs / "x", inputs / "y" / "a.jsonl")) == [
        "x/a.jsonl",
        "x/b.jsonl",
        "y/a.jsonl",
    ]
    assert names(plan(f"{inputs}/**/a.jsonl")) == ["x/a.jsonl", "y/a.jsonl"]
    assert plan(inputs / "x", f"{inputs}/x/*.jsonl").files == 2


def test_a_loop_of_symbolic_links_ends_and_linked_files_are_read(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "loop").symlink_to(inputs)
    (inputs / "again.jsonl").symlink_to(inputs / "a.jsonl")
    assert names(plan(inputs)) == ["a.jsonl", "again.jsonl"]


def test_the_output_inside_the_input_is_not_read(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "out").mkdir()
    (inputs / "out" / "rejects.jsonl").write_bytes(LINE)
    assert names(plan(inputs, output=inputs / "out")) == ["a.jsonl"]


def test_a_link_that_leads_nowhere_or_to_itself_does_not_stop_the_others(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "itself").symlink_to(inputs / "itself")
    (inputs / "itself.jsonl").symlink_to(inputs / "itself.jsonl")
    (inputs / "below.txt").symlink_to(inputs / "a.jsonl" / "x")
    found = plan(inputs)
    assert {i.name: i.problem for _, i in found.inputs()} == {
        "a.jsonl": None,
        "below.txt": "Not a directory",
        "itself.jsonl": "Too many levels of symbolic links",
    }


def test_directories_may_be_nested_deeper_than_python_calls(inputs: Path) -> None:
    deep = inputs.joinpath(*["d"] * 200)
    deep.mkdir(parents=True)
    (deep / "a.jsonl").write_bytes(LINE)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = plan(inputs)
    finally:
        sys.setrecursionlimit(before)
    assert found.files == 1


def test_hidden_directories_are_named_once_and_the_output_never(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / ".h").mkdir()
    (inputs / ".h-").write_bytes(LINE)
    (inputs / ".out").mkdir()
    found = plan(inputs, inputs, inputs / ".h-", output=inputs / ".out")
    assert names(found) == [".h-", "a.jsonl"]
    assert [name for name, _ in found.left_out or ()] == [".h"]


def test_what_looks_like_an_output_but_is_a_corpus_is_read(inputs: Path) -> None:
    (inputs / "units").mkdir()
    for name in ("job.json", "a.jsonl", "units/b.jsonl"):
        (inputs / name).write_bytes(LINE)
    assert names(plan(inputs)) == ["a.jsonl", "job.json", "units/b.jsonl"]


def test_temporary_data_without_room_is_an_error_that_names_the_place() -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OutputError, match="TMPDIR"):
        spool = Spool()
        spool._file = full  # type: ignore[assignment]
        spool.append("x")


def test_the_plan_does_not_depend_on_the_place(tmp_path: Path) -> None:
    plans = []
    for place in ("one", "two/deeper"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_bytes(LINE)
        plans.append(list(plan(folder).lines()))
    assert plans[0] == plans[1]


def test_a_plan_survives_being_written_down(inputs: Path) -> None:
    (inputs / os.fsdecode(b"odd \xff\n\x1b[31m.jsonl")).write_bytes(LINE)
    found = plan(inputs)
    (inputs / "plan").write_text("".join(found.lines()))
    again = Plan(found.root, Spool(path=inputs / "plan"))
    assert list(again.units()) == list(found.units())
    assert again.digest == found.digest
    assert names(again) == [os.fsdecode(b"odd \xff\n\x1b[31m.jsonl")]


def file(name: str, size: int, codec: Codec = Codec.PLAIN, format_: Format = Format.JSONL) -> InputFile:
    return InputFile(name=name, size=size, fingerprint="f", format=format_, codec=codec)


def spans(*files: InputFile) -> list[list[tuple[int, int, int | None]]]:
    return [
        [(p.file, p.start, p.end) for p in u.parts]
        for u in cut_units(files, unit_bytes(sum(map(weight, files))), Path())
    ]


def test_consecutive_small_files_share_a_unit() -> None:
    assert spans(*(file(f"{n}", 1000) for n in range(5))) == [[(n, 0, None) for n in range(5)]]


def test_every_unit_is_filled_with_files_up_to_the_same_weight() -> None:
    files = [file(f"{n}", 1000) for n in range(7)]
    units = cut_units(files, 3 * weight(files[0]), Path())
    assert [[p.file for p in u.parts] for u in units] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_big_plain_file_is_cut_into_ranges_that_cover_it() -> None:
    size = 100 << 20
    (ranges,) = zip(*spans(file("a", size)), strict=True)
    assert [a for _, a, _ in ranges] == [0, *(b for _, _, b in ranges[:-1])]
    assert ranges[-1][2] == size
    assert len(ranges) == round(size / cut.MIN_UNIT_BYTES)


def test_a_big_compressed_file_stays_whole_and_alone() -> None:
    small, big = file("a", 10), file("b", 100 << 20, Codec.GZIP)
    assert spans(small, big, small) == [[(0, 0, None)], [(1, 0, None)], [(2, 0, None)]]


@pytest.mark.parametrize(
    ("count", "size", "codec", "units"),
    [
        (200, 260 << 20, Codec.PLAIN, 400),  # FinPile: 52 GB in 200 files must keep 64 workers busy to the end
        (200, 80 << 20, Codec.GZIP, 200),
        (16, 20 << 20, Codec.PLAIN, 16),  # 300 MB must keep 4 busy
        (1, 300 << 20, Codec.PLAIN, 16),
        (4000, 100_000, Codec.PLAIN, 12),
    ],
)
def test_there_are_enough_units_to_share(count: int, size: int, codec: Codec, units: int) -> None:
    assert len(spans(*(file(f"{n}", size, codec) for n in range(count)))) >= units


def test_a_big_parquet_file_is_cut_by_row_groups(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "MIN_UNIT_BYTES", 20_000)
    rows = [NOISE[n : n + 50].hex() for n in range(0, 50_000, 50)]
    pq.write_table(pa.table({"text": rows}), inputs / "a.parquet", 100)
    found = plan(inputs)
    parts = [p for u in found.units() for p in u.parts]
    assert len(parts) > 3
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == 10


def test_a_file_is_known_by_its_size_and_its_first_and_last_64_kib(inputs: Path) -> None:
    edge = 64 << 10
    data = texts("a" * 3 * edge)

    def fingerprint(content: bytes) -> str:
        (inputs / "a.jsonl").write_bytes(content)
        [(_, found)] = plan(inputs).inputs()
        return found.fingerprint

    def edited(place: int) -> bytes:
        return data[:place] + b"b" + data[place + 1 :]

    before = fingerprint(data)
    assert before == xxhash.xxh3_128_hexdigest(b"%d:" % len(data) + data[:edge] + data[-edge:])
    for place in (20, edge - 1, len(data) - edge, len(data) - 4):
        assert fingerprint(edited(place)) != before, place
    # Reading it all would take as long as the job: what lies between goes unnoticed, as the README says.
    assert fingerprint(edited(edge)) == before == fingerprint(edited(len(data) - edge - 1))
    assert fingerprint(data[:edge] + data[edge + 1 :]) != before


def test_an_unreadable_file_is_planned_with_its_problem(inputs: Path) -> None:
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    (inputs / "a.jsonl").write_bytes(LINE)
    found = {i.name: i.problem for _, i in plan(inputs).inputs()}
    assert found == {"a.jsonl": None, "gone.jsonl": "No such file or directory"}


def test_many_left_out_files_are_counted_not_all_listed(inputs: Path, caplog: Any) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    for n in range(30):
        (inputs / f"{n:02d}.log").write_text("x")
    with caplog.at_level(logging.WARNING):
        plan(inputs)
    assert "left out 30 file(s)" in caplog.text
    assert "and 25 more" in caplog.text


def test_a_plan_of_many_files_is_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "MIN_UNIT_BYTES", 100 * weight(file("", 100)))
    count = 6000
    files = (file(f"part-{n:06d}.jsonl", 100) for n in range(count))
    tracemalloc.start()
    found = write_plan(Path(), cut_units(files, unit_bytes(count * weight(file("", 100))), Path()))
    assert sum(len(unit.parts) for unit in found.units()) == count == found.files
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The bare list of files would take 900 kB, its JSON as much; a unit of 100 takes 200 kB.
    assert peak < 450_000


def test_an_empty_json_file_holds_no_lines(inputs: Path) -> None:
    (inputs / "a.json").write_bytes(b"")
    assert kinds(plan(inputs)) == {"a.json": (Format.JSONL, Codec.PLAIN)}


def test_a_parquet_file_of_one_row_group_stays_whole_however_big(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "MIN_UNIT_BYTES", 1000)
    pq.write_table(pa.table({"text": [str(n) * 50 for n in range(1000)]}), inputs / "a.parquet")
    assert (inputs / "a.parquet").stat().st_size > 5000
    assert [u.parts for u in plan(inputs).units()] == [(Part(0),)]


def test_a_directory_that_cannot_be_listed_is_named_with_a_way_out(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match=rf"cannot list the directory {inputs}: Permission denied\. Make it readable"):
        plan(inputs)


def test_units_of_a_plan_are_a_sequence(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "MIN_UNIT_BYTES", 100)
    (inputs / "a.jsonl").write_bytes(LINE * 50)
    units = plan(inputs).units()
    assert len(units) > 3
    assert list(units[1:3]) == [units[1], units[2]]
    assert [u.index for u in units[::-1]] == list(range(len(units)))[::-1]


def test_a_worker_is_sent_the_place_of_the_inputs_without_the_units(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    found = plan(inputs)
    sent = pickle.loads(pickle.dumps(found))
    assert sent.root == found.root
    assert (sent.files, len(sent.sizes)) == (0, 0)
    assert len(found.sizes) == 1


def test_a_plan_in_which_nothing_was_repaired_stays_the_same(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    found = plan(inputs)
    assert found.with_inputs({}) is found


def test_a_plan_with_a_name_that_no_file_can_have_is_refused(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (line,) = plan(inputs).lines()
    spool = Spool([json.loads(line.replace("a.jsonl", "\\ud800.jsonl"))])
    with pytest.raises(ValueError, match="surrogates not allowed"):
        Plan(inputs, spool)


def test_how_a_corpus_is_cut_is_part_of_the_format() -> None:
    """Other units are other bytes: these numbers stay as they are."""
    assert unit_bytes(0) == unit_bytes(512 * 16_777_216) == 16_777_216
    assert unit_bytes(512 * 20_000_000) == 20_000_000
    assert unit_bytes(512 << 30) == unit_bytes(1 << 50) == 1 << 30
    plain = {codec: weight(file("a", 1000, codec)) - 16_384 for codec in Codec}
    assert plain == {Codec.PLAIN: 1000, Codec.GZIP: 3000, Codec.ZSTD: 3000, Codec.BZIP2: 4000, Codec.XZ: 4000}
    assert weight(file("a", 1000, format_=Format.PARQUET)) - 16_384 == 2000


def test_a_unit_is_as_heavy_as_all_inputs_together_want_it(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "MIN_UNIT_BYTES", 1)
    monkeypatch.setattr(cut, "FILE_COST_BYTES", 0)
    monkeypatch.setattr(cut, "UNITS_WANTED", 4)
    for n in range(8):
        (inputs / f"{n}.jsonl.gz").write_bytes(gzip.compress(LINE, mtime=0))
    assert [len(u.parts) for u in plan(inputs).units()] == [2, 2, 2, 2]


def test_the_first_few_of_many_are_listed_and_the_others_counted() -> None:
    entries = [(name, "no input") for name in "abcdef"]
    assert listed(Spool(entries[:1])) == "a (no input)"
    assert listed(Spool(entries[:2]), 2) == "a (no input); b (no input)"
    assert listed(Spool(entries[:3]), 1) == "a (no input); and 2 more"
    assert listed(Spool(entries)).endswith("e (no input); and 1 more")


def test_a_plain_file_of_two_units_is_cut_in_two() -> None:
    half = 16 << 20
    assert spans(file("a", 2 * half)) == [[(0, 0, half)], [(0, half, 2 * half)]]


def test_a_parquet_file_of_two_row_groups_is_cut_in_two(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "MIN_UNIT_BYTES", 1000)
    pq.write_table(pa.table({"text": [str(n) * 50 for n in range(1000)]}), inputs / "a.parquet", row_group_size=500)
    assert [u.parts for u in plan(inputs).units()] == [(Part(0, 0, 1),), (Part(0, 1, 2),)]


def test_a_directory_is_an_output_by_its_job_and_something_beside_it(inputs: Path) -> None:
    for folder in ("output", "corpus"):
        (inputs / folder).mkdir()
        (inputs / folder / "job.json").write_text('{"format_version": 1, "options": {}, "tokenizer": {}}\n')
        (inputs / folder / "a.jsonl").write_bytes(LINE)
    (inputs / "output" / "units").mkdir()
    found = plan(inputs)
    assert names(found) == ["corpus/a.jsonl"]
    assert [name for name, _ in found.left_out or ()] == ["corpus/job.json", "output/job.json"]


@pytest.mark.parametrize(
    ("name", "format_", "codec"),
    [
        ("a.txt", Format.TEXT, Codec.PLAIN),
        ("a.parquet", Format.PARQUET, Codec.PLAIN),
        ("a.json.gz", Format.JSONL, Codec.GZIP),
        ("a.zst", Format.JSONL, Codec.ZSTD),
    ],
)
def test_a_file_that_cannot_be_read_is_what_its_name_says(
    inputs: Path, name: str, format_: Format, codec: Codec
) -> None:
    (inputs / name).symlink_to(inputs / "nowhere")
    assert kinds(plan(inputs)) == {name: (format_, codec)}


def test_a_json_document_of_many_lines_is_refused_as_such(inputs: Path) -> None:
    for name, data in (("object.json", b'{\n "a": 1\n}\n'), ("array.json", b' [\n{"a": 1},\n{"a": 2}\n]\n')):
        (inputs / name).write_bytes(data)
        with pytest.raises(InputError, match="JSON, but not one object per line"):
            plan(inputs / name)


def test_a_fingerprint_does_not_depend_on_where_the_file_was_read_to(inputs: Path) -> None:
    path = inputs / "a.jsonl"
    path.write_bytes(bytes(range(256)) * 1000)
    with path.open("rb") as file:
        first = fingerprint_of(file, 256_000)
        file.read(1000)
        assert fingerprint_of(file, 256_000) == first
        file.seek(0)
        assert fingerprint_of(file, 256_000, file.read(64 << 10)) == first
