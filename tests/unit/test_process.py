"""One unit by hand: a block through parse and encode, and the stages around it with what they keep between them."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from inspect import getgeneratorstate
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import BOS, EOS, PAD, jsonl, texts
from tokenmill.concat import Packer
from tokenmill.config import Config
from tokenmill.encode import Tokenizer
from tokenmill.engines.budget import Budget
from tokenmill.errors import LedgerError, OutputError, TokenizerError
from tokenmill.job.prepare import Job
from tokenmill.output.store import Store
from tokenmill.plan.make import make_plan
from tokenmill.read.jsonl import JsonlReader
from tokenmill.read.parquet import ParquetReader
from tokenmill.read.reader import open_reader
from tokenmill.read.ring import Ring
from tokenmill.records import Block, Codec, Ledger, Part, Reason, Receipt, StageSeconds, TokenBatch
from tokenmill.unit import process as processing
from tokenmill.unit import run as unit_run
from tokenmill.unit.process import Encoded, Processor, Source
from tokenmill.unit.run import UnitHooks, run_unit


class ByteEncoder:
    """Byte b is token b, as the tiny tokenizer has it. It strips spaces, so that a text may give no token."""

    name = "bytes"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        self.batches.append(list(texts))
        ids = [list(t.strip(" ").encode()) for t in texts]
        offsets = np.cumsum([0, *map(len, ids)]).astype(np.int64)
        return TokenBatch(np.array([i for d in ids for i in d], np.uint32), offsets)


def tokenizer_of(eos: bool = True, bos: bool = False) -> Tokenizer:
    return Tokenizer(
        name="bytes",
        data=b"{}",
        sha256="0",
        json="{}",
        vocab_size=259,
        special={"<|endoftext|>": EOS, "<|padding|>": PAD, "<|bos|>": BOS},
        eos_token="<|endoftext|>" if eos else None,
        eos_id=EOS if eos else None,
        bos_token="<|bos|>" if bos else None,
        bos_id=BOS if bos else None,
        pad_id=PAD,
    )


def config_of(**options: Any) -> Config:
    return Config(**{"inputs": ("in",), "output": Path("out"), "seq_len": 4, **options})


def process(
    data: bytes, *, tokenizer: Tokenizer | None = None, offset: int = 0, part: int = 0, **options: Any
) -> tuple[Encoded, ByteEncoder]:
    """A block of lines that begins at this offset."""
    config, encoder = config_of(**options), ByteEncoder()
    reader = JsonlReader(Path("none"), Codec.PLAIN, Part(0), config)
    block = Block(offset=offset, data=data, consumed=17)
    return Processor(config, tokenizer or tokenizer_of(), encoder)(Source(part, reader, block, 0.25)), encoder


def tokens_of(encoded: Encoded) -> list[list[int]]:
    return [b.tokens.ids[start:end].tolist() for b in encoded.batches for start, end in pairwise(b.tokens.offsets)]


def test_a_block_is_encoded_with_its_books() -> None:
    encoded, _ = process(texts("abc", "", "ü") + b"broken\n", part=3, offset=50)
    assert tokens_of(encoded) == [list(b"abc"), list("ü".encode())]
    assert [b.numbers.tolist() for b in encoded.batches] == [[0, 2]]
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
    assert process(texts("a", "b"), tokenizer=tokenizer_of(eos, bos))[0].ledger.separators == separators


def test_documents_are_encoded_in_batches_with_their_numbers_and_ids() -> None:
    records = [{"text": f"t{n}", "id": n} for n in range(5)]
    encoded, encoder = process(b"\n" + jsonl(*records), id_field="id", batch_size=2)
    assert encoder.batches == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert [b.numbers.tolist() for b in encoded.batches] == [[1, 2], [3, 4], [5]]
    assert [b.ids for b in encoded.batches] == [[b"0", b"1"], [b"2", b"3"], [b"4"]]
    assert encoded.ledger.documents == 5
    without, _ = process(jsonl(*records))
    assert [b.ids for b in without.batches] == [[]]


def test_documents_that_give_no_token_are_empty_and_leave_nothing() -> None:
    records = [{"text": t, "id": t} for t in ("  ", "a", " ", "b", "  ")]
    encoded, _ = process(jsonl(*records), id_field="id")
    (batch,) = encoded.batches
    assert (batch.numbers.tolist(), batch.ids) == ([1, 3], [b'"a"', b'"b"'])
    assert (batch.tokens.ids.tolist(), batch.tokens.offsets.tolist()) == (list(b"ab"), [0, 1, 2])
    ledger = encoded.ledger
    assert (ledger.records, ledger.documents, ledger.empty, ledger.tokens, ledger.separators) == (5, 2, 3, 2, 2)
    assert ledger.text_bytes == 2 + 1 + 1 + 1 + 2
    assert [b.numbers.tolist() for b in process(texts(" "))[0].batches] == [[]]
    assert tokens_of(process(texts("abc", " ", "de", "f"))[0]) == [list(b"abc"), list(b"de"), list(b"f")]
    assert process(jsonl({"text": " "}, {"text": "a"}))[0].batches[0].ids == []


def test_rejects_are_counted_by_reason() -> None:
    encoded, _ = process(b"broken\n[]\nbroken\n" + texts("a"))
    assert encoded.ledger.rejects_by_reason == {"broken_json": 2, "not_an_object": 1}
    assert (encoded.ledger.records, encoded.ledger.rejected, encoded.ledger.documents) == (4, 3, 1)
    assert all(type(reason) is str for reason in encoded.ledger.rejects_by_reason)


def test_special_tokens_in_texts_are_counted_and_stay_unless_they_are_rejected() -> None:
    data = texts("a<|endoftext|><|bos|>", "b")
    encoded, encoder = process(data)
    assert encoded.ledger.special_tokens_in_text == 2
    assert encoder.batches == [["a<|endoftext|><|bos|>", "b"]]
    assert encoded.rejects == []


def test_records_with_special_tokens_are_rejected_in_order_with_their_place() -> None:
    first, long = b"\n" + texts("ok"), "é" * 100 + "<|bos|>"
    second = texts("x<|endoftext|>y")
    data = first + second + b"broken\n" + texts(long, "fine")
    encoded, _ = process(data, special_tokens_in_text="reject", offset=1000, id_field="id")
    assert tokens_of(encoded) == [list(b"ok"), list(b"fine")]
    assert [b.numbers.tolist() for b in encoded.batches] == [[1, 5]]
    assert [b.ids for b in encoded.batches] == [[b"null", b"null"]]
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


def test_a_lent_block_is_looked_through_for_special_tokens_before_it_is_given_back() -> None:
    config = config_of(special_tokens_in_text="reject")
    held = bytearray(texts("ok", "<|bos|>"))

    def release() -> None:
        held[:] = b"?" * len(held)

    block = Block(offset=0, data=memoryview(held), consumed=0, release=release)
    reader = JsonlReader(Path("none"), Codec.PLAIN, Part(0), config)
    encoded = Processor(config, tokenizer_of(), ByteEncoder())(Source(0, reader, block, 0.0))
    assert tokens_of(encoded) == [list(b"ok")]
    assert encoded.rejects[0].offset == len(texts("ok"))
    assert bytes(held) == b"?" * len(held)


def test_a_block_that_cannot_be_parsed_is_given_back_too() -> None:
    released = []

    config = config_of()
    reader = JsonlReader(Path("none"), Codec.PLAIN, Part(0), config)
    block = Block(offset=0, data=None, consumed=0, release=lambda: released.append(True))
    with pytest.raises(TypeError):
        Processor(config, tokenizer_of(), ByteEncoder())(Source(0, reader, block, 0.0))
    assert released == [True]


def test_the_place_of_a_rejected_row_of_parquet_is_its_number(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b", "<|bos|>"]}), tmp_path / "a.parquet")
    config = config_of(special_tokens_in_text="reject")
    reader = ParquetReader(tmp_path / "a.parquet", Part(0), config)
    (block,) = reader.blocks(1)
    encoded = Processor(config, tokenizer_of(), ByteEncoder())(Source(0, reader, block, 0.0))
    assert [(r.record, r.offset) for r in encoded.rejects] == [(1, 2)]


def test_an_id_beyond_the_vocabulary_is_never_written() -> None:
    class Wrong(ByteEncoder):
        def encode(self, texts: Sequence[str]) -> TokenBatch:
            batch = super().encode(texts)
            return replace(batch, ids=batch.ids + np.uint32(259 - ord("a")))

    config = config_of()
    reader = JsonlReader(Path("none"), Codec.PLAIN, Part(0), config)
    source = Source(0, reader, Block(offset=0, data=texts("a"), consumed=0), 0.0)
    with pytest.raises(TokenizerError, match="gave id 259, but its vocabulary ends at 258"):
        Processor(config, tokenizer_of(), Wrong())(source)


def test_cpu_time_is_told_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 102.0, 105.0])  # at the start, when all is parsed, when all is encoded
    monkeypatch.setattr(processing, "thread_time", lambda: next(times))
    found = process(texts(*["abc" * 200] * 200))[0].stage_seconds
    assert found == StageSeconds(read=0.25, parse=2.0, encode=3.0)


# A unit


def job_of(folder: Path, files: dict[str, bytes], *, eos: bool = True, bos: bool = False, **options: Any) -> Job:
    """A job over these files, ready to run its units. Rows of 4 tokens, unless told otherwise."""
    inputs = folder / "in"
    inputs.mkdir(exist_ok=True)
    for name, data in files.items():
        (inputs / name).write_bytes(data)
    config = config_of(**{"inputs": (str(inputs),), "output": folder / "out", **options})
    plan = make_plan(config)
    budget = Budget(total=1 << 30, engine="streaming", workers=1)
    job = Job(config, plan, tokenizer_of(eos, bos), Store(config.output), budget)
    job.store.logs.mkdir(parents=True, exist_ok=True)
    job.store.prepare(job.description, plan, job.tokenizer.data)
    return job


class Told:
    """What a unit reported, added up."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.bytes = 0
        self.calls: list[tuple[int, int]] = []
        self.stage_seconds: list[StageSeconds] = []

    def __call__(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self.ledger.add(ledger)
        self.bytes += consumed
        self.calls.append((ledger.records, consumed))
        self.stage_seconds.append(stage_seconds)


class StopError(Exception):
    """Stands for whatever ends a run after a checkpoint."""


def after(count: int) -> Callable[[], None]:
    """Raises at the checkpoint of this number, from 1."""
    left = count

    def checkpointed() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StopError

    return checkpointed


def run_all(job: Job, **hooks: Any) -> list[Receipt]:
    return [run_unit(job, u, ByteEncoder(), Told(), UnitHooks(**hooks)) for u in job.plan.units()]


def written(job: Job) -> dict[str, bytes]:
    """Chunks, receipts and rejects."""
    folders = (job.store.chunks, job.store.units)
    return {p.name: p.read_bytes() for f in folders for p in sorted(f.iterdir())}


LINES = (
    jsonl(*({"text": "abcdefghijklmnopqrstuvwxyz"[: 3 + n % 11], "id": n} for n in range(12)))
    + b"broken\n"
    + jsonl({"text": "a long one " * 9, "id": "long"}, {"text": " ", "id": 1}, {"text": "end", "id": 2})
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, so that a unit has many."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 128)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("batches", "tail", "id_field"),
    [(False, "pad", None), (False, "drop", "id"), (True, "pad", "id"), (True, "drop", None)],
    ids=["chunks, padded", "chunks with ids, dropped", "batches with ids, padded", "batches, dropped"],
)
def test_a_unit_interrupted_after_any_checkpoint_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: bool, tail: str, id_field: str | None
) -> None:
    """After each of them once, and once again and again until it is done."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # this is about what is written, not when
    files = {"a.jsonl": LINES, "b.txt": b"between", "c.jsonl": b"[]\n" + LINES[:300]}
    options: dict[str, Any] = {"sequences_per_chunk": 8, "tail": tail, "id_field": id_field, "batch_size": 3}
    job = job_of(tmp_path, files, **options)
    unit = job.plan.unit(0)

    def attempt(checkpointed: Callable[[], None]) -> tuple[Receipt | None, Told]:
        told = Told()
        hooks = UnitHooks(checkpoint_batches=batches, checkpointed=checkpointed)
        try:
            return run_unit(job, unit, ByteEncoder(), told, hooks), told
        except StopError:
            return None, told

    count = Counter[str]()
    wanted, first = attempt(lambda: count.update(["checkpoints"]))
    assert wanted is not None
    whole = written(job)
    # The tail becomes known only when all is read.
    assert first.ledger == replace(wanted.ledger, padding=0, rows=0, dropped_tokens=0, dropped_documents=0)
    assert count["checkpoints"] > 8
    for place in range(1, count["checkpoints"] + 1):
        job.store.reset([unit])
        assert attempt(after(place))[0] is None
        receipt, told = attempt(lambda: None)
        assert receipt == wanted
        assert written(job) == whole
        # A resumed unit tells first what it had before, so that the second run told of everything.
        assert (told.ledger, told.bytes) == (first.ledger, unit.size)
        assert all(isinstance(stage_seconds, StageSeconds) for stage_seconds in told.stage_seconds)
    job.store.reset([unit])
    # After a restart the batches of the block come again: who stops at the first checkpoint each time gets nowhere.
    runs = 1
    while attempt(after(6 if batches else 1))[0] is None:
        runs += 1
    assert runs > 3
    assert written(job) == whole


def test_a_unit_has_its_receipt_with_everything_that_was_written(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc", "", "defgh") + b"x\n"}, sequences_per_chunk=2, id_field="id")
    told = Told()
    receipt = run_unit(job, job.plan.unit(0), ByteEncoder(), told)
    assert receipt.ledger == Ledger(
        records=4,
        documents=2,
        empty=1,
        rejected=1,
        text_bytes=8,
        tokens=8,
        separators=2,
        padding=2,
        rows=3,
        rejects_by_reason={"broken_json": 1},
    )
    assert [(c.name, c.rows, c.tokens, c.documents) for c in receipt.chunks] == [
        ("00000-0000", 2, 8, 1),
        ("00000-0001", 1, 2, 1),
    ]
    assert (receipt.unit, receipt.lines, receipt.missing) == (0, (4,), {})
    rejects = job.store.rejects_path(job.plan.unit(0)).read_bytes()
    assert receipt.rejects_bytes == len(rejects)
    assert json.loads(rejects) == {
        "part": 0,
        "record": 3,
        "offset": len(texts("abc", "", "defgh")),
        "reason": "broken_json",
        "detail": "Expecting value: line 1 column 1 (char 0)",
        "records": 1,
        "head": "x",
    }
    assert np.load(job.store.chunks / "00000-0000.npy").tolist() == [[*b"abc", EOS], [*b"defg"]]
    assert np.load(job.store.chunks / "00000-0001.npy").tolist() == [[*b"h", EOS, PAD, PAD]]
    docs = [np.load(job.store.chunks / f"00000-000{n}.docs.npy").tolist() for n in (0, 1)]
    assert docs == [[(4, 0, 0)], [(2, 2, 0)]]
    ids = [(job.store.chunks / f"00000-000{n}.ids.jsonl").read_bytes() for n in (0, 1)]
    assert ids == [b"null\n", b"null\n"]
    assert sorted(p.name for p in job.store.units.iterdir()) == ["00000.json", "00000.rejects.jsonl"]
    assert list(job.store.temporary.iterdir()) == []
    assert job.store.receipt(job.plan.unit(0)) == receipt
    assert told.bytes == job.plan.unit(0).size
    assert sum(records for records, _ in told.calls) == 4


def test_a_unit_without_rejects_leaves_no_list_of_them(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc")})
    (receipt,) = run_all(job)
    assert (receipt.rejects_bytes, receipt.rejects_xxh3) == (0, None)
    assert [c.ids_xxh3 for c in receipt.chunks] == [None]
    assert len(list(job.store.chunks.iterdir())) == 2
    assert sorted(p.name for p in job.store.units.iterdir()) == ["00000.json"]


def test_a_dropped_tail_is_counted_and_written_nowhere(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abcde", "f")}, tail="drop")
    (receipt,) = run_all(job)
    ledger = receipt.ledger
    assert (ledger.rows, ledger.dropped_tokens, ledger.dropped_documents, ledger.padding) == (2, 0, 0, 0)
    job = job_of(tmp_path, {"a.jsonl": texts("abcd", "f", "g")}, tail="drop", overwrite=True)
    job.store.reset([job.plan.unit(0)])
    (receipt,) = run_all(job)
    ledger = receipt.ledger
    assert (ledger.rows, ledger.dropped_tokens, ledger.dropped_documents, ledger.documents) == (2, 1, 1, 3)
    assert np.load(job.store.chunks / "00000-0000.npy").tolist() == [[*b"abcd"], [EOS, *b"f", EOS, *b"g"]]


@pytest.mark.usefixtures("small_blocks")
def test_record_numbers_count_on_within_a_part_and_begin_anew_in_the_next(tmp_path: Path) -> None:
    lines = texts(*(f"text {n}" for n in range(30)))
    job = job_of(tmp_path, {"a.jsonl": lines, "b.jsonl": b"\nbroken\n" + lines}, max_rejects="100%")
    (receipt,) = run_all(job)
    assert receipt.lines == (30, 32)
    docs = np.load(job.store.chunks / "00000-0000.docs.npy")
    assert docs["record"].tolist() == [*range(30), *range(2, 32)]
    assert docs["file"].tolist() == [0] * 30 + [1] * 30
    (reject,) = job.store.rejects_path(job.plan.unit(0)).read_text().splitlines()
    assert (json.loads(reject)["part"], json.loads(reject)["record"]) == (1, 1)


def test_a_file_that_cannot_be_read_leaves_nothing_behind_and_is_named(tmp_path: Path) -> None:
    files = {"a.jsonl": texts("abc"), "b.jsonl": texts("gone"), "c.jsonl": texts("def") + b"x\n"}
    job = job_of(tmp_path, files, max_rejects="100%")
    (tmp_path / "in" / "b.jsonl").unlink()
    told = Told()
    receipt = run_unit(job, job.plan.unit(0), ByteEncoder(), told)
    assert receipt.missing == {1: "b.jsonl cannot be read: No such file or directory"}
    assert (receipt.lines, receipt.ledger.documents, receipt.ledger.records) == ((1, 0, 2), 2, 3)
    assert np.load(job.store.chunks / "00000-0000.npy").tolist() == [[*b"abc", EOS], [*b"def", EOS]]
    # What was told before the failure was taken back.
    assert told.ledger == replace(receipt.ledger, rows=0, padding=0)
    assert told.bytes == job.plan.unit(0).size


@pytest.mark.parametrize("data", [texts("other"), texts("abcdef")], ids=["same size", "other size"])
def test_a_file_that_is_not_what_was_planned_is_not_read(tmp_path: Path, data: bytes) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("first"), "b.jsonl": texts("b")})
    (tmp_path / "in" / "a.jsonl").write_bytes(data)
    (receipt,) = run_all(job)
    assert receipt.missing == {0: "a.jsonl changed since the job was planned: restore it, or use --overwrite"}
    assert receipt.ledger.documents == 1


def test_a_file_that_changes_while_it_is_read_leaves_nothing_behind(tmp_path: Path) -> None:
    """Though some of it was in chunks and in a checkpoint by then."""
    job = job_of(tmp_path, {"a.jsonl": texts("first" * 5), "b.jsonl": texts("b")}, sequences_per_chunk=1)

    def touch_first(function: Callable[[Source], Encoded], items: Iterable[Source]) -> Iterator[Encoded]:
        for source in items:
            if source.part == 0:
                os.utime(tmp_path / "in" / "a.jsonl", ns=(1, 1))
            yield function(source)

    checkpoints = Counter[str]()
    told = Told()
    hooks = UnitHooks(ordered_map=touch_first, checkpointed=lambda: checkpoints.update(["made"]))
    receipt = run_unit(job, job.plan.unit(0), ByteEncoder(), told, hooks)
    assert checkpoints["made"] == 6
    assert receipt.missing == {0: "a.jsonl changed while it was read: restore it, or use --overwrite"}
    assert (receipt.ledger.documents, receipt.lines, len(receipt.chunks)) == (1, (0, 1), 1)
    assert np.load(job.store.chunks / "00000-0000.npy").tolist() == [[*b"b", EOS, PAD, PAD]]
    assert len(list(job.store.chunks.iterdir())) == 2
    assert (told.ledger.records, told.bytes) == (1, job.plan.unit(0).size)
    assert all(isinstance(stage_seconds, StageSeconds) for stage_seconds in told.stage_seconds)


def test_a_file_that_could_not_be_read_when_it_was_planned_is_not_tried(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").symlink_to(tmp_path / "later.jsonl")
    job = job_of(tmp_path, {"b.jsonl": texts("b")})
    (tmp_path / "later.jsonl").write_bytes(texts("here by now"))
    (receipt,) = run_all(job)
    assert receipt.missing == {0: "a.jsonl cannot be read: No such file or directory"}
    assert receipt.ledger.documents == 1


def test_a_unit_that_cannot_be_written_says_so_and_what_to_do(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc")})
    job.store.chunks.rmdir()
    job.store.chunks.write_text("in the way")
    with pytest.raises(OutputError) as error:
        run_all(job)
    assert str(error.value) == (
        f"cannot write unit 00000 to {job.store.root}: Not a directory. Everything committed is safe: mend this and "
        "run the same command again"
    )
    assert isinstance(error.value.__cause__, OSError)
    assert error.value.__cause__.errno == errno.ENOTDIR


def test_books_that_do_not_balance_are_never_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is planted: a packer that forgets what it drops."""
    monkeypatch.setattr(Packer, "drop", lambda _: (0, 0))
    job = job_of(tmp_path, {"a.jsonl": texts("abc", "d")}, tail="drop")
    with pytest.raises(LedgerError, match="unit 00000: tokens do not add up"):
        run_all(job)
    assert job.store.receipt(job.plan.unit(0)) is None


