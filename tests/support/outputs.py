"""Outputs made by hand: units, receipts, chunks and rejects as small as can be, in memory or in a folder."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.support.units import ByteEncoder, Reports, tokenizer_of, unit_of
from tokenmill.config import Config
from tokenmill.encode import Tokenizer
from tokenmill.job.prepare import Job
from tokenmill.output import layout
from tokenmill.output.plan_file import Plan, Skipped
from tokenmill.output.receipts import Receipts
from tokenmill.output.schema import Checkpoint, Receipt, StoredJob, StoredOptions, StoredTokenizer
from tokenmill.output.store import Store
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Codec, Format, InputFile, Ledger, Part, Partial, Unit
from tokenmill.storage.base import Storage
from tokenmill.storage.memory import MemoryStorage
from tokenmill.unit.run import run_unit

U2 = np.dtype("<u2")
SEQ_LEN = 4


def file(name: str, kind: Format = Format.JSONL, **more: Any) -> InputFile:
    known: dict[str, Any] = {"size": 10, "fingerprint": "f", "codec": Codec.PLAIN}
    return InputFile(name=name, format=kind, **known | more)


UNIT = Unit(7, (Part(0), Part(1)), (file("a.jsonl"), file("b.jsonl")), 20)


def plan_of(*parts: list[Part]) -> Plan:
    """Units with these parts, of files named by their numbers."""
    return Plan.of(Unit(n, tuple(p), tuple(file(f"{q.file}.jsonl") for q in p), 10) for n, p in enumerate(parts))


def stored_job(**options: Any) -> StoredJob:
    defaults: dict[str, Any] = {
        "text_field": "text",
        "id_field": None,
        "special_tokens_in_text": "plain",
        "eos_token": "<|endoftext|>",
        "bos_token": None,
        "seq_len": SEQ_LEN,
        "sequences_per_chunk": 2,
        "tail": "pad",
        "max_document_bytes": 1000,
    }
    tokenizer = StoredTokenizer(
        name="bytes", sha256="0", vocab_size=259, eos_id=256, bos_id=None, pad_id=257, dtype="uint16"
    )
    return StoredJob(options=StoredOptions(**defaults | options), tokenizer=tokenizer)


def chunk_entry(number: int = 0, unit: Unit = UNIT, **changes: Any) -> ChunkEntry:
    name = layout.chunk_name(unit, number)
    bare = ChunkEntry(name=name, rows=2, tokens=8, documents=1, xxh3="a", docs_xxh3="b")
    return msgspec.structs.replace(bare, **changes)


def receipt_of(unit: int = 7, lines: tuple[int, ...] = (3, 4), **changes: Any) -> Receipt:
    bare = Receipt(unit=unit, ledger=Ledger(), chunks=(), lines=lines, rejects_bytes=0, rejects_xxh3=None, missing={})
    return msgspec.structs.replace(bare, **changes)


def checkpoint_of(**changes: Any) -> Checkpoint:
    """One of UNIT, with two chunks and some of a third."""
    bare = Checkpoint(
        unit=UNIT.index,
        part=1,
        offset=20,
        skip=5,
        ledger=Ledger(records=3, rejects_by_reason={"broken_json": 2}),
        chunks=(chunk_entry(), chunk_entry(1, ids_xxh3="c")),
        lines=(3, 4),
        rejects_bytes=9,
        missing={},
        partial=Partial(tokens=4, documents=2, ids_bytes=1),
    )
    return msgspec.structs.replace(bare, **changes)


def reject_line(part: int, record: int, records: int = 1) -> bytes:
    """A line of a unit's list."""
    entry = {"part": part, "record": record, "offset": 7, "reason": "broken_json", "detail": "no", "records": records}
    return json.dumps(entry | {"head": "x"}).encode() + b"\n"


def receipts_in(storage: Storage) -> Receipts:
    return Receipts(storage, SEQ_LEN, U2)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def chunk_files(chunk: ChunkEntry) -> dict[str, bytes]:
    """Files of the sizes that a chunk must have, by their base names."""
    files = {
        f"{chunk.name}.npy": npy(np.zeros((chunk.rows, SEQ_LEN), U2)),
        f"{chunk.name}.docs.npy": npy(np.zeros(chunk.documents, SIDECAR_DTYPE)),
    }
    return files | ({f"{chunk.name}.ids.jsonl": b"ids"} if chunk.ids_xxh3 else {})


def publish_chunk(storage: Storage, chunk: ChunkEntry) -> None:
    for name, data in chunk_files(chunk).items():
        storage.publish(f"chunks/{name}", [data])


def put(storage: Storage, *names: str, data: bytes = b"") -> None:
    """Publish files of the same content."""
    for name in names:
        storage.publish(name, [data])


def names_after_power_loss(storage: MemoryStorage) -> Iterator[set[str]]:
    """All that may be found: of each folder what was synced, or what there is now, whatever the others are."""
    now, synced = set(storage.files()), set(storage.after_power_loss().files())
    folders = sorted({name.rpartition("/")[0] for name in now | synced})
    for count in range(len(folders) + 1):
        for early in combinations(folders, count):
            yield {n for n in now if n.rpartition("/")[0] in early} | {
                n for n in synced if n.rpartition("/")[0] not in early
            }


def draft_names(storage: Storage) -> set[str]:
    return {name for name, _ in storage.drafts()}


def write_draft(storage: Storage, name: str, data: bytes = b"") -> None:
    with closing(storage.draft(name)) as draft:
        draft.write(data)


# Jobs


def job_of(
    files: dict[str, bytes], storage: Storage | None = None, tokenizer: Tokenizer | None = None, **options: Any
) -> Job:
    """A job of one unit over these files, prepared to run. Rows of 4 tokens, in memory, unless told otherwise."""
    inputs = MemoryStorage(files)
    config = Config(**{"inputs": ("in",), "output": Path("out"), "seq_len": SEQ_LEN, **options})
    plan = Plan.of([unit_of(inputs)])
    job = Job(config, plan, Skipped(), inputs, tokenizer or tokenizer_of(), Store(storage or MemoryStorage()))
    job.store.prepare(job.description, plan, job.tokenizer.data, b"in")
    return job


def run_units(job: Job) -> list[Receipt]:
    """Every unit, and no more."""
    return [run_unit(job.unit_setup(), unit, ByteEncoder(), Reports()) for unit in job.plan.units()]
