"""What must hold for any bytes; used by the property tests and by benchmarks/fuzz.py."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from tests.support.sources import opened, opened_file
from tokenmill.config import ReadOptions
from tokenmill.read import decompress
from tokenmill.read.arrow import ArrowReader
from tokenmill.read.block import Block, ReadingWay
from tokenmill.read.decompress import BrokenStreamError, pieces
from tokenmill.read.formats import open_reader
from tokenmill.read.jsonl import JsonlParser
from tokenmill.read.ring import Ring
from tokenmill.records import Codec, Documents, Format, InputFile, Part, Reason
from tokenmill.storage.base import Source

GOOD = b'{"text": "good line"}'
PARSER = JsonlParser("text", None, 10_000)
OPTIONS = ReadOptions(max_document_bytes=10_000, id_field="id")


def balanced(found: Documents) -> None:
    """Records are documents, empty, or rejected."""
    rejected = sum(r.records for r in found.rejects)
    assert found.records == len(found.texts) + found.empty + rejected, found
    assert len(found.numbers) == len(found.texts)
    assert found.document_ids is None or len(found.document_ids) == len(found.texts)


def check_lines(lines: list[bytes]) -> None:
    """Lines without line ends: the fast path gives what line by line gives, and good neighbours survive."""
    data = b"".join(line + b"\n" + GOOD + b"\n" for line in [b"", *lines])
    fast = PARSER.parse(data, 0)
    slow = PARSER.parse_lines(data, 0)
    balanced(fast)
    assert (fast.texts, list(fast.numbers), fast.records, fast.lines, fast.empty, fast.rejects) == (
        slow.texts,
        list(slow.numbers),
        slow.records,
        slow.lines,
        slow.empty,
        slow.rejects,
    )
    numbers = {n for n, text in zip(fast.numbers, fast.texts, strict=True) if text == "good line"}
    assert {2 * n + 1 for n in range(len(lines) + 1)} <= numbers


_LIBRARY: dict[Codec, Callable[[], Any]] = {
    Codec.GZIP: lambda: zlib.decompressobj(31),
    Codec.ZSTD: lambda: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31}),
    Codec.BZIP2: bz2.BZ2Decompressor,
    Codec.XZ: lzma.LZMADecompressor,
}
_ERRORS = (zlib.error, zstd.ZstdError, lzma.LZMAError, OSError, EOFError, ValueError)


def decompress_plainly(data: bytes, codec: Codec) -> tuple[bytes, bool]:
    """What the codec's usual library makes of it, fed a byte at a time; and whether it was whole."""
    if codec is Codec.PLAIN:
        return data, True
    found = bytearray()
    rest = data.lstrip(b"\0")
    while rest:
        library = _LIBRARY[codec]()
        used = 0
        try:
            while not library.eof and used < len(rest):
                found += library.decompress(rest[used : used + 1])
                used += 1
        except _ERRORS:
            return bytes(found), False
        if not library.eof:
            return bytes(found), False
        rest = rest[used:].lstrip(b"\0")
    return bytes(found), any(data)


def read_pieces(data: bytes, codec: Codec) -> tuple[bytes, BrokenStreamError | None]:
    """All pieces, each no larger than it may be, and why there are no more."""
    found = bytearray()
    try:
        for piece in pieces(opened(data), codec):
            assert len(piece) <= decompress.OUTPUT_BYTES * (4 if codec is Codec.PLAIN else 1)
            found += piece
    except BrokenStreamError as error:
        return bytes(found), error
    return bytes(found), None


# The decoder of gzip gives up together with the symbol before a wrong one, which may stand for so many bytes.
LONGEST_SYMBOL = 258


