"""A block through parse and encode: what is encoded, what is rejected, and what is counted."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import BOS, EOS, PAD, jsonl, texts
from tests.support.units import ByteEncoder, tokenizer_of
from tokenmill.config import ReadOptions, SpecialTokens
from tokenmill.encode import Tokenizer
from tokenmill.errors import TokenizerError
from tokenmill.read.block import Block
from tokenmill.read.jsonl import JsonlParser, LinesBlock, newlines
from tokenmill.read.lines import Lines
from tokenmill.read.parquet import ParquetReader
from tokenmill.records import Documents, Ledger, Part, Reason, StageSeconds, TokenBatch
from tokenmill.storage.memory import MemoryStorage
from tokenmill.unit import process as processing
from tokenmill.unit.process import EncodedBlock, PartBlock, Processor
from tokenmill.unit.room import Unlimited


def lines_block(
    data: bytes | memoryview,
    offset: int = 0,
    id_field: str | None = None,
    release: Callable[[], None] | None = None,
) -> LinesBlock:
    lines = Lines(offset, 17, data, release)
    return LinesBlock(offset, 17, lines, newlines(data), JsonlParser("text", id_field, 1 << 20))


def processor(
    encoder: ByteEncoder | None = None,
    tokenizer: Tokenizer | None = None,
    mode: SpecialTokens = SpecialTokens.PLAIN,
    batch_size: int = 100,
) -> Processor:
    return Processor(mode, batch_size, tokenizer or tokenizer_of(), encoder or ByteEncoder(), Unlimited())


def process(data: bytes, *, id_field: str | None = None, **options: Any) -> EncodedBlock:
    return processor(**options)(PartBlock(0, lines_block(data, id_field=id_field), 0.25))


def tokens_of(encoded: EncodedBlock) -> list[list[int]]:
    return [b.tokens.token_ids[a:z].tolist() for b in encoded.batches for a, z in pairwise(b.tokens.offsets)]


def records_of(encoded: EncodedBlock) -> list[list[int]]:
    return [b.records.tolist() for b in encoded.batches]


def ids_of(encoded: EncodedBlock) -> list[list[bytes]]:
    return [b.document_ids for b in encoded.batches]


def test_a_block_is_encoded_and_counted() -> None:
    encoded = processor()(PartBlock(3, lines_block(texts("abc", "", "ü") + b"broken\n", offset=50), 0.25))
    assert tokens_of(encoded) == [list(b"abc"), list("ü".encode())]
    assert records_of(encoded) == [[0, 2]]
    assert (encoded.part, encoded.offset, encoded.consumed, encoded.lines) == (3, 50, 17, 4)
    assert [(r.record, r.reason) for r in encoded.rejects] == [(3, Reason.BROKEN_JSON)]
    assert encoded.ledger == Ledger(
        records=4,
        documents=2,
        empty=1,
        rejected=1,
        text_bytes=5,
        tokens=5,
        separators=2,
        rejects_by_reason={"broken_json": 1},
    )


@pytest.mark.parametrize(("eos", "bos", "separators"), [(True, False, 2), (False, False, 0), (True, True, 4)])
def test_separators_are_counted_as_they_will_be_written(eos: bool, bos: bool, separators: int) -> None:
    assert process(texts("a", "b"), tokenizer=tokenizer_of(eos, bos)).ledger.separators == separators


def test_documents_are_encoded_in_batches_with_their_numbers_and_ids() -> None:
    records = [{"text": f"t{n}", "id": n} for n in range(5)]
    encoder = ByteEncoder()
    encoded = process(b"\n" + jsonl(*records), id_field="id", encoder=encoder, batch_size=2)
    assert encoder.batches == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert records_of(encoded) == [[1, 2], [3, 4], [5]]
    assert ids_of(encoded) == [[b"0", b"1"], [b"2", b"3"], [b"4"]]
    assert encoded.ledger.documents == 5
    assert ids_of(process(jsonl(*records))) == [[]]


def test_documents_that_give_no_token_are_empty_and_leave_nothing() -> None:
    records = [{"text": t, "id": t} for t in ("  ", "a", " ", "b", "  ")]
    encoded = process(jsonl(*records), id_field="id")
    (batch,) = encoded.batches
    assert (batch.records.tolist(), batch.document_ids) == ([1, 3], [b'"a"', b'"b"'])
    assert (batch.tokens.token_ids.tolist(), batch.tokens.offsets.tolist()) == (list(b"ab"), [0, 1, 2])
    ledger = encoded.ledger
    assert (ledger.records, ledger.documents, ledger.empty, ledger.tokens, ledger.separators) == (5, 2, 3, 2, 2)
    assert ledger.text_bytes == 2 + 1 + 1 + 1 + 2
    assert records_of(process(texts(" "))) == [[]]
    assert tokens_of(process(texts("abc", " ", "de", "f"))) == [list(b"abc"), list(b"de"), list(b"f")]
    assert ids_of(process(jsonl({"text": " "}, {"text": "a"}))) == [[]]


def test_rejects_are_counted_by_reason() -> None:
    encoded = process(b"broken\n[]\nbroken\n" + texts("a"))
    assert encoded.ledger.rejects_by_reason == {"broken_json": 2, "not_an_object": 1}
    assert (encoded.ledger.records, encoded.ledger.rejected, encoded.ledger.documents) == (4, 3, 1)
    assert all(type(reason) is str for reason in encoded.ledger.rejects_by_reason)


def test_special_tokens_in_texts_are_counted_and_stay_unless_they_are_rejected() -> None:
    encoder = ByteEncoder()
    encoded = process(texts("a<|endoftext|><|bos|>", "b"), encoder=encoder)
    assert encoded.ledger.special_tokens_in_text == 2
    assert encoder.batches == [["a<|endoftext|><|bos|>", "b"]]
    assert encoded.rejects == []


def test_records_with_special_tokens_are_rejected_in_order_with_their_place() -> None:
    first, long = b"\n" + texts("ok"), "é" * 100 + "<|bos|>"
    second = texts("x<|endoftext|>y")
    block = lines_block(first + second + b"broken\n" + texts(long, "fine"), offset=1000, id_field="id")
    encoded = processor(mode=SpecialTokens.REJECT)(PartBlock(0, block, 0.0))
    assert tokens_of(encoded) == [list(b"ok"), list(b"fine")]
    assert records_of(encoded) == [[1, 5]]
    assert ids_of(encoded) == [[b"null", b"null"]]
    assert [(r.record, r.reason) for r in encoded.rejects] == [
        (2, Reason.SPECIAL_TOKEN),
        (3, Reason.BROKEN_JSON),
        (4, Reason.SPECIAL_TOKEN),
    ]
    one, _, other = encoded.rejects
    assert (one.offset, one.head) == (1000 + len(first), b"x<|endoftext|>y")
    assert one.detail == "the text contains the special token '<|endoftext|>'"
    assert other.offset == 1000 + len(first + second + b"broken\n")
    assert other.head == long.encode()[:160]
    ledger = encoded.ledger
    assert (ledger.special_tokens_in_text, ledger.rejected, ledger.documents, ledger.records) == (2, 3, 2, 5)
    assert ledger.text_bytes == len("okfine")


class Forging(ByteEncoder):
    """An encoder with a normalizer: @ becomes EOS, # padding, and ? what stands for unknown text."""

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        batch = super().encode(texts)
        table = np.arange(259, dtype=np.uint32)
        table[list(b"@#?")] = EOS, PAD, BOS
        return replace(batch, token_ids=table[batch.token_ids])


