"""Units by hand: ids that are bytes, files and output in memory or in a folder, and all that a unit reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import BOS, EOS, PAD
from tokenmill.config import ContentOptions
from tokenmill.encode import Tokenizer
from tokenmill.output.open import output_storage
from tokenmill.output.plan_file import Plan
from tokenmill.output.receipts import Receipts
from tokenmill.output.schema import Receipt
from tokenmill.plan.cut import cut_units
from tokenmill.read.corpus import Corpus
from tokenmill.records import Ledger, StageSeconds, TokenBatch, Unit
from tokenmill.storage.base import Reading, Storage
from tokenmill.storage.local import LocalStorage
from tokenmill.storage.memory import MemoryStorage
from tokenmill.unit.reported import Update
from tokenmill.unit.run import UnitHooks, run_unit
from tokenmill.unit.setup import UnitSetup
from tokenmill.write.npy import map_array


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


class Meanwhile(ByteEncoder):
    """An encoder, and what happens while it is at a certain document."""

    def __init__(self, document: str, happens: Callable[[], object]) -> None:
        super().__init__()
        self._document = document
        self._happens = happens

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if self._document in texts:
            self._happens()
        return super().encode(texts)


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


class StopError(Exception):
    """Stands for whatever ends a unit early."""


class Reports:
    """What a unit reports, added up; it is ended when it reports for the `stop_after`-th time."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.ledger = Ledger()
        self.bytes = 0
        self.most_documents = 0
        self.calls: list[tuple[int, int]] = []
        """Records and bytes of each report."""
        self.stage_seconds: list[StageSeconds] = []
        self._stop_after = stop_after

    def __call__(self, ledger: Ledger, consumed: int, stage_seconds: StageSeconds) -> None:
        self.ledger.add(ledger)
        self.bytes += consumed
        self.most_documents = max(self.most_documents, self.ledger.documents)
        self.calls.append((ledger.records, consumed))
        self.stage_seconds.append(stage_seconds)
        if len(self.calls) == self._stop_after:
            raise StopError


def stop_at(checkpoint: int) -> Callable[[], None]:
    """A hook that ends a unit at the checkpoint of this number, from 1."""
    left = checkpoint

    def checkpointed() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StopError

    return checkpointed


@dataclass(frozen=True)
class UnitJob:
    """A job of one unit, ready to run."""

    setup: UnitSetup
    unit: Unit

    @property
    def storage(self) -> Storage:
        return self.setup.receipts.storage

    def run(self, update: Update | None = None, encoder: ByteEncoder | None = None, **hooks: Any) -> Receipt:
        return run_unit(self.setup, self.unit, encoder or ByteEncoder(), update or Reports(), UnitHooks(**hooks))

    def published(self, *folders: str) -> dict[str, bytes]:
        """The files in chunks/ and units/, or in these folders, by their base names."""
        found = {f: self.storage.list(f) for f in folders or ("chunks", "units")}
        return {e.name: self.storage.read(f"{folder}/{e.name}") for folder, entries in found.items() for e in entries}

    def drafts(self) -> dict[str, int]:
        return dict(self.storage.drafts())

    def rows(self, chunk: str) -> list[list[int]]:
        return self.array(f"{chunk}.npy").tolist()  # type: ignore[no-any-return]

    def array(self, name: str) -> np.ndarray[Any, Any]:
        return map_array(self.storage.map(f"chunks/{name}"))

    def rejects(self) -> list[dict[str, Any]]:
        lines = self.storage.read(f"units/{self.unit.name}.rejects.jsonl").splitlines()
        return [json.loads(line) for line in lines]


def unit_job(
    files: dict[str, bytes],
    *,
    folder: Path | None = None,
    storage: Storage | None = None,
    eos: bool = True,
    bos: bool = False,
    batch_size: int = 100,
    **options: Any,
) -> UnitJob:
    """One unit of all these files, in memory or below a folder. Rows have 4 tokens, unless told otherwise."""
    inputs: Reading = MemoryStorage(files) if folder is None else _written(folder / "in", files)
    if storage is None:
        storage = MemoryStorage() if folder is None else output_storage(folder / "out")
    for name in ("tmp", "chunks", "units"):
        storage.make_folder(name)
    chosen = ContentOptions(**{"seq_len": 4, **options})
    tokenizer = tokenizer_of(eos, bos)
    setup = UnitSetup(
        options=chosen,
        batch_size=batch_size,
        tokenizer=tokenizer,
        inputs=inputs,
        receipts=Receipts(storage, chosen.seq_len, tokenizer.dtype),
        resume_hint="run the same command again",
    )
    return UnitJob(setup, unit_of(inputs))


def _written(folder: Path, files: dict[str, bytes]) -> LocalStorage:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return LocalStorage(folder)


def unit_of(inputs: Reading) -> Unit:
    """All files there as one unit, each looked at once."""
    corpus = Corpus(inputs)
    files = [corpus.inspect(entry.name).file for entry in sorted(inputs.list(), key=lambda entry: entry.name)]
    (unit,) = Plan.of(cut_units(filter(None, files), 1 << 40, corpus)).units()
    return unit
