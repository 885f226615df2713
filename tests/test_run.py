"""Whole jobs: what comes out, what is counted, what is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from tests.conftest import BOS, EOS, PAD, Run, documents, ids, jsonl, rejects, texts, tiny_tokenizer_json, tree
from tokenmill import execute
from tokenmill.errors import (
    DifferentJobError,
    InputError,
    Interrupted,
    OutputBusyError,
    OutputError,
    RejectLimitError,
    TokenizerError,
)
from tokenmill.plan import make_plan
from tokenmill.store import Store


def test_documents_become_rows_with_eos_and_padding(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("abc", "defg"))
    result = run(seq_len=6)
    rows = tokenmill.open(tmp_path / "out")
    assert [r.tolist() for r in rows] == [[*ids("abc"), EOS, *ids("de")], [*ids("fg"), EOS, PAD, PAD, PAD]]
    assert rows.dtype == np.uint16
    ledger = result.ledger
    assert (ledger.records, ledger.documents, ledger.tokens, ledger.separators) == (2, 2, 7, 2)
    assert (ledger.padding, ledger.rows, ledger.text_bytes) == (3, 2, 7)
    assert result.complete
    assert rows.manifest["chunks"][0]["tokens"] == 9  # the true length of what is padded


def test_bos_and_no_eos(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a", "b"))
    run(seq_len=4, bos_token="<|bos|>", no_eos=True)
    assert tokenmill.open(tmp_path / "out")[0].tolist() == [BOS, *ids("a"), BOS, *ids("b")]


def test_dropping_the_tail_is_counted(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("abc", "d", "e"))
    ledger = run(seq_len=3, tail="drop").ledger
    assert [r.tolist() for r in tokenmill.open(tmp_path / "out")] == [ids("abc"), [EOS, *ids("d"), EOS]]
    assert (ledger.dropped_tokens, ledger.dropped_documents, ledger.padding, ledger.documents) == (2, 1, 0, 3)


def test_every_format_gives_the_same_documents(inputs: Path, tmp_path: Path, run: Run) -> None:
    values = [f"document {n} ü" for n in range(7)]
    data = texts(*values)
    (inputs / "a.jsonl").write_bytes(data)
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(data))
    (inputs / "c.jsonl.zst").write_bytes(zstd.compress(data))
    (inputs / "d.jsonl.bz2").write_bytes(bz2.compress(data))
    (inputs / "e.jsonl.xz").write_bytes(lzma.compress(data))
    pq.write_table(pa.table({"text": values}), inputs / "f.parquet", row_group_size=3)
    (inputs / "g.txt").write_text("\ufeffone file\r\n")
    run()
    assert documents(tmp_path / "out") == [v.encode() for v in values] * 6 + [b"one file\r\n"]
    sources = [(d.file, d.record) for d in tokenmill.open(tmp_path / "out").documents()]
    assert sources[:2] == [("a.jsonl", 1), ("a.jsonl", 2)]
    assert sources[-2:] == [("f.parquet", 7), ("g.txt", 1)]


def test_the_sidecar_leads_back_to_the_line(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(b"\n" + texts("one") + b"broken\n" + texts("", "two"))
    run()
    found = [(d.file, d.record) for d in tokenmill.open(tmp_path / "out").documents()]
    assert found == [("a.jsonl", 2), ("a.jsonl", 5)]


def test_line_numbers_are_absolute_in_a_file_that_was_cut(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 500)
    monkeypatch.setattr("tokenmill.plan.cut.FILE_COST_BYTES", 0)
    lines = [texts(f"text {n}") if n % 10 else b"broken %d\n" % n for n in range(300)]
    (inputs / "a.jsonl").write_bytes(b"".join(lines))
    run()
    rows = tokenmill.open(tmp_path / "out")
    assert len(rows.manifest["units"]) > 5
    assert [d.record for d in rows.documents()] == [n + 1 for n in range(300) if n % 10]
    assert [r["line"] for r in rejects(tmp_path / "out")] == [n + 1 for n in range(0, 300, 10)]
    data = b"".join(lines)
    for reject in rejects(tmp_path / "out"):
        assert data[reject["offset"] :].startswith(reject["head"].encode())


def test_ids_lie_beside_the_chunk_of_the_document(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl({"text": "abc", "id": "x"}, {"text": "d"}, {"text": "e", "id": 3}))
    run(seq_len=2, sequences_per_chunk=2, id_field="id")
    files = sorted((tmp_path / "out" / "chunks").glob("*.ids.jsonl"))
    assert [f.read_text() for f in files] == ['"x"\n', "null\n3\n"]
    docs = [np.load(str(f).replace(".ids.jsonl", ".docs.npy")) for f in files]
    assert [len(d) for d in docs] == [1, 2]


def test_rejects_are_written_down(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("good") + b'{"text": 3}\n' + b'{"text": "\xff\x1b[31m"}\n')
    result = run()
    first, second = rejects(tmp_path / "out")
    assert first == {
        "file": "a.jsonl",
        "line": 2,
        "offset": len(texts("good")),
        "reason": "text_not_a_string",
        "detail": "the text is a JSON number, not a string",
        "records": 1,
        "head": '{"text": 3}',
    }
    assert second["head"] == '{"text": "\\xff\x1b[31m"}'
    assert b"\x1b" not in (tmp_path / "out" / "rejects.jsonl").read_bytes()
    assert result.ledger.rejects_by_reason == {"text_not_a_string": 1, "invalid_utf8": 1}
    assert result.ledger.records == 3


@pytest.mark.parametrize(("name", "compress"), [("a.jsonl.gz", gzip.compress), ("a.jsonl.zst", zstd.compress)])
def test_a_truncated_file_gives_what_came_before_and_one_reject(
    inputs: Path, tmp_path: Path, run: Run, name: str, compress: Any
) -> None:
    rng = np.random.default_rng(0)
    values = [rng.bytes(400).hex() for _ in range(2000)]
    data = compress(texts(*values))
    (inputs / name).write_bytes(data[: len(data) // 2])
    result = run()
    found = documents(tmp_path / "out")
    assert len(found) > 500
    assert found == [v.encode() for v in values[: len(found)]]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["file"], reject["reason"], reject["line"]) == (name, "truncated_file", len(found) + 1)
    assert result.ledger.records == len(found) + 1


def test_a_whole_record_right_before_the_break_is_kept(inputs: Path, tmp_path: Path, run: Run) -> None:
    data = bytearray(gzip.compress(texts("one") + texts("two").rstrip(b"\n")))
    data[-8] ^= 1
    (inputs / "a.jsonl.gz").write_bytes(data)
    run()
    assert documents(tmp_path / "out")[0] == b"one"
    assert [r["reason"] for r in rejects(tmp_path / "out")] == ["corrupt_file"]


def test_a_special_token_in_a_text_is_text_and_counted(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a<|endoftext|>b<|padding|>", "c"))
    assert run().ledger.special_tokens_in_text == 2
    rows = list(tokenmill.open(tmp_path / "out").documents())
    assert rows[0].tokens.tolist() == [*ids("a<|endoftext|>b<|padding|>"), EOS]


def test_a_special_token_in_a_text_can_be_matched(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a<|endoftext|>b"))
    assert run(special_tokens_in_text="match").ledger.special_tokens_in_text == 1
    (document,) = tokenmill.open(tmp_path / "out").documents()
    assert document.tokens.tolist() == [*ids("a"), EOS, *ids("b"), EOS]


def test_a_special_token_in_a_text_can_be_a_reject(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("fine", "a<|endoftext|>b", "fine too") + b"broken\n")
    result = run(special_tokens_in_text="reject")
    assert documents(tmp_path / "out") == [b"fine", b"fine too"]
    found = rejects(tmp_path / "out")
    assert [(r["reason"], r["line"]) for r in found] == [("special_token", 2), ("broken_json", 4)]
    assert found[0]["offset"] == len(texts("fine"))
    assert result.ledger.rejected == 2


def test_uint32_when_the_vocabulary_does_not_fit_16_bits(inputs: Path, tmp_path: Path, run: Run) -> None:
    model = tiny_tokenizer_json()
    model["added_tokens"][0]["id"] = 70_000
    model["added_tokens"][0]["content"] = "<|endoftext|>"
    model["model"]["vocab"] |= {f"filler{n}": n for n in range(259, 70_000)}
    (tmp_path / "wide.json").write_text(json.dumps(model))
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(tokenizer=str(tmp_path / "wide.json"), seq_len=2)
    rows = tokenmill.open(tmp_path / "out")
    assert rows.dtype == np.uint32
    assert rows[0].tolist() == [*ids("a"), 70_000]


def test_a_document_that_gives_no_token_is_empty(inputs: Path, tmp_path: Path, run: Run) -> None:
    model = tiny_tokenizer_json(normalizer={"type": "Strip", "strip_left": True, "strip_right": True})
    (tmp_path / "strip.json").write_text(json.dumps(model))
    (inputs / "a.jsonl").write_bytes(texts("a", "   ", "b"))
    ledger = run(tokenizer=str(tmp_path / "strip.json")).ledger
    assert (ledger.documents, ledger.empty) == (2, 1)
    assert documents(tmp_path / "out") == [b"a", b"b"]


def test_input_without_a_document_completes_without_a_chunk(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(b"")
    result = run()
    assert (result.ledger.records, result.ledger.rows) == (0, 0)
    assert len(tokenmill.open(tmp_path / "out")) == 0


def test_the_batch_size_and_the_encoder_do_not_show_in_the_output(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" * (n % 7) for n in range(100))))
    outputs = []
    ways: list[dict[str, Any]] = [{}, {"batch_size": 1}, {"batch_size": 3, "encoder": "huggingface"}]
    for n, options in enumerate(ways):
        run(output=tmp_path / f"out{n}", **options)
        outputs.append(tree(tmp_path / f"out{n}"))
    assert outputs[0] == outputs[1] == outputs[2]


def test_nothing_in_the_output_tells_the_place_or_the_time(tmp_path: Path, inputs: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a", "b"))
    run()
    elsewhere = tmp_path / "elsewhere"
    inputs.rename(elsewhere)
    run(inputs=(str(elsewhere),), output=tmp_path / "deep" / "out2")
    assert tree(tmp_path / "out") == tree(tmp_path / "deep" / "out2")
    assert not any(str(tmp_path).encode() in data for data in tree(tmp_path / "out").values())


# Running again


def test_a_finished_job_says_so_and_changes_nothing(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    assert not run().already_complete
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.name != "logs"}
    assert run().already_complete
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.name != "logs"} == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seq_len": 16}, "--seq-len was 8 and is 16"),
        ({"tail": "drop"}, "--tail was 'pad' and is 'drop'"),
        ({"no_eos": True}, "--eos-token was"),
        ({"text_field": "body"}, "--text-field"),
        ({"tokenizer": "gpt-neox-20b"}, "the tokenizer was tiny"),
    ],
)
def test_a_different_job_in_the_directory_is_refused(
    inputs: Path, tmp_path: Path, run: Run, options: dict[str, Any], said: str
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    before = tree(tmp_path / "out")
    with pytest.raises(DifferentJobError, match=said):
        run(**options)
    assert tree(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: (d / "a.jsonl").write_bytes(texts("other")), "input changed: a.jsonl"),
        (lambda d: (d / "c.jsonl").write_bytes(texts("c")), "input added: c.jsonl"),
        (lambda d: (d / "b.jsonl").unlink(), "input gone: b.jsonl"),
    ],
)
def test_changed_inputs_are_refused_by_name(inputs: Path, run: Run, change: Any, said: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("b"))
    run()
    change(inputs)
    with pytest.raises(DifferentJobError, match=said):
        run()


def test_overwrite_starts_anew(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a" * 100))
    run(sequences_per_chunk=1)
    (inputs / "a.jsonl").write_bytes(texts("b"))
    run(seq_len=4, overwrite=True)
    run(seq_len=4, output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_directory_that_is_not_ours_is_never_touched(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    precious = tmp_path / "out" / "chunks" / "thesis.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="not tokenmill's"):
            run(overwrite=overwrite)
    assert precious.read_text() == "years of work"


def test_an_output_that_is_a_file_is_refused(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        run()


def test_a_second_run_at_the_same_time_is_refused(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    with Store(tmp_path / "out").locked(), pytest.raises(OutputBusyError, match="another run"):
        run()
    run()


def test_a_stop_leaves_a_state_that_continues(inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(100))))
    stop = threading.Event()
    stop.set()
    options: dict[str, Any] = {"inputs": (str(inputs),), "tokenizer": tiny_tokenizer, "seq_len": 8}
    with pytest.raises(Interrupted, match="same command"):
        tokenmill.run(tokenmill.Config(output=tmp_path / "out", **options), stop=stop)
    run()
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_lost_chunk_is_made_again(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(100))))
    run(sequences_per_chunk=10)
    before = tree(tmp_path / "out")
    (tmp_path / "out" / "chunks" / "00000-0001.npy").unlink()
    assert not run(sequences_per_chunk=10).already_complete
    assert tree(tmp_path / "out") == before


def test_a_damaged_receipt_is_named(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    (tmp_path / "out" / "units" / "00000.json").write_text("{")
    with pytest.raises(OutputError, match=r"00000\.json is damaged"):
        run()


def test_an_input_that_is_the_output_is_refused(inputs: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    with pytest.raises(InputError, match="both an input and the output"):
        run(output=inputs, overwrite=True)
    assert (inputs / "a.jsonl").exists()


def test_a_renamed_tokenizer_file_is_the_same_job(inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run()
    (tmp_path / "renamed.json").write_bytes(Path(tiny_tokenizer).read_bytes())
    assert run(tokenizer=str(tmp_path / "renamed.json")).already_complete


@pytest.mark.parametrize("lost", ["units/00000.rejects.jsonl", "chunks/00000-0000.ids.jsonl"])
def test_a_lost_file_of_a_unit_is_made_again(inputs: Path, tmp_path: Path, run: Run, lost: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a") + b"broken\n")
    run(id_field="id")
    before = tree(tmp_path / "out")
    (tmp_path / "out" / lost).unlink()
    assert not run(id_field="id").already_complete
    assert tree(tmp_path / "out") == before


def test_a_unit_that_went_on_without_a_file_and_was_interrupted_does_not_forget_it(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str
) -> None:
    (inputs / "a.jsonl").symlink_to(tmp_path / "late.jsonl")
    (inputs / "b.jsonl").write_bytes(texts(*("x" * 1000 for _ in range(3000))))
    stop = threading.Event()

    class StopAfterACheckpoint:
        def is_set(self) -> bool:
            return stop.is_set() or any((tmp_path / "out" / "units").glob("*.checkpoint.json"))

    options: dict[str, Any] = {"tokenizer": tiny_tokenizer, "seq_len": 8, "sequences_per_chunk": 10_000}
    config = tokenmill.Config(inputs=(str(inputs),), output=tmp_path / "out", **options)
    with pytest.raises(Interrupted):
        tokenmill.run(config, stop=cast(threading.Event, StopAfterACheckpoint()))
    assert list(run(**options).missing) == ["a.jsonl"]
    (tmp_path / "late.jsonl").write_bytes(texts("late"))
    assert run(**options).complete
    assert documents(tmp_path / "out")[0] == b"late"


def test_a_tokenizer_that_is_refused_leaves_the_directory_free_for_the_advice(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    model = tiny_tokenizer_json()
    model["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    model["model"] = {"type": "WordLevel", "vocab": {"<|endoftext|>": 256, "a": 0, "?": 1}, "unk_token": "?"}
    (tmp_path / "words.json").write_text(json.dumps(model))
    (inputs / "a.jsonl").write_bytes(texts("a a"))
    with pytest.raises(TokenizerError, match="--special-tokens-in-text reject"):
        run(tokenizer=str(tmp_path / "words.json"))
    assert run(tokenizer=str(tmp_path / "words.json"), special_tokens_in_text="reject").complete


# Limits and failures


def test_what_was_left_out_is_written_down(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "README.md").write_text("# read me")
    result = run()
    assert result.left_out == 1
    assert tokenmill.open(tmp_path / "out").manifest["left_out"] == {"README.md": "not JSON Lines, Parquet or .txt"}
    (inputs / "NOTES.md").write_text("more")
    assert run().already_complete


def test_the_output_of_another_job_below_the_input_is_not_read(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(output=inputs / "older")
    run()
    assert documents(tmp_path / "out") == [b"a"]
    assert list(tokenmill.open(tmp_path / "out").manifest["left_out"]) == ["older/plan.json"]


def test_more_rejects_than_allowed_stop_the_job_which_can_go_on(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*"abcdefgh") + b"broken\n" * 2)
    with pytest.raises(RejectLimitError, match=r"2 of 10 records were rejected \(20 %: broken_json 2\)"):
        run(max_rejects="10%")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert len(rejects(tmp_path / "out")) == 2
    assert run(max_rejects="20%").complete
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_count_of_rejects_stops_the_job_at_once(inputs: Path, tmp_path: Path, run: Run) -> None:
    good, bad = texts("x" * 400_000), b"broken\n"
    (inputs / "a.jsonl").write_bytes(bad + good * 10 + bad)
    with pytest.raises(RejectLimitError):
        run(max_rejects=0)
    assert [r["detail"] for r in rejects(tmp_path / "out")] == ["Expecting value: line 1 column 1 (char 0)"]


def test_an_unreadable_file_does_not_stop_the_others(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").symlink_to(tmp_path / "late.jsonl")
    (inputs / "c.jsonl").write_bytes(texts("c"))
    result = run()
    assert not result.complete
    assert result.missing == {"b.jsonl": "b.jsonl cannot be read: No such file or directory"}
    assert documents(tmp_path / "out") == [b"a", b"c"]
    # Mended, the same job completes, and is what it would have been.
    (tmp_path / "late.jsonl").write_bytes(texts("b"))
    assert run().complete
    assert documents(tmp_path / "out") == [b"a", b"b", b"c"]
    run(output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_file_that_vanishes_after_the_plan_is_missing(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("b"))
    _after_plan(monkeypatch, lambda: (inputs / "b.jsonl").unlink())
    result = run()
    assert list(result.missing) == ["b.jsonl"]
    assert documents(tmp_path / "out") == [b"a"]


def test_a_file_that_changes_after_the_plan_is_never_mixed_in(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    (inputs / "b.jsonl").write_bytes(texts("b"))
    _after_plan(monkeypatch, lambda: (inputs / "b.jsonl").write_bytes(texts("changed")))
    result = run()
    assert result.missing == {"b.jsonl": "b.jsonl changed since the job was planned: restore it, or use --overwrite"}
    assert documents(tmp_path / "out") == [b"a"]
    with pytest.raises(DifferentJobError, match=r"input changed: b\.jsonl"):
        run()


def _after_plan(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """Do something to the inputs between planning and reading."""
    original = make_plan

    def plan_then_act(config: tokenmill.Config) -> Any:
        plan = original(config)
        action()
        monkeypatch.undo()
        return plan

    monkeypatch.setattr(execute, "make_plan", plan_then_act)


def test_strange_file_names_are_data(inputs: Path, tmp_path: Path, run: Run) -> None:
    names = ["new\nline.jsonl", "\x1b[31mred.jsonl", os.fsdecode(b"latin \xe9.jsonl"), "日本 😀.jsonl", "-o.jsonl"]
    for name in names:
        (inputs / name).write_bytes(texts("good") + b"broken\n")
    run()
    assert {r["file"] for r in rejects(tmp_path / "out")} == set(names)
    assert {d.file for d in tokenmill.open(tmp_path / "out").documents()} == set(names)


def test_wrong_inputs_are_refused_before_anything_is_written(inputs: Path, tmp_path: Path, run: Run) -> None:
    with pytest.raises(InputError):
        run()
    (inputs / "a.jsonl").write_bytes(texts("a"))
    with pytest.raises(TokenizerError):
        run(tokenizer="absent.json")
    with pytest.raises(tokenmill.ConfigError, match="no engine 'stream'; did you mean 'streaming'"):
        run(engine="stream")
    assert not (tmp_path / "out").exists()