@pytest.mark.parametrize("mode", [SpecialTokens.PLAIN, SpecialTokens.REJECT])
def test_a_document_that_becomes_a_special_token_is_rejected_with_its_place(mode: SpecialTokens) -> None:
    """Whatever its text looks like: what counts is the ids."""
    first, long = b"\n" + texts("ok"), "é" * 100 + "#"
    second = texts("x@y#")
    block = lines_block(first + second + b"broken\n" + texts(long, "", "fine", " "), offset=1000, id_field="id")
    encoded = processor(Forging(), mode=mode)(PartBlock(0, block, 0.0))
    assert tokens_of(encoded) == [list(b"ok"), list(b"fine")]
    assert records_of(encoded) == [[1, 6]]
    assert ids_of(encoded) == [[b"null", b"null"]]
    assert [(r.record, r.reason, r.records) for r in encoded.rejects] == [
        (2, Reason.SPECIAL_TOKEN, 1),
        (3, Reason.BROKEN_JSON, 1),
        (4, Reason.SPECIAL_TOKEN, 1),
    ]
    one, _, other = encoded.rejects
    assert (one.offset, one.head) == (1000 + len(first), b"x@y#")
    assert one.detail == "the text becomes the special token '<|endoftext|>' when encoded"
    assert other.detail == "the text becomes the special token '<|padding|>' when encoded"
    assert (other.offset, other.head) == (1000 + len(first + second + b"broken\n"), long.encode()[:160])
    assert encoded.ledger == Ledger(
        records=7,
        documents=2,
        empty=2,
        rejected=3,
        text_bytes=len("okfine "),
        tokens=len("okfine"),
        separators=2,
        rejects_by_reason={"special_token": 2, "broken_json": 1},
    )


