"""process: one block through parse and encode, with the books kept.

A pure function of the block, so that any thread may run it, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import thread_time

import numpy as np
import numpy.typing as npt

from tokenmill.config import Config, SpecialTokens
from tokenmill.encode import Encoder, Tokenizer
from tokenmill.encode.encoder import check_ids
from tokenmill.encode.special import SpecialTokenFinder
from tokenmill.read.reader import Reader
from tokenmill.records import PREVIEW_BYTES, Block, Documents, Ledger, Reason, Reject, StageSeconds, TokenBatch


@dataclass(frozen=True, slots=True)
class Source:
    """A block and the part it is from."""

    part: int
    reader: Reader
    block: Block
    seconds: float
    """Of CPU, that reading it took."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded documents with the record numbers (within the block) and ids of their own."""

    tokens: TokenBatch
    numbers: npt.NDArray[np.int64]
    ids: list[bytes]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A block, encoded, with everything about it that goes into the books."""

    part: int
    offset: int
    consumed: int
    batches: list[Batch]
    ledger: Ledger
    lines: int
    rejects: list[Reject]
    stage_seconds: StageSeconds


class Processor:
    """Parses and encodes the blocks of a job."""

    def __init__(self, config: Config, tokenizer: Tokenizer, encoder: Encoder) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._special = SpecialTokenFinder(tokenizer.special)
        self._framing = (tokenizer.eos_id is not None) + (tokenizer.bos_id is not None)

    def __call__(self, source: Source) -> Encoded:
        """A pure function of the block: any thread may run it, in any order."""
        block = source.block
        begun = thread_time()
        try:
            documents = source.reader.parse(block)
            ledger = Ledger(records=documents.records, empty=documents.empty)
            ledger.special_tokens_in_text = self._look_for_special(documents, block)
        finally:
            if block.release is not None:
                block.release()
        parsed = thread_time()
        batches = list(self._encode(documents, ledger))
        stage_seconds = StageSeconds(source.seconds, parsed - begun, thread_time() - parsed)
        for reject in documents.rejects:
            ledger.rejected += reject.records
            count = ledger.rejects_by_reason.get(reject.reason, 0)
            ledger.rejects_by_reason[reject.reason.value] = count + reject.records
        lines, rejects = documents.lines, documents.rejects
        return Encoded(source.part, block.offset, block.consumed, batches, ledger, lines, rejects, stage_seconds)

    def _look_for_special(self, documents: Documents, block: Block) -> int:
        found = self._special.count(documents.texts)
        if found and self._config.special_tokens_in_text is SpecialTokens.REJECT:
            for index in found:
                number = documents.numbers[index]
                head = documents.texts[index][:PREVIEW_BYTES].encode()[:PREVIEW_BYTES]
                detail = f"the text contains the special token {found[index][0]!r}"
                offset = _record_offset(block, number)
                documents.rejects.append(
                    Reject(record=number, offset=offset, reason=Reason.SPECIAL_TOKEN, detail=detail, head=head)
                )
            _keep(documents, [i for i in range(len(documents.texts)) if i not in found])
            documents.rejects.sort(key=lambda r: r.record)
        return sum(count for _, count in found.values())

    def _encode(self, documents: Documents, ledger: Ledger) -> Iterator[Batch]:
        size = self._config.batch_size
        numbers = np.asarray(documents.numbers, np.int64)
        for i in range(0, len(documents.texts), size):
            texts = documents.texts[i : i + size]
            tokens = self._encoder.encode(texts)
            check_ids(tokens, self._tokenizer)
            # After encoding: the UTF-8 form is cached in the string by now.
            ledger.text_bytes += sum(len(t) if t.isascii() else len(t.encode()) for t in texts)
            batch = Batch(tokens, numbers[i : i + size], documents.ids[i : i + size] if documents.ids else [])
            batch = _without_empty(batch)
            count = len(batch.numbers)
            ledger.empty += len(texts) - count
            ledger.documents += count
            ledger.tokens += len(tokens.ids)
            ledger.separators += count * self._framing
            yield batch


def _record_offset(block: Block, number: int) -> int:
    """Where a record of a block begins; only rejects need it, so it is looked for only then."""
    if not isinstance(block.data, bytes | memoryview):
        return block.offset + number
    position = 0
    data = bytes(block.data)
    for _ in range(number):
        position = data.index(b"\n", position) + 1
    return block.offset + position


def _keep(documents: Documents, indices: list[int]) -> None:
    documents.texts = [documents.texts[i] for i in indices]
    documents.numbers = [documents.numbers[i] for i in indices]
    if documents.ids is not None:
        documents.ids = [documents.ids[i] for i in indices]


def _without_empty(batch: Batch) -> Batch:
    """Leave out documents that gave no token, e.g. because the tokenizer strips white space."""
    lengths = np.diff(batch.tokens.offsets)
    if lengths.all():
        return batch
    kept = np.flatnonzero(lengths)
    tokens = TokenBatch(batch.tokens.ids, batch.tokens.offsets[np.concatenate([[0], kept + 1])])
    return Batch(tokens, batch.numbers[kept], [batch.ids[i] for i in kept] if batch.ids else [])
