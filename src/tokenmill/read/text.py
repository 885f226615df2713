"""A text file, plain or compressed: one document."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from tokenmill.config import ReadOptions
from tokenmill.read.block import READ_PLAINLY, Block, ReadingWay
from tokenmill.read.decompress import BrokenStreamError, pieces
from tokenmill.read.lines import BOM
from tokenmill.records import NO_LOSS, PREVIEW_BYTES, Codec, Documents, Loss, Reason, Reject
from tokenmill.storage.base import Source


class TextReader:
    """Reads a whole file as one record."""

    def __init__(self, source: Source, codec: Codec, options: ReadOptions, way: ReadingWay = READ_PLAINLY) -> None:
        self._source = source
        self._codec = codec
        self._way = way
        self._limit = options.max_document_bytes
        self._with_ids = options.id_field is not None

    def blocks(self, offset: int | None) -> Iterator[Block]:  # noqa: ARG002 - there is one block, at 0
        size = self._source.stat.size
        if self._way.mapped and self._codec is Codec.PLAIN and size <= self._limit:
            yield TextBlock(0, size, self._source.map(0, size), None, self._with_ids)
        else:
            yield self._read()

    def _read(self) -> TextBlock:
        held: list[bytes] = []
        size = 0
        broken: Reject | None = None
        try:
            for piece in pieces(self._source, self._codec, self._way.windows):
                held.append(piece)
                size += len(piece)
                if size > self._limit:
                    broken = _too_large(self._limit, held[0])
                    held = []
                    break
        except BrokenStreamError as error:
            broken = _reject(error.reason, error.detail, b"".join(held), offset=size, loss=error.loss)
        return TextBlock(0, self._source.stat.size, b"".join(held), broken, self._with_ids)


@dataclass(frozen=True, slots=True)
class TextBlock(Block):
    """A file's text; where the file breaks off, what came before the break, and the break."""

    data: bytes | memoryview
    broken: Reject | None
    with_ids: bool

    @property
    def size(self) -> int:
        return len(self.data)

    def parse(self) -> Documents:
        """One document; what came before a break is a document, too, and the break a reject."""
        result = Documents(texts=[], numbers=[0], document_ids=None, records=0, lines=1)
        if self.broken:
            result.records += 1
            result.rejects.append(self.broken)
        if len(self.data) or not self.broken:
            result.records += 1
            self._take(self.data, result, whole=not self.broken)
        if not result.texts:
            result.numbers = []
        if self.with_ids:
            result.document_ids = [b"null"] * len(result.texts)
        return result

    def _take(self, data: bytes | memoryview, result: Documents, *, whole: bool) -> None:
        try:
            # Where the file breaks off inside a character, only that is lost.
            text = codecs.utf_8_decode(data[len(BOM) :] if data[: len(BOM)] == BOM else data, "strict", whole)[0]
        except UnicodeDecodeError as error:
            detail = f"{error.reason} at byte {error.start} of the file"
            result.rejects.append(_reject(Reason.INVALID_UTF8, detail, data))
            return
        if text:
            result.texts.append(text)
        else:
            result.empty += 1


def _reject(reason: Reason, detail: str, data: bytes | memoryview, offset: int = 0, loss: Loss = NO_LOSS) -> Reject:
    head = bytes(data[:PREVIEW_BYTES])
    return Reject(record=0, offset=offset, reason=reason, detail=detail, head=head, loss=loss)


def _too_large(limit: int, head: bytes) -> Reject:
    detail = f"the file has more than --max-document-bytes {limit:,}"
    return _reject(Reason.TOO_LARGE, detail, head)
