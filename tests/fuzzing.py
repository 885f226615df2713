"""What must hold for any bytes; used by the property tests and by benchmarks/fuzz.py."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.config import Config
from tokenmill.read import open_reader
from tokenmill.read.decompress import OUTPUT_BYTES, BrokenStreamError, pieces
from tokenmill.read.jsonl import JsonlParser
from tokenmill.read.ring import Ring
from tokenmill.records import Block, Codec, Documents, Format, InputFile, Part

GOOD = b'{"text": "good line"}'
PARSER = JsonlParser("text", None, 10_000)
CONFIG = Config(inputs=("none",), output=Path("none"), max_document_bytes=10_000, id_field="id")


def balanced(found: Documents) -> None:
    """Records are documents, empty, or rejected."""
    rejected = sum(r.records for r in found.rejects)
    assert found.records == len(found.texts) + found.empty + rejected, found
    assert len(found.numbers) == len(found.texts)
    assert found.ids is None or len(found.ids) == len(found.texts)


def check_lines(lines: list[bytes]) -> None:
    """Lines without line ends: the fast path gives what line by line gives, and good neighbours survive."""
    data = b"".join(line + b"\n" + GOOD + b"\n" for line in [b"", *lines])
    fast = PARSER(Block(offset=0, data=data, consumed=0))
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


def check_compressed(data: bytes, codec: Codec) -> None:
    """Bounded pieces, then an end or a BrokenStreamError."""
    try:
        for piece in pieces(io.BytesIO(data), codec):
            assert len(piece) <= 4 * OUTPUT_BYTES
    except BrokenStreamError as error:
        assert error.detail


def check_text(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _check_file(path, Format.TEXT, Codec.PLAIN)


def check_parquet(path: Path, data: bytes) -> None:
    """As many rows come out, as documents, empty or rejected, as the footer tells of."""
    path.write_bytes(data)
    found = _check_file(path, Format.PARQUET, Codec.PLAIN)
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError):
        return
    rows = sum(max(0, footer.row_group(n).num_rows) for n in range(footer.num_row_groups))
    assert sum(d.lines for d in found) == rows


def check_jsonl(path: Path, data: bytes, codec: Codec) -> None:
    """The same comes from lent buffers."""
    path.write_bytes(data)
    one, other = (_check_file(path, Format.JSONL, codec, ring) for ring in (None, Ring()))
    assert [t for d in one for t in d.texts] == [t for d in other for t in d.texts]
    assert sum(d.records for d in one) == sum(d.records for d in other)


def _check_file(path: Path, format_: Format, codec: Codec, ring: Ring | None = None) -> list[Documents]:
    size = path.stat().st_size
    file = InputFile(name=path.name, size=size, fingerprint="", format=format_, codec=codec)
    reader = open_reader(path, file, Part(0), CONFIG, ring)
    found = [reader.parse(block) for block in reader.blocks(None)]
    for documents in found:
        balanced(documents)
    return found