def check_compressed(data: bytes, codec: Codec) -> None:
    """An end, or a BrokenStreamError behind all that the usual library can decode."""
    found, error = read_pieces(data, codec)
    wanted, whole = decompress_plainly(data, codec)
    if error is None:
        # zlib refuses flags of a header that mean nothing yet; whatever they may mean, the checksum was right.
        assert found == wanted or (not whole and codec is Codec.GZIP)
    else:
        assert error.detail
        assert found.startswith(wanted[:-LONGEST_SYMBOL] if codec is Codec.GZIP else wanted)


def check_damaged(data: bytes, compressed: bytes, place: int, value: int, codec: Codec) -> None:
    """A byte of a compressed file is changed: all before it is given, and what is given as whole is what it was."""
    damaged = compressed[:place] + bytes([value]) + compressed[place + 1 :]
    check_compressed(damaged, codec)
    found, error = read_pieces(damaged, codec)
    before, _ = decompress_plainly(compressed[:place], codec)
    assert data.startswith(before)
    assert found.startswith(before)
    if error is None or damaged == compressed:
        assert (found, error) == (data, None)


def check_text(path: Path, data: bytes) -> None:
    """One document that is the text of the file, or a reject that says why not."""
    path.write_bytes(data)
    with opened_file(path) as source:
        (found,) = _check_source(source, Format.TEXT, Codec.PLAIN)
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        assert [r.reason for r in found.rejects] == [Reason.INVALID_UTF8]
    else:
        assert (found.texts, found.rejects) == ([text] if text else [], [])


def check_parquet(path: Path, data: bytes) -> None:
    """As many rows come out, as documents, empty or rejected, as the footer declares; and the same from memory."""
    path.write_bytes(data)
    with opened_file(path) as source:
        found = _check_source(source, Format.PARQUET, Codec.PLAIN)
    assert _check_source(opened(data), Format.PARQUET, Codec.PLAIN) == found
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError):
        return
    rows = sum(max(0, footer.row_group(n).num_rows) for n in range(footer.num_row_groups))
    assert sum(d.lines for d in found) == rows


def check_arrow(path: Path, data: bytes) -> None:
    """Whatever it is, it is read or rejected; the same from memory, and from any block on."""
    path.write_bytes(data)
    with opened_file(path) as source:
        found = _check_source(source, Format.ARROW, Codec.PLAIN)
    assert _check_source(opened(data), Format.ARROW, Codec.PLAIN) == found
    row = 0
    for number, documents in enumerate(found):
        blocks = ArrowReader(opened(data), Part(0), OPTIONS).blocks(row)
        assert [block.parse() for block in blocks] == found[number:]
        row += documents.lines


def check_jsonl(path: Path, data: bytes, codec: Codec) -> None:
    """The same comes from lent buffers."""
    path.write_bytes(data)
    with opened_file(path) as source:
        one = _check_source(source, Format.JSONL, codec)
        source.seek(0)
        other = _check_source(source, Format.JSONL, codec, Ring())
    assert _outcome(one) == _outcome(other)


def _outcome(found: list[Documents]) -> tuple[list[object], int]:
    """All documents and rejects with absolute line numbers, and how many lines and records there are."""
    told: list[object] = []
    line = 0
    for documents in found:
        ids = documents.document_ids or [b""] * len(documents.texts)
        told += [(line + n, text, i) for n, text, i in zip(documents.numbers, documents.texts, ids, strict=True)]
        told += [(line + r.record, r.offset, r.reason, r.detail, r.head) for r in documents.rejects]
        line += documents.lines
    return [*sorted(told, key=str), line], sum(d.records for d in found)


def _check_source(source: Source, format_: Format, codec: Codec, ring: Ring | None = None) -> list[Documents]:
    file = InputFile(name="a", size=source.stat.size, fingerprint="", format=format_, codec=codec)
    reader = open_reader(source, file, Part(0), OPTIONS, ReadingWay(ring=ring))
    found = [_parse(block) for block in reader.blocks(None)]
    for documents in found:
        balanced(documents)
    return found


def _parse(block: Block) -> Documents:
    try:
        return block.parse()
    finally:
        block.release()