def test_a_checkpoint_tells_where_to_go_on(tmp_path: Path) -> None:
    """Of one block: it begins at 0, and what is in chunks of it is passed over."""
    job = job_of(tmp_path, {"a.jsonl": texts("abcdefghijk", "m")}, sequences_per_chunk=1)
    unit = job.plan.unit(0)
    with pytest.raises(StopError):
        run_unit(job, unit, ByteEncoder(), Told(), UnitHooks(checkpointed=after(2)))
    checkpoint = job.store.checkpoint(unit)
    assert checkpoint is not None
    assert (checkpoint.part, checkpoint.offset, checkpoint.skip) == (0, 0, 8)
    assert [c.name for c in checkpoint.chunks] == ["00000-0000", "00000-0001"]
    assert (checkpoint.ledger, checkpoint.lines, checkpoint.rejects_bytes) == (Ledger(), (0,), 0)
    assert job.checkpoint(unit) == checkpoint


def test_a_unit_that_went_on_without_a_file_begins_anew(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("a"), "b.jsonl": texts("bcdefgh" * 5)}, sequences_per_chunk=1)
    unit = job.plan.unit(0)
    (tmp_path / "in" / "a.jsonl").rename(tmp_path / "away")
    with pytest.raises(StopError):
        run_unit(job, unit, ByteEncoder(), Told(), UnitHooks(checkpointed=after(2)))
    saved = job.store.checkpoint(unit)
    assert saved is not None
    assert saved.missing
    assert job.checkpoint(unit) is None
    (tmp_path / "away").rename(tmp_path / "in" / "a.jsonl")
    receipt = run_unit(job, unit, ByteEncoder(), Told())
    assert (receipt.missing, receipt.ledger.documents) == ({}, 2)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_come_with_the_cpu_time_of_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, {"a.jsonl": LINES}, max_rejects="100%")
    told = Told()
    clock = itertools.count()  # which a second passes on each time it is looked at
    monkeypatch.setattr(processing, "thread_time", lambda: float(next(clock)))
    monkeypatch.setattr(unit_run, "thread_time", lambda: float(next(clock)))
    run_unit(job, job.plan.unit(0), ByteEncoder(), told)
    assert len(told.stage_seconds) > 3
    for stage_seconds in told.stage_seconds:
        assert min(asdict(stage_seconds).values()) >= 0
    total = StageSeconds()
    for stage_seconds in told.stage_seconds:
        total.add(stage_seconds)
    assert min(asdict(total).values()) > 0
    assert sum(asdict(total).values()) < next(clock)


