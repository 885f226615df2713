"""Documents against the records they came from: read the plain way, encoded by the reference, compared id by id."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.check.metadata import Output
from tokenmill.check.verdict import Fault
from tokenmill.config import Config, SpecialTokens
from tokenmill.encode import load_encoder, resolve_tokenizer
from tokenmill.encode.special import SpecialTokenFinder
from tokenmill.load.rows import split_documents
from tokenmill.messages import printable
from tokenmill.read.jsonl import JsonlReader
from tokenmill.read.reader import Reader, open_reader
from tokenmill.read.sniff import fingerprint_of
from tokenmill.records import Block, Documents, InputFile, Part, Receipt, Unit

BATCH = 64

Ids = npt.NDArray[Any]


class SourceChecker:
    """Compares documents of an output with their sources."""

    def __init__(self, output: Output, progress: Callable[[int], None]) -> None:
        self._output = output
        self._progress = progress
        self._config = stored_config(output)
        self._tokenizer = resolve_tokenizer(self._config)
        self._mode = self._config.special_tokens_in_text
        self._reference = load_encoder(self._tokenizer, "huggingface", self._mode)
        self._special = SpecialTokenFinder(self._tokenizer.special)
        self.compared = 0

    def changed(self, unit: Unit, receipt: Receipt) -> Iterator[Fault]:
        """The sources of a unit that are not what was tokenized; with one of them it cannot be compared."""
        for part, file in zip(unit.parts, unit.files, strict=True):
            if part.file not in receipt.missing and (problem := _change(self._output.plan.root / file.name, file)):
                yield Fault(f"{problem}. Unit {unit.name} is not compared with its source")

    def check_all(self, unit: Unit, receipt: Receipt) -> Iterator[Fault]:
        """Every document of the unit, in order, and that none is missing or too many."""
        stored = self._documents(receipt)
        texts = self._texts(unit, receipt)
        surplus = 0
        while batch := list(islice(texts, BATCH)):
            for (file, record, _), wanted in zip(batch, self._encode([t for _, _, t in batch]), strict=True):
                if not len(wanted):
                    continue
                found = next(stored, None)
                if found is None:
                    surplus += 1
                    continue
                if found[:2] != (file, record):
                    yield self._fault(unit, file, record, "is not where it should be: another document stands there")
                    return
                yield from self._compare(unit, file, record, found[2], wanted)
        lost = surplus - receipt.ledger.dropped_documents
        if lost > 0:
            yield Fault(f"unit {unit.name}: {lost:,} documents of the source are not in the rows", unit.index)
        if lost < 0:
            yield Fault(f"unit {unit.name}: {-lost:,} documents that were dropped are not in the source", unit.index)
        if next(stored, None) is not None:
            yield Fault(f"unit {unit.name}: the rows hold documents that the source does not", unit.index)

    def check_some(self, unit: Unit, receipt: Receipt, places: list[int]) -> Iterator[Fault]:
        """The documents at these places of the unit."""
        chosen = set(places)
        documents = enumerate(self._documents(receipt))
        wanted = {(file, record): tokens for place, (file, record, tokens) in documents if place in chosen}
        texts = ((f, r, t) for f, r, t in self._texts(unit, receipt) if (f, r) in wanted)
        while wanted and (batch := list(islice(texts, min(BATCH, len(wanted))))):
            for (file, record, _), ids in zip(batch, self._encode([t for _, _, t in batch]), strict=True):
                yield from self._compare(unit, file, record, wanted.pop((file, record)), ids)
        for file, record in wanted:
            yield self._fault(unit, file, record, "is in the rows, but not in the source")

    def _documents(self, receipt: Receipt) -> Iterator[tuple[int, int, Ids]]:
        chunks = ((c.name, c.tokens) for c in receipt.chunks)
        return split_documents(self._output.store.chunks, chunks)

    def _compare(self, unit: Unit, file: int, record: int, found: Ids, wanted: Ids) -> Iterator[Fault]:
        self.compared += 1
        t = self._tokenizer
        framed = [*([t.bos_id] if t.bos_id is not None else []), *wanted, *([t.eos_id] if t.eos_id is not None else [])]
        if len(framed) != len(found) or (found != np.array(framed)).any():
            same = int(np.argmin(np.append(found[: len(framed)] == framed[: len(found)], False)))
            yield self._fault(unit, file, record, f"differs from its source from token {same} on")

    def _fault(self, unit: Unit, file: int, record: int, what: str) -> Fault:
        where = f"record {record} (from 0, of its part) of {printable(unit.names[file])}"
        return Fault(f"unit {unit.name}: {where} {what}", unit.index)

    def _encode(self, texts: list[str]) -> list[Ids]:
        batch = self._reference.encode(texts)
        return np.split(batch.ids, batch.offsets[1:-1])

    def _texts(self, unit: Unit, receipt: Receipt) -> Iterator[tuple[int, int, str]]:
        """File, record and text of all that the source of a unit has to say."""
        for part, file in zip(unit.parts, unit.files, strict=True):
            if part.file not in receipt.missing:
                yield from self._part_texts(part, file)
                self._progress(file.size if part.end is None else unit.size)

    def _part_texts(self, part: Part, file: InputFile) -> Iterator[tuple[int, int, str]]:
        path = self._output.plan.root / file.name
        reader = open_reader(path, file, part, self._config)
        line = 0
        for block in reader.blocks(None):
            documents = _parse_plainly(reader, block)
            found = self._special.count(documents.texts) if self._mode is SpecialTokens.REJECT else {}
            for index, (number, text) in enumerate(zip(documents.numbers, documents.texts, strict=True)):
                if index not in found:
                    yield part.file, line + number, text
            line += documents.lines


def _parse_plainly(reader: Reader, block: Block) -> Documents:
    """Not by the fast path of JSON Lines, which is one of the things that are checked."""
    if isinstance(reader, JsonlReader) and block.broken is None:
        return reader.parser.parse_lines(bytes(block.data), block.offset)
    return reader.parse(block)


def _change(path: Path, file: InputFile) -> str | None:
    """What became of a file since it was tokenized."""
    try:
        with path.open("rb") as opened:
            size = path.stat().st_size
            same = size == file.size and fingerprint_of(opened, size) == file.fingerprint
    except OSError as error:
        return (
            f"the source {printable(path)} cannot be read: {error.strerror}. "
            "Name the folder of the inputs with --source"
        )
    return None if same else f"the source {printable(path)} is not the file that was tokenized: it has changed since"


def stored_config(output: Output) -> Config:
    """The configuration of the job, as far as it changes a byte."""
    options = dict(output.options)
    return Config(
        inputs=(str(output.plan.root),),
        output=output.store.root,
        tokenizer=str(output.store.tokenizer),
        no_eos=options["eos_token"] is None,
        **options,
    )


def choose(documents: list[int], count: int, seed: int) -> dict[int, list[int]]:
    """So many documents at random: unit -> places in it, from how many documents each unit has."""
    total = sum(documents)
    places = sorted(random.Random(seed).sample(range(total), min(count, total)))
    chosen: dict[int, list[int]] = {}
    unit, first = 0, 0
    for place in places:
        while place >= first + documents[unit]:
            first += documents[unit]
            unit += 1
        chosen.setdefault(unit, []).append(place - first)
    return chosen
