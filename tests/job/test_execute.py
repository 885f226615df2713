"""Whole jobs: what comes out and what is counted."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from tests.conftest import (
    BOS,
    EOS,
    PAD,
    Run,
    SmallUnits,
    documents,
    ids,
    jsonl,
    rejects,
    texts,
    tiny_tokenizer_json,
    tree,
)
from tests.support.compression import COMPRESS, SUFFIX
from tokenmill.records import Codec


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
    for name, codec in zip("bcde", COMPRESS, strict=True):
        (inputs / f"{name}.jsonl{SUFFIX[codec]}").write_bytes(COMPRESS[codec](data))
    pq.write_table(pa.table({"text": values}), inputs / "f.parquet", row_group_size=3)
    (inputs / "g.txt").write_text("\ufeffone file\r\n")
    run()
    assert documents(tmp_path / "out") == [v.encode() for v in values] * 6 + [b"one file\r\n"]
    sources = [(d.file, d.record) for d in tokenmill.open(tmp_path / "out").documents()]
    assert sources[:2] == [("a.jsonl", 1), ("a.jsonl", 2)]
    assert sources[-2:] == [("f.parquet", 7), ("g.txt", 1)]


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.jsonl"])
@pytest.mark.parametrize("kind", [0x50, 0x5F])
def test_skippable_frames_of_zstd_are_no_data(inputs: Path, tmp_path: Path, run: Run, name: str, kind: int) -> None:
    """First, between and last, as tools for seeking and signing write them; whatever the name says."""
    frame = bytes([kind]) + b"\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"index"
    one, two = zstd.compress(texts("one")), zstd.compress(texts("two"))
    (inputs / name).write_bytes(frame + one + frame + two + frame)
    ledger = run().ledger
    assert documents(tmp_path / "out") == [b"one", b"two"]
    assert (ledger.records, ledger.rejected) == (2, 0)
    assert tokenmill.open(tmp_path / "out").manifest["inputs"][0]["codec"] == "zstd"


def test_the_sidecar_leads_back_to_the_line(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(b"\n" + texts("one") + b"broken\n" + texts("", "two"))
    run()
    found = [(d.file, d.record) for d in tokenmill.open(tmp_path / "out").documents()]
    assert found == [("a.jsonl", 2), ("a.jsonl", 5)]


def test_line_numbers_are_absolute_in_a_file_that_was_cut(
    inputs: Path, tmp_path: Path, run: Run, small_units: SmallUnits
) -> None:
    small_units(500, file_cost=0)
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


LIBRARY: dict[Codec, Callable[[], Any]] = {
    Codec.GZIP: lambda: zlib.decompressobj(31),
    Codec.ZSTD: zstd.ZstdDecompressor,
    Codec.BZIP2: bz2.BZ2Decompressor,
    Codec.XZ: lzma.LZMADecompressor,
}


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_truncated_file_gives_every_line_before_the_end_and_one_reject(
    inputs: Path, tmp_path: Path, run: Run, codec: Codec
) -> None:
    rng = np.random.default_rng(0)
    values = [rng.bytes(400).hex() for _ in range(2000)]
    data = COMPRESS[codec](texts(*values))
    name = f"a.jsonl{SUFFIX[codec]}"
    (inputs / name).write_bytes(data[: len(data) // 2])
    result = run()
    found = documents(tmp_path / "out")
    assert len(found) == LIBRARY[codec]().decompress(data[: len(data) // 2]).count(b"\n") > 500
    assert found == [v.encode() for v in values[: len(found)]]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["file"], reject["reason"], reject["line"]) == (name, "truncated_file", len(found) + 1)
    assert result.ledger.records == len(found) + 1


CHECKSUM_AT = {Codec.GZIP: -8, Codec.ZSTD: -2, Codec.BZIP2: -3, Codec.XZ: -1}


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_whole_record_right_before_the_break_is_kept(inputs: Path, tmp_path: Path, run: Run, codec: Codec) -> None:
    """Also the last one, whose line has no end: a wrong checksum behind it takes nothing away."""
    data = bytearray(COMPRESS[codec](texts("one") + texts("two").rstrip(b"\n")))
    data[CHECKSUM_AT[codec]] ^= 1
    (inputs / f"a.jsonl{SUFFIX[codec]}").write_bytes(data)
    ledger = run().ledger
    assert documents(tmp_path / "out") == [b"one", b"two"]
    assert [d.record for d in tokenmill.open(tmp_path / "out").documents()] == [1, 2]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["reason"], reject["line"], reject["records"]) == ("corrupt_file", 2, 1)
    assert reject["offset"] == len(texts("one", "two")) - 1
    assert (ledger.records, ledger.documents, ledger.rejected) == (3, 2, 1)


def test_half_a_record_before_the_break_is_part_of_the_break(inputs: Path, tmp_path: Path, run: Run) -> None:
    data = bytearray(gzip.compress(texts("one") + b'{"text": "tw'))
    data[-8] ^= 1
    (inputs / "a.jsonl.gz").write_bytes(data)
    ledger = run().ledger
    assert documents(tmp_path / "out") == [b"one"]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["reason"], reject["line"], reject["head"]) == ("corrupt_file", 2, '{"text": "tw')
    assert (ledger.records, ledger.documents, ledger.rejected) == (2, 1, 1)


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