def test_a_damaged_checkpoint_is_called_that(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc")})
    (job.store.units / "00000.checkpoint.json").write_text("{}")
    with pytest.raises(OutputError, match=r"^/.*/00000\.checkpoint\.json is damaged .* Remove it to have"):
        run_all(job)


def test_a_unit_that_is_stopped_lets_go_of_its_results_then_of_its_blocks_then_of_its_files(tmp_path: Path) -> None:
    """Whatever computes results must have let go of a block before the file that it is from is closed."""
    job = job_of(tmp_path, {"a.jsonl": texts("abc" * 9)}, sequences_per_chunk=2, id_field="id")
    before = os.listdir("/proc/self/fd")
    closed = []

    def ordered(function: Callable[[Source], Encoded], items: Iterable[Source]) -> Iterator[Encoded]:
        assert isinstance(items, Generator)
        try:
            for source in items:
                yield function(source)
        finally:
            closed.append((getgeneratorstate(items), len(os.listdir("/proc/self/fd")) > len(before)))

    def stop(*_: object) -> None:
        raise StopError

    with pytest.raises(StopError) as error:
        run_unit(job, job.plan.unit(0), ByteEncoder(), stop, UnitHooks(ordered_map=ordered))
    assert closed == [("GEN_SUSPENDED", True)]
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert error.tb is not None  # which keeps everything alive: nothing was closed by going out of use


def interrupted(folder: Path, **options: Any) -> Job:
    """A job whose unit has a checkpoint with one chunk behind its first block, and a row of the next on disk."""
    lines = b"broken\n" + texts("abc") + b"\n" * 200 + texts("defghi" * 3)
    job = job_of(folder, {"a.jsonl": lines}, sequences_per_chunk=1, **options)
    with pytest.raises(StopError):
        run_unit(job, job.plan.unit(0), ByteEncoder(), Told(), UnitHooks(checkpointed=after(2)))
    return job


@pytest.mark.usefixtures("small_blocks")
def test_a_resumed_unit_tells_first_what_it_had_before(tmp_path: Path) -> None:
    job = interrupted(tmp_path)
    checkpoint = job.checkpoint(job.plan.unit(0))
    assert checkpoint is not None
    assert (checkpoint.ledger.records, checkpoint.ledger.rejected) == (2, 1)
    told = Told()
    receipt = run_unit(job, job.plan.unit(0), ByteEncoder(), told)
    assert told.calls[0] == (2, 0)
    assert told.stage_seconds[0] == StageSeconds()
    assert told.bytes == job.plan.unit(0).size
    assert (receipt.ledger.records, receipt.lines) == (3, (203,))
    assert len(job.store.rejects_path(job.plan.unit(0)).read_text().splitlines()) == 1


@pytest.mark.usefixtures("small_blocks")
def test_a_unit_that_is_stopped_as_it_is_resumed_leaves_no_file_open(tmp_path: Path) -> None:
    job = interrupted(tmp_path)
    before = os.listdir("/proc/self/fd")

    def stop(*_: object) -> None:
        raise StopError

    with pytest.raises(StopError) as error:
        run_unit(job, job.plan.unit(0), ByteEncoder(), stop)
    assert error.tb is not None
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_unit_that_cannot_go_on_with_its_chunk_leaves_no_file_open(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abcdefghi")})
    unit = job.plan.unit(0)
    with pytest.raises(StopError):
        run_unit(job, unit, ByteEncoder(), Told(), UnitHooks(checkpoint_batches=True, checkpointed=after(1)))
    sidecar = job.store.temporary / "00000-0000.docs.npy"
    sidecar.unlink()  # of no document, so that nobody misses it
    sidecar.mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OutputError, match=r"cannot write unit 00000 to .*: Is a directory") as error:
        run_unit(job, unit, ByteEncoder(), Told())
    assert error.tb is not None
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_chunks_that_a_dead_run_left_behind_its_checkpoint_go(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc")})
    (job.store.chunks / "00000-0000.ids.jsonl").write_text("of a run with other options")
    (job.store.chunks / "00000-0001.npy").write_text("of a run that came further")
    run_all(job)
    assert sorted(p.name for p in job.store.chunks.iterdir()) == ["00000-0000.docs.npy", "00000-0000.npy"]


def test_rejects_can_be_read_as_soon_as_they_are_told_of(tmp_path: Path) -> None:
    """For a job with too many of them stops there, and lists them."""
    job = job_of(tmp_path, {"a.jsonl": texts("abc") + b"broken\n"})
    unit = job.plan.unit(0)
    found = []

    def update(ledger: Ledger, *_: object) -> None:
        if ledger.rejected:
            found.append(json.loads(job.store.rejects_path(unit).read_text())["record"])

    run_unit(job, unit, ByteEncoder(), update)
    assert found == [1]


def test_rejects_are_on_disk_before_a_checkpoint_or_a_receipt_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path, {"a.jsonl": b"broken\n" + texts("abcdefghi") + b"[]\n"}, sequences_per_chunk=1)
    rejects = job.store.rejects_path(job.plan.unit(0))
    synced: list[tuple[str, int]] = []

    def fsync(handle: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{handle}")), os.fstat(handle).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    run_all(job)
    whole = (rejects.name, rejects.stat().st_size)
    order = [entry for entry in synced if entry == whole or "json" in entry[0]]
    assert [name for name, _ in order] == [
        rejects.name,
        "00000.checkpoint.json",
        rejects.name,
        "00000.checkpoint.json",
        rejects.name,
        "00000.json",
    ]
    assert {size for name, size in order if name == rejects.name} == {whole[1]}


def test_the_head_of_a_reject_is_readable_whatever_it_was(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": '{"text": "é'.encode() + b'\xff"}\n'})
    run_all(job)
    (reject,) = job.store.rejects_path(job.plan.unit(0)).read_text().splitlines()
    assert json.loads(reject)["head"] == '{"text": "é\\xff"}'


def test_rejects_that_a_dead_run_left_behind_its_checkpoint_go(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc")})
    job.store.rejects_path(job.plan.unit(0)).write_bytes(b"of a run that came further\n")
    (receipt,) = run_all(job)
    assert (receipt.rejects_bytes, receipt.rejects_xxh3) == (0, None)
    assert not job.store.rejects_path(job.plan.unit(0)).exists()


def test_documents_are_framed_as_the_tokenizer_says(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("a", "b")}, eos=False, bos=True)
    (receipt,) = run_all(job)
    assert np.load(job.store.chunks / "00000-0000.npy").tolist() == [[BOS, *b"a", BOS, *b"b"]]
    assert receipt.ledger.separators == 2


def test_blocks_are_read_into_the_buffers_of_a_ring_if_there_is_one(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("abc")})
    lent = []

    class Watched(Ring):
        def lend(self, size: int = 0) -> tuple[memoryview, Callable[[], None]]:
            lent.append(size)
            return super().lend(size)

    (receipt,) = run_all(job, ring=Watched())
    assert lent
    assert receipt.ledger.documents == 1


def test_readers_are_chosen_by_format(tmp_path: Path) -> None:
    job = job_of(tmp_path, {"a.jsonl": texts("a"), "b.txt": b"b"})
    unit = job.plan.unit(0)
    kinds = [
        type(open_reader(tmp_path / "in" / f.name, f, p, job.config)).__name__
        for p, f in zip(unit.parts, unit.files, strict=True)
    ]
    assert kinds == ["JsonlReader", "TextReader"]
