"""Documents against the records they came from: read the plain way, encoded by the reference, compared id by id."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from itertools import islice

import numpy as np

from tokenmill.check.verdict import Fault
from tokenmill.config import Eos, ReadOptions, SpecialTokens
from tokenmill.encode import load_encoder
from tokenmill.encode.resolve import read_tokenizer
from tokenmill.encode.special import ForgeryFinder, SpecialTokenFinder
from tokenmill.messages import counted, printable
from tokenmill.output import layout
from tokenmill.output.finish import with_record_numbers
from tokenmill.output.open import Output
from tokenmill.output.schema import Receipt
from tokenmill.read.formats import open_reader
from tokenmill.read.source import is_as_planned, open_input
from tokenmill.records import InputFile, Part, TokenIds, Unit
from tokenmill.storage.base import Reading

BATCH = 64

_Document = tuple[int, int, TokenIds]
"""File, record and tokens."""


class SourceChecker:
    """Compares documents of an output with their sources."""

    def __init__(self, output: Output, inputs: Reading, progress: Callable[[int], None]) -> None:
        self._output = output
        self._inputs = inputs
        self._progress = progress
        stored = output.job.options
        self._options = ReadOptions(
            text_field=stored.text_field, id_field=stored.id_field, max_document_bytes=stored.max_document_bytes
        )
        self._mode = SpecialTokens(stored.special_tokens_in_text)
        where = output.storage.describe(layout.TOKENIZER)
        eos = Eos.OFF if stored.eos_token is None else stored.eos_token
        self._tokenizer = read_tokenizer(where, output.tokenizer(), eos=eos, bos=stored.bos_token)
        self._reference = load_encoder(self._tokenizer, "huggingface", self._mode)
        self._special = SpecialTokenFinder(self._tokenizer.special)
        self._forgeries = ForgeryFinder(self._tokenizer.reserved, self._tokenizer.vocab_size)
        self.compared = 0
        self.uncompared = 0
        """Documents whose source is not there."""
        self.absent: dict[str, None] = {}
        """Sources that are not there, by name, in their order."""

    def find_absent(self, unit: Unit, receipt: Receipt) -> frozenset[int]:
        """The files of a unit that are not there: nothing can be said of their documents, for better or worse."""
        found = {
            part.file: file.name
            for part, file in zip(unit.parts, unit.files, strict=True)
            if part.file not in receipt.missing and not self._is_there(file)
        }
        self.absent |= dict.fromkeys(found.values())
        return frozenset(found)

    def _is_there(self, file: InputFile) -> bool:
        try:
            self._inputs.open(file.name).close()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            pass  # it is there, but cannot be read: this is a problem, see below
        return True

    def changed(self, unit: Unit, without: Collection[int]) -> Iterator[Fault]:
        """The sources of a unit that are not what was tokenized; with one of them it cannot be compared."""
        for part, file in zip(unit.parts, unit.files, strict=True):
            if part.file not in without and (problem := self._change(file)):
                yield Fault(f"{problem}. Unit {unit.name} is not compared with its source")

    def _change(self, file: InputFile) -> str | None:
        """What became of a file since it was tokenized."""
        where = self._inputs.describe(file.name)
        try:
            with self._inputs.open(file.name) as source:
                same = is_as_planned(source, file)
        except OSError as error:
            return f"the source {where} cannot be read: {error.strerror}"
        return None if same else f"the source {where} is not the file that was tokenized: it has changed since"

    def check_all(self, unit: Unit, receipt: Receipt, absent: Collection[int] = ()) -> Iterator[Fault]:
        """Every document of the unit, except for those of files that are absent, and that none is missing or extra."""
        stored = self._present(self._documents(receipt), absent)
        texts = self._texts(unit, {*receipt.missing, *absent})
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
                    yield self._fault(unit, file, record, "is not where it should be: another document is there")
                    return
                yield from self._compare(unit, file, record, found[2], wanted)
        lost = surplus - receipt.ledger.dropped_documents
        if lost > 0:
            what = counted(lost, "document of the source is", "documents of the source are")
            yield Fault(f"unit {unit.name}: {what} not in the rows", unit.index)
        if lost < 0 and not absent:
            what = counted(-lost, "document that was dropped is", "documents that were dropped are")
            yield Fault(f"unit {unit.name}: {what} not in the source", unit.index)
        if next(stored, None) is not None:
            yield Fault(f"unit {unit.name}: the rows hold documents that the source does not", unit.index)

    def check_some(
        self, unit: Unit, receipt: Receipt, places: list[int], absent: Collection[int] = ()
    ) -> Iterator[Fault]:
        """The documents at these places of the unit, except for those of files that are absent."""
        chosen = set(places)
        documents = (found for place, found in enumerate(self._documents(receipt)) if place in chosen)
        wanted = {(file, record): tokens for file, record, tokens in self._present(documents, absent)}
        texts = ((f, r, t) for f, r, t in self._texts(unit, {*receipt.missing, *absent}) if (f, r) in wanted)
        while wanted and (batch := list(islice(texts, min(BATCH, len(wanted))))):
            for (file, record, _), ids in zip(batch, self._encode([t for _, _, t in batch]), strict=True):
                yield from self._compare(unit, file, record, wanted.pop((file, record)), ids)
        for file, record in wanted:
            yield self._fault(unit, file, record, "is in the rows, but not in the source")

    def _documents(self, receipt: Receipt) -> Iterator[_Document]:
        return self._output.documents(receipt.chunks, self._output.job.options.seq_len)

    def _present(self, documents: Iterator[_Document], absent: Collection[int]) -> Iterator[_Document]:
        for document in documents:
            if document[0] in absent:
                self.uncompared += 1
            else:
                yield document

    def _compare(self, unit: Unit, file: int, record: int, found: TokenIds, wanted: TokenIds) -> Iterator[Fault]:
        self.compared += 1
        t = self._tokenizer
        framed = [*([t.bos_id] if t.bos_id is not None else []), *wanted, *([t.eos_id] if t.eos_id is not None else [])]
        if len(framed) != len(found) or (found != np.array(framed)).any():
            same = int(np.argmin(np.append(found[: len(framed)] == framed[: len(found)], False)))
            yield self._fault(unit, file, record, f"differs from its source from token {same} on")

    def _fault(self, unit: Unit, file: int, record: int, what: str) -> Fault:
        first = self._first_records(unit).get(file)
        which = f"record {first + record}" if first is not None else f"record {record + 1} of this unit's part"
        return Fault(f"unit {unit.name}: {which} of {printable(unit.names[file])} {what}", unit.index)

    def _first_records(self, unit: Unit) -> dict[int, int | None]:
        """File -> the number of the first record of the unit's part in it, from 1; None if nobody knows."""
        for other, _, firsts in with_record_numbers(self._output.receipts, self._output.plan):
            if other.index == unit.index:
                return dict(zip((part.file for part in unit.parts), firsts, strict=True))
        return {}

    def _encode(self, texts: list[str]) -> list[TokenIds]:
        """The ids of each text; none if it was rejected because it becomes a special token."""
        batch = self._reference.encode(texts)
        encoded = np.split(batch.token_ids, batch.offsets[1:-1])
        if self._mode is not SpecialTokens.MATCH:
            for index in self._forgeries.find(batch):
                encoded[index] = encoded[index][:0]
        return encoded

    def _texts(self, unit: Unit, without: Collection[int]) -> Iterator[tuple[int, int, str]]:
        """File, record and text of all that the source of a unit has to say, without some files."""
        for part, file in zip(unit.parts, unit.files, strict=True):
            if part.file not in without:
                yield from self._part_texts(part, file)
                self._progress(file.size if part.end is None else unit.size)

    def _part_texts(self, part: Part, file: InputFile) -> Iterator[tuple[int, int, str]]:
        line = 0
        with open_input(self._inputs, file) as source:
            for block in open_reader(source, file, part, self._options).blocks(None):
                # Not by the fast path of JSON Lines, which is one of the things that are checked.
                documents = block.parse_plainly()
                found = self._special.count(documents.texts) if self._mode is SpecialTokens.REJECT else {}
                for index, (number, text) in enumerate(zip(documents.numbers, documents.texts, strict=True)):
                    if index not in found:
                        yield part.file, line + number, text
                line += documents.lines


def sample_documents(documents: list[int], count: int, seed: int) -> dict[int, list[int]]:
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
