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
from tokenmill.encode.special import SpecialTokenFinder
from tokenmill.read.block import Block
from tokenmill.records import PREVIEW_BYTES, Documents, Ledger, Reason, Reject, StageSeconds, TokenBatch


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

    def __init__(self, mode: SpecialTokens, batch_size: int, tokenizer: Tokenizer, encoder: Encoder) -> None:
        self._mode = mode
        self._batch_size = batch_size
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._special = SpecialTokenFinder(tokenizer.special)
        self._framing = (tokenizer.eos_id is not None) + (tokenizer.bos_id is not None)

    def __call__(self, found: PartBlock) -> EncodedBlock:
        """A pure function of the block: any thread may run it, in any order."""
        block = found.block
        begun = thread_time()
        try:
            documents = block.parse()
            ledger = Ledger(records=documents.records, empty=documents.empty)
            ledger.special_tokens_in_text = self._look_for_special(documents, block)
        finally:
            block.release()
        parsed = thread_time()
        batches = list(self._encode(documents, ledger))
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
            for index in found:
                number = documents.numbers[index]
                head = documents.texts[index][:PREVIEW_BYTES].encode()[:PREVIEW_BYTES]
                detail = f"the text contains the special token {found[index][0]!r}"
                offset = block.offset_of(number)
                documents.rejects.append(
                    Reject(record=number, offset=offset, reason=Reason.SPECIAL_TOKEN, detail=detail, head=head)
                )
            _keep(documents, [i for i in range(len(documents.texts)) if i not in found])
            documents.rejects.sort(key=lambda r: r.record)
        return sum(count for _, count in found.values())

    def _encode(self, documents: Documents, ledger: Ledger) -> Iterator[EncodedBatch]:
        size = self._batch_size
        records = np.asarray(documents.numbers, np.int64)
        ids = documents.document_ids or []
        for i in range(0, len(documents.texts), size):
            texts = documents.texts[i : i + size]
            tokens = self._encoder.encode(texts)
            check_ids(tokens, self._tokenizer)
            # After encoding: the UTF-8 form is cached in the string by now.
            ledger.text_bytes += sum(len(t) if t.isascii() else len(t.encode()) for t in texts)
            batch = _without_empty(EncodedBatch(tokens, records[i : i + size], ids[i : i + size]))
            count = len(batch.records)
            ledger.empty += len(texts) - count
            ledger.documents += count
            ledger.tokens += len(tokens.token_ids)
            ledger.separators += count * self._framing
            yield batch


def _keep(documents: Documents, indices: list[int]) -> None:
    documents.texts = [documents.texts[i] for i in indices]
    documents.numbers = [documents.numbers[i] for i in indices]
    if documents.document_ids is not None:
        documents.document_ids = [documents.document_ids[i] for i in indices]


def _without_empty(batch: EncodedBatch) -> EncodedBatch:
    """Leave out documents that gave no token, e.g. because the tokenizer strips white space."""
    lengths = np.diff(batch.tokens.offsets)
    if lengths.all():
        return batch
    kept = np.flatnonzero(lengths)
    tokens = TokenBatch(batch.tokens.token_ids, batch.tokens.offsets[np.concatenate([[0], kept + 1])])
    ids = [batch.document_ids[i] for i in kept] if batch.document_ids else []
    return EncodedBatch(tokens, batch.records[kept], ids)
