"""process: one block through parse and encode, with everything counted.

A pure function of the block, so that any thread may run it, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time

import numpy as np
import numpy.typing as npt

from tokenmill.config import SpecialTokens
from tokenmill.encode import Encoder, Tokenizer
from tokenmill.encode.encoder import check_ids
from tokenmill.encode.special import ForgeryFinder, SpecialTokenFinder
from tokenmill.read.block import Block
from tokenmill.records import PREVIEW_BYTES, Documents, Ledger, Reason, Reject, StageSeconds, TokenBatch
from tokenmill.unit.room import Room


@dataclass(frozen=True, slots=True)
class PartBlock:
    """A block, the part of the unit it is from, and the CPU seconds that reading it took."""

    part: int
    block: Block
    seconds: float


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Encoded documents with the numbers of their records (within the block) and their own ids."""

    tokens: TokenBatch
    records: npt.NDArray[np.int64]
    document_ids: list[bytes]


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block, encoded, with everything about it that is counted."""

    part: int
    offset: int
    consumed: int
    batches: list[EncodedBatch]
    ledger: Ledger
    lines: int
    rejects: list[Reject]
    stage_seconds: StageSeconds


class Processor:
    """Parses and encodes the blocks of a job."""

    def __init__(
        self, mode: SpecialTokens, batch_size: int, tokenizer: Tokenizer, encoder: Encoder, room: Room
    ) -> None:
        self._mode = mode
        self._batch_size = batch_size
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._room = room
        self._special = SpecialTokenFinder(tokenizer.special)
        matched = mode is SpecialTokens.MATCH
        self._forgeries = None if matched else ForgeryFinder(tokenizer.reserved, tokenizer.vocab_size)
        self._framing = (tokenizer.eos_id is not None) + (tokenizer.bos_id is not None)

    def __call__(self, found: PartBlock) -> EncodedBlock:
        """A pure function of the block: any thread may run it, in any order."""
        with self._room.hold(found.block.size):
            return self._process(found)

    def _process(self, found: PartBlock) -> EncodedBlock:
        block = found.block
        begun = thread_time()
        try:
            documents = block.parse()
            ledger = Ledger(records=documents.records, empty=documents.empty)
            ledger.special_tokens_in_text = self._look_for_special(documents, block)
            parsed = thread_time()
            batches = list(self._encode(documents, block, ledger))
        finally:
            block.release()
        stage_seconds = StageSeconds(found.seconds, parsed - begun, thread_time() - parsed)
        for reject in documents.rejects:
            ledger.rejected += reject.records
            count = ledger.rejects_by_reason.get(reject.reason, 0)
            ledger.rejects_by_reason[reject.reason.value] = count + reject.records
        lines, rejects = documents.lines, documents.rejects
        return EncodedBlock(found.part, block.offset, block.consumed, batches, ledger, lines, rejects, stage_seconds)

    def _look_for_special(self, documents: Documents, block: Block) -> int:
        found = self._special.count(documents.texts)
        if found and self._mode is SpecialTokens.REJECT:
            details = {i: f"the text contains the special token {token!r}" for i, (token, _) in found.items()}
            _reject(documents, block, details)
            _keep(documents, [i for i in range(len(documents.texts)) if i not in found])
        return sum(count for _, count in found.values())

    def _encode(self, documents: Documents, block: Block, ledger: Ledger) -> Iterator[EncodedBatch]:
        size = self._batch_size
        records = np.asarray(documents.numbers, np.int64)
        ids = documents.document_ids or []
        for i in range(0, len(documents.texts), size):
            texts = documents.texts[i : i + size]
            tokens = self._encoder.encode(texts)
            check_ids(tokens, self._tokenizer)
            forged = self._forgeries.find(tokens) if self._forgeries else {}
            if forged:
                details = {i + n: f"the text becomes the special token {t!r} when encoded" for n, t in forged.items()}
                _reject(documents, block, details)
                texts = [text for n, text in enumerate(texts) if n not in forged]
            batch = _select(EncodedBatch(tokens, records[i : i + size], ids[i : i + size]), list(forged))
            tokens, count = batch.tokens, len(batch.records)
            # After encoding: the UTF-8 form is cached in the string by now.
            ledger.text_bytes += sum(len(t) if t.isascii() else len(t.encode()) for t in texts)
            ledger.empty += len(texts) - count
            ledger.documents += count
            ledger.tokens += len(tokens.token_ids)
            ledger.separators += count * self._framing
            yield batch


def _reject(documents: Documents, block: Block, details: dict[int, str]) -> None:
    """Note the rejects of documents with special tokens: index of text -> what is wrong with it."""
    numbers = [documents.numbers[index] for index in details]
    for (index, detail), number, offset in zip(details.items(), numbers, block.offsets_of(numbers), strict=True):
        head = documents.texts[index][:PREVIEW_BYTES].encode()[:PREVIEW_BYTES]
        documents.rejects.append(
            Reject(record=number, offset=offset, reason=Reason.SPECIAL_TOKEN, detail=detail, head=head)
        )
    documents.rejects.sort(key=lambda r: r.record)


def _keep(documents: Documents, indices: list[int]) -> None:
    documents.texts = [documents.texts[i] for i in indices]
    documents.numbers = [documents.numbers[i] for i in indices]
    if documents.document_ids is not None:
        documents.document_ids = [documents.document_ids[i] for i in indices]


def _select(batch: EncodedBatch, forged: list[int]) -> EncodedBatch:
    """Leave out forged documents, and those that gave no token, e.g. because the tokenizer strips white space."""
    lengths = np.diff(batch.tokens.offsets)
    kept = lengths > 0
    kept[forged] = False
    if kept.all():
        return batch
    offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
    tokens = TokenBatch(batch.tokens.token_ids[np.repeat(kept, lengths)], offsets)
    ids = [batch.document_ids[i] for i in np.flatnonzero(kept)] if batch.document_ids else []
    return EncodedBatch(tokens, batch.records[kept], ids)
