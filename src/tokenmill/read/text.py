"""A text file, plain or compressed: one document."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from tokenmill.config import Config
from tokenmill.read.decompress import BrokenStreamError, pieces
from tokenmill.read.lines import BOM
from tokenmill.records import PREVIEW_BYTES, Block, Codec, Documents, Reason, Reject


class TextReader:
    """Reads a whole file as one record."""

    def __init__(self, path: Path, codec: Codec, config: Config) -> None:
        self._path = path
        self._codec = codec
        self._limit = config.max_document_bytes
        self._with_ids = config.id_field is not None

    def blocks(self, offset: int | None) -> Iterator[Block]:  # noqa: ARG002 - there is one block, at 0
        held: list[bytes] = []
        size = 0
        broken: Reject | None = None
        with self._path.open("rb", buffering=0) as file:
            try:
                for piece in pieces(file, self._codec):
                    held.append(piece)
                    size += len(piece)
                    if size > self._limit:
                        broken = _too_large(self._limit, held[0])
                        held = []
                        break
            except BrokenStreamError as error:
                broken = _reject(error.reason, error.detail, b"".join(held), offset=size)
            yield Block(offset=0, data=b"".join(held), consumed=self._path.stat().st_size, broken=broken)

    def parse(self, block: Block) -> Documents:
        """One document; where the file breaks off, what came before the break is a document and the break a reject."""
        result = Documents(texts=[], numbers=[0], ids=None, records=0, lines=1)
        if block.broken:
            result.records += 1
            result.rejects.append(block.broken)
        if block.data or not block.broken:
            result.records += 1
            self._take(block.data, result, whole=not block.broken)
        if not result.texts:
            result.numbers = []
        if self._with_ids:
            result.ids = [b"null"] * len(result.texts)
        return result

    def _take(self, data: bytes, result: Documents, *, whole: bool) -> None:
        try:
            # Where the file breaks off inside a character, only that is lost.
            text = codecs.utf_8_decode(data.removeprefix(BOM), "strict", whole)[0]
        except UnicodeDecodeError as error:
            detail = f"{error.reason} at byte {error.start} of the file"
            result.rejects.append(_reject(Reason.INVALID_UTF8, detail, data))
            return
        if text:
            result.texts.append(text)
        else:
            result.empty += 1


def _reject(reason: Reason, detail: str, data: bytes, offset: int = 0) -> Reject:
    return Reject(record=0, offset=offset, reason=reason, detail=detail, head=data[:PREVIEW_BYTES])


def _too_large(limit: int, head: bytes) -> Reject:
    detail = f"the file has more than --max-document-bytes {limit:,}"
    return _reject(Reason.TOO_LARGE, detail, head)
