"""The JSON of an output: every type comes back as it was written, and what no run writes is refused."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import msgspec
import pytest
import xxhash

from tests.support.outputs import UNIT, checkpoint_of, chunk_entry, file, receipt_of, stored_job
from tokenmill.config import ContentOptions, SpecialTokens, Tail
from tokenmill.config.option import options_of
from tokenmill.output import schema
from tokenmill.output.schema import (
    Catalog,
    DamagedFile,
    LineReject,
    PartEntry,
    Receipt,
    RowIndex,
    RowReject,
    SkippedEntry,
    Stored,
    StoredJob,
    StoredOptions,
    StoredReject,
    Summary,
    UnitEntry,
    decode,
    decode_exactly,
    describes_a_job,
    format_version,
    has_checksum,
    is_end_of_derived_lines,
    manifest_pieces,
    run_id_of,
    to_builtins,
    to_line,
    to_text,
)
from tokenmill.records import Codec, Damage, Format, InputFile, Ledger, Part, Partial, Reason, Unit

NOT_UNICODE = os.fsdecode(b"caf\xe9 \xff.jsonl")
REJECT: dict[str, Any] = {"reason": "broken_json", "detail": "no", "records": 1, "head": "x"}
PART = PartEntry(file=1, start=2, end=None, first_record=None, lines=3)
LOST: dict[str, Any] = {
    "reason": Reason.CORRUPT_FILE,
    "detail": "no",
    "places": 2,
    "lost_rows": None,
    "unread_bytes": 5,
}
DAMAGE = Damage(part=1, record=0, offset=3, **LOST)

STORED = [
    stored_job().options,
    stored_job(id_field="id", bos_token="<s>", eos_token=None, tail="drop", special_tokens_in_text="match").options,
    stored_job().tokenizer,
    msgspec.structs.replace(stored_job().tokenizer, eos_id=None, bos_id=0, dtype="uint32"),
    stored_job(),
    Ledger(),
    Ledger(records=3, documents=2, rejected=1, rejects_by_reason={"broken_json": 1}),
    chunk_entry(),
    chunk_entry(ids_xxh3="c"),
    Partial(),
    Partial(tokens=1, documents=2, ids_bytes=3),
    receipt_of(),
    receipt_of(chunks=(chunk_entry(), chunk_entry(1)), rejects_bytes=9, rejects_xxh3="d", missing={0: "gone", 12: ""}),
    checkpoint_of(damaged=(DAMAGE,)),
    checkpoint_of(offset=None, chunks=(), partial=Partial(), missing={1: NOT_UNICODE}),
    DAMAGE,
    DamagedFile(record=None, offset=None, size=7, **LOST),
    StoredReject(part=0, record=1, offset=2, **REJECT),
    LineReject(file=NOT_UNICODE, line=3, offset=2, **REJECT),
    LineReject(file="a", line=None, offset=2, **REJECT),
    RowReject(file="a", row=3, **REJECT),
    RowReject(file="a", row=None, **REJECT),
    PART,
    PartEntry(file=0, start=0, end=9, first_record=1, lines=0),
    UnitEntry(unit=7, parts=(PART, PART)),
    SkippedEntry(name=NOT_UNICODE, why="hidden"),
    file(NOT_UNICODE),
    file("a.parquet", Format.PARQUET, codec=Codec.ZSTD, problem="gone"),
    UNIT,
    Unit(0, (Part(0, 5, 9), Part(1)), (file(NOT_UNICODE), file("b")), 0),
]


def name_of(value: object) -> str:
    return type(value).__name__


every_type = pytest.mark.parametrize("value", STORED, ids=name_of)


def test_there_is_an_example_of_every_type() -> None:
    views = {Summary, Catalog, RowIndex, schema.ChunkRows, schema.InputName, schema.ChunkOfUnit}  # of a manifest
    views |= {schema._Rows, schema._Dtype, schema.SkippedFiles, Stored}
    here = {v for v in vars(schema).values() if isinstance(v, type) and issubclass(v, msgspec.Struct)}
    assert {type(value) for value in STORED} == (here - views) | {Unit, InputFile, Ledger, Partial}


@every_type
def test_what_is_written_comes_back(value: Any) -> None:
    for text in (to_text(value), to_line(value), to_line(value, sort_keys=True)):
        assert text.isascii()
        assert text.endswith("}\n")
        assert decode(text.encode(), type(value)) == value
        assert decode(memoryview(text.encode()), type(value)) == value
        assert decode_exactly(text.encode(), type(value)) == value


@every_type
def test_an_unknown_key_is_refused(value: Any) -> None:
    data = json.loads(to_text(value))
    with pytest.raises(ValueError, match="unknown field"):
        decode(json.dumps(data | {"unknown": 1}).encode(), type(value))


@every_type
def test_a_missing_key_is_refused(value: Any) -> None:
    data = json.loads(to_text(value))
    for name in data:
        fewer = {key: data[key] for key in data if key != name}
        with pytest.raises(ValueError, match=r"missing required field|not what tokenmill writes"):
            decode_exactly(json.dumps(fewer).encode(), type(value))


@every_type
def test_a_value_of_another_kind_is_refused(value: Any) -> None:
    data = json.loads(to_text(value))
    for name, right in data.items():
        for wrong in wrong_values(right, may_be_null=name in nullable(type(value))):
            with pytest.raises(ValueError, match=r"Expected|Invalid|missing|unknown|files for"):
                decode(json.dumps(data | {name: wrong}).encode(), type(value))


def wrong_values(right: Any, *, may_be_null: bool) -> list[Any]:
    null = [] if may_be_null else [None]
    if isinstance(right, int):
        return [-1, 1.5, str(right), True, [], *null]
    if isinstance(right, str):
        return [3, False, [], {}, *null]
    if right is None:
        return [1.5, [], {}]
    return [3, "text", {} if isinstance(right, list) else [], [-1], {"a": -1}, None]


def nullable(kind: type) -> set[str]:
    return {f.encode_name for f in msgspec.structs.fields(kind) if type(None) in get_args(f.type)}


@pytest.mark.parametrize("name", ["seq_len", "sequences_per_chunk", "max_document_bytes"])
def test_a_size_of_nothing_is_refused(name: str) -> None:
    options = to_builtins(stored_job().options) | {name: 0}
    with pytest.raises(ValueError, match=r"Expected `int` >= 1"):
        decode(json.dumps(options).encode(), StoredOptions)


@pytest.mark.parametrize("part", ["[-1,0,null]", "[0,-1,null]", "[0,0,-1]", '["0",0,null]', "[]", "[0,0,null,1]", "{}"])
def test_a_part_is_a_file_and_two_ends(part: str) -> None:
    with pytest.raises(ValueError, match=r"Expected"):
        decode(part.encode(), Part)


def test_a_part_is_written_in_full() -> None:
    assert json.loads(to_line(Part(3))) == [3, 0, None]
    with pytest.raises(ValueError, match="not what tokenmill writes"):
        decode_exactly(b"[3]", Part)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '"unit"', "null", "\xff", "{}", '{"unit": 7', '{"a": "\\udce9"}', "{} {}"]
)
def test_what_is_no_such_object_is_refused(text: str) -> None:
    for decoder in (decode, decode_exactly):
        with pytest.raises(ValueError, match=r".+"):
            decoder(text.encode("latin-1"), Receipt)


def test_json_is_written_so_that_it_can_be_printed_and_compared() -> None:
    assert to_text({"b": "\x1b\udce9é", "a": [1]}) == '{\n "a": [\n  1\n ],\n "b": "\\u001b\\udce9\\u00e9"\n}\n'
    assert to_line({"b": "\x1b\udce9é", "a": [1]}) == '{"b": "\\u001b\\udce9\\u00e9", "a": [1]}\n'
    assert to_line({"b": 1, "a": 2}, sort_keys=True) == '{"a": 2, "b": 1}\n'
    # Numbers are keys as text is, also where they are sorted.
    missing = json.loads(to_text(receipt_of(missing={2: "", 10: ""})))["missing"]
    assert list(missing) == ["10", "2"]


# The options of a job


def test_the_stored_options_are_those_that_change_the_output() -> None:
    """Whoever adds an option that changes a byte adds it to both, and to an output of another format version."""
    declared = {option.name for option in options_of(ContentOptions)} - {"tokenizer"}  # which is stored by its content
    assert set(StoredOptions.__struct_fields__) == declared
    assert set(ContentOptions().stored("<|endoftext|>")) == declared


@pytest.mark.parametrize(
    "options", [{"tail": t} for t in Tail] + [{"special_tokens_in_text": s} for s in SpecialTokens]
)
def test_whatever_can_be_chosen_can_be_stored(options: dict[str, Any]) -> None:
    stored = StoredOptions(**ContentOptions(**options).stored(None))
    assert decode_exactly(to_text(stored).encode(), StoredOptions) == stored


def test_nothing_else_can_be_stored_as_a_choice() -> None:
    for name, kind in (("tail", Tail), ("special_tokens_in_text", SpecialTokens)):
        field = next(f for f in msgspec.structs.fields(StoredOptions) if f.name == name)
        assert set(get_args(field.type)) == set(map(str, kind))


def test_a_run_id_is_a_hash_of_the_stored_job_and_the_plan() -> None:
    described = json.dumps(json.loads(to_text(stored_job())), sort_keys=True)
    assert run_id_of(stored_job(), "plan") == hashlib.sha256(f"{described}\nplan".encode()).hexdigest()


def test_a_run_id_tells_jobs_and_plans_apart() -> None:
    job = stored_job()
    assert run_id_of(job, "plan") == run_id_of(stored_job(), "plan")
    changed = {
        "text_field": "body",
        "id_field": "id",
        "special_tokens_in_text": "reject",
        "eos_token": "<s>",
        "bos_token": "<s>",
        "seq_len": 5,
        "sequences_per_chunk": 3,
        "tail": "drop",
        "max_document_bytes": 1001,
    }
    assert changed.keys() == set(StoredOptions.__struct_fields__)
    jobs = [stored_job(**{name: value}) for name, value in changed.items()]
    tokenizer = msgspec.structs.replace(job.tokenizer, sha256="1")
    jobs.append(msgspec.structs.replace(job, tokenizer=tokenizer))
    ids = {run_id_of(other, "plan") for other in (job, *jobs)} | {run_id_of(job, "another plan")}
    assert len(ids) == len(changed) + 3


def test_damage_is_a_key_only_where_there_is_some() -> None:
    """So nothing changes in an output without it, and those of earlier versions are read."""
    of_file = DamagedFile(record=1, offset=2, size=7, **LOST)
    summary = Summary(run_id="x", ledger=Ledger(), missing={})
    pairs: list[tuple[Any, Any]] = [
        (receipt_of(), receipt_of(damaged=(DAMAGE,))),
        (summary, msgspec.structs.replace(summary, damaged={"a": of_file})),
    ]
    for whole, damaged in pairs:
        assert "damaged" not in json.loads(to_text(whole))
        assert decode_exactly(to_text(whole).encode(), type(whole)) == whole
        assert "damaged" in json.loads(to_text(damaged))
        assert decode_exactly(to_text(damaged).encode(), type(damaged)) == damaged


# Whose job it is


def test_the_format_of_a_job_is_told_whatever_else_is_in_it() -> None:
    assert format_version(to_text(stored_job()).encode()) == 1
    assert format_version(b'{"format_version": 2, "new": {}}') == 2
    for text in (b"", b"{", b"[]", b"{}", b"3", b"\xff", b"[" * 100_000):
        assert format_version(text) is None


def test_a_job_of_any_version_is_known_as_one() -> None:
    assert describes_a_job(to_text(stored_job()).encode())
    assert describes_a_job(b'{"format_version": 9, "options": 1, "tokenizer": 2, "more": 3}')
    for text in (b"", b"{", b"[]", b"{}", b'{"format_version": 1, "options": {}}', b"\xff", b"[" * 100_000):
        assert describes_a_job(text) is False


# The manifest


def manifest(skipped: int = 1) -> str:
    summary = Summary(run_id="x", ledger=Ledger(records=1, documents=1), missing={NOT_UNICODE: "gone"})
    pieces = manifest_pieces(
        summary,
        stored_job(),
        inputs=[file("a"), file(NOT_UNICODE)],
        units=[UnitEntry(unit=0, parts=(PART,)), UnitEntry(unit=1, parts=(PART, PART))],
        chunks=[(0, chunk_entry()), (1, chunk_entry(1)), (1, chunk_entry(2))],
        skipped=[SkippedEntry(name="notes.md", why="hidden")] * skipped,
    )
    return "".join(pieces)


def test_a_manifest_has_a_line_for_each_thing_and_ends_with_its_checksum() -> None:
    text = manifest()
    found = json.loads(text)
    assert list(found)[-5:] == ["inputs", "units", "chunks", "left_out", "xxh3"]
    job = to_builtins(stored_job())
    assert {name: found[name] for name in job} == job
    assert [i["name"] for i in found["inputs"]] == ["a", NOT_UNICODE]
    assert found["units"][1]["parts"] == [to_builtins(PART)] * 2
    assert [(c["unit"], c["name"]) for c in found["chunks"]] == [
        (0, "00007-0000"),
        (1, "00007-0001"),
        (1, "00007-0002"),
    ]
    assert found["left_out"] == [{"name": "notes.md", "why": "hidden"}]
    assert text.startswith('{\n "format_version": 1,\n "ledger": {\n  "documents": 1,\n')
    assert '\n "chunks": [\n  {"unit": 0, "name": "00007-0000"' in text
    assert '},\n  {"unit": 1, "name": "00007-0002"' in text
    body, _, rest = text.rpartition(',\n "xxh3": "')
    assert rest == xxhash.xxh3_128_hexdigest(body.encode()) + '"\n}\n'
    assert has_checksum(memoryview(text.encode()))
    assert json.loads(manifest(skipped=0))["left_out"] == []


def test_a_manifest_is_read_as_far_as_it_is_needed() -> None:
    data = manifest().encode()
    assert decode(data, Summary).missing == {NOT_UNICODE: "gone"}
    index = decode(data, RowIndex)
    assert (index.options.seq_len, index.tokenizer.dtype) == (4, "uint16")
    assert [(c.name, c.rows) for c in index.chunks] == [(f"00007-000{n}", 2) for n in range(3)]
    catalog = decode(data, Catalog)
    assert [file.name for file in catalog.inputs] == ["a", NOT_UNICODE]
    assert [len(unit.parts) for unit in catalog.units] == [1, 2]
    assert [(c.unit, c.tokens, c.documents) for c in catalog.chunks] == [(0, 8, 1), (1, 8, 1), (1, 8, 1)]


def test_any_change_of_a_manifest_shows_in_its_checksum() -> None:
    text = manifest()
    for changed in (
        text.replace('"documents": 1', '"documents": 2', 1),
        text.replace('"xxh3": "', '"xxh3": "0'),
        text.replace("hidden", "Hidden"),
        text[:-1],
        text + "\n",
        "{}\n",
        "",
    ):
        assert changed != text
        assert not has_checksum(memoryview(changed.encode()))


def test_what_follows_from_nothing_else_is_the_end_of_a_manifest() -> None:
    for skipped in (0, 1):
        lines = manifest(skipped).splitlines(keepends=True)
        (number,) = [n for n, line in enumerate(lines) if is_end_of_derived_lines(line)]
        assert lines[number] == ' "left_out": [\n'
        assert len(lines) == number + 4 + skipped


def test_a_job_without_its_format_version_is_not_one_of_ours() -> None:
    data = to_builtins(stored_job())
    del data["format_version"]
    with pytest.raises(ValueError, match="not what tokenmill writes"):
        decode_exactly(json.dumps(data).encode(), StoredJob)
    for other in (0, 2, "1", None):
        with pytest.raises(ValueError, match=r"Invalid enum value|Expected"):
            decode(json.dumps(data | {"format_version": other}).encode(), StoredJob)


def test_a_type_is_prepared_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that prepare one together crash msgspec, and threads of extreme begin their units together."""

    class Kind(msgspec.Struct):
        x: int

    entered, met = threading.Event(), threading.Event()
    build = msgspec.json.Decoder

    def slow(kind: Any) -> Any:
        if entered.is_set():
            met.set()
        entered.set()
        met.wait(0.2)  # which must not come; so it cannot be waited for as long as it takes
        return build(kind)

    monkeypatch.setattr(msgspec.json, "Decoder", slow)
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(decode, b'{"x": 1}', Kind) for _ in range(2)]
        assert [f.result().x for f in found] == [1, 1]
    assert entered.is_set()
    assert not met.is_set()