def test_forged_documents_of_every_batch_are_rejected_in_order() -> None:
    values = ("@", "a", "b", "c@", "d", "@", "@", "@")
    encoded = process(texts(*values), encoder=Forging(), batch_size=2)
    assert tokens_of(encoded) == [list(b"a"), list(b"b"), list(b"d")]
    assert records_of(encoded) == [[1], [2], [4], []]
    assert [(r.record, r.offset) for r in encoded.rejects] == [(n, len(texts(*values[:n]))) for n in (0, 3, 5, 6, 7)]
    assert (encoded.ledger.documents, encoded.ledger.rejected, encoded.ledger.empty) == (3, 5, 0)


def test_a_literal_that_is_rejected_and_one_that_becomes_a_token_are_told_apart() -> None:
    encoded = process(texts("a@", "<|bos|>", "b"), encoder=Forging(), mode=SpecialTokens.REJECT)
    assert [r.detail for r in encoded.rejects] == [
        "the text becomes the special token '<|endoftext|>' when encoded",
        "the text contains the special token '<|bos|>'",
    ]
    assert (tokens_of(encoded), encoded.ledger.special_tokens_in_text) == ([list(b"b")], 1)


def test_special_tokens_that_are_to_be_matched_are_kept() -> None:
    encoded = process(texts("a@#"), encoder=Forging(), mode=SpecialTokens.MATCH)
    assert (tokens_of(encoded), encoded.rejects) == ([[ord("a"), EOS, PAD]], [])


def test_the_token_for_unknown_text_is_not_a_forgery() -> None:
    encoded = process(texts("a?", "@"), encoder=Forging(), tokenizer=replace(tokenizer_of(), unk_id=BOS))
    assert (tokens_of(encoded), encoded.ledger.rejected) == ([[ord("a"), BOS]], 1)


def test_a_lent_block_is_given_back_when_the_places_of_its_forged_documents_are_known() -> None:
    held = bytearray(texts("ok", "@", "fine"))
    block = lines_block(memoryview(held), release=lambda: held.__setitem__(slice(None), b"?" * len(held)))
    encoded = processor(Forging())(PartBlock(0, block, 0.0))
    assert encoded.rejects[0].offset == len(texts("ok"))
    assert bytes(held) == b"?" * len(held)


def test_a_lent_block_is_searched_for_special_tokens_before_it_is_given_back() -> None:
    held = bytearray(texts("ok", "<|bos|>"))

    def release() -> None:
        held[:] = b"?" * len(held)

    block = lines_block(memoryview(held), release=release)
    encoded = processor(mode=SpecialTokens.REJECT)(PartBlock(0, block, 0.0))
    assert tokens_of(encoded) == [list(b"ok")]
    assert encoded.rejects[0].offset == len(texts("ok"))
    assert bytes(held) == b"?" * len(held)


def test_a_block_that_cannot_be_parsed_is_given_back_too() -> None:
    released = []

    class Unparsable(Block):
        def parse(self) -> Documents:
            raise TypeError

        def release(self) -> None:
            released.append(True)

    with pytest.raises(TypeError):
        processor()(PartBlock(0, Unparsable(0, 0), 0.0))
    assert released == [True]


def test_a_block_that_cannot_be_encoded_is_given_back_too() -> None:
    class Failing(ByteEncoder):
        def encode(self, texts: Sequence[str]) -> TokenBatch:
            raise TypeError(texts)

    released = []
    with pytest.raises(TypeError):
        processor(Failing())(PartBlock(0, lines_block(texts("a"), release=lambda: released.append(True)), 0.0))
    assert released == [True]


def test_the_place_of_a_rejected_row_of_parquet_is_its_number() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b", "<|bos|>"]}), file)
    source = MemoryStorage({"a.parquet": file.getvalue()}).open("a.parquet")
    (block,) = ParquetReader(source, Part(0), ReadOptions()).blocks(1)
    encoded = processor(mode=SpecialTokens.REJECT)(PartBlock(0, block, 0.0))
    assert [(r.record, r.offset) for r in encoded.rejects] == [(1, 2)]


def test_an_id_beyond_the_vocabulary_is_never_written() -> None:
    class Wrong(ByteEncoder):
        def encode(self, texts: Sequence[str]) -> TokenBatch:
            batch = super().encode(texts)
            return replace(batch, token_ids=batch.token_ids + np.uint32(259 - ord("a")))

    with pytest.raises(TokenizerError, match="gave id 259, but its vocabulary ends at 258"):
        process(texts("a"), encoder=Wrong())


def test_cpu_time_is_counted_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 102.0, 105.0])  # at the start, when all is parsed, when all is encoded
    monkeypatch.setattr(processing, "thread_time", lambda: next(times))
    found = process(texts(*["abc" * 200] * 200)).stage_seconds
    assert found == StageSeconds(read=0.25, parse=2.0, encode=3.0)
