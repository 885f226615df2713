"""What a file is: its first bytes decide, its name where they leave it open."""

from __future__ import annotations

import json
import os
import re

from tokenmill.read.decompress import BrokenStreamError, pieces
from tokenmill.read.formats import CODEC_SUFFIXES, FORMAT_SUFFIXES
from tokenmill.read.source import EDGE_BYTES, fingerprint_of
from tokenmill.records import Codec, Format, InputFile, Inspected
from tokenmill.storage.base import Reading, Source

_MAGIC = (
    (b"\x1f\x8b", Codec.GZIP),
    (b"\x28\xb5\x2f\xfd", Codec.ZSTD),
    (b"BZh", Codec.BZIP2),
    (b"\xfd7zXZ\x00", Codec.XZ),
)


MAX_SCHEMA_BYTES = 64 << 20


class _NotAnInputError(Exception):
    """The file is none of the formats that tokenmill reads."""


def inspect_file(inputs: Reading, name: str) -> Inspected:
    """Look at a file once: its format, codec and fingerprint, and a remark if the name says something else."""
    try:
        return _inspect(inputs, name)
    except _NotAnInputError as error:
        return Inspected(None, str(error))


def _inspect(inputs: Reading, name: str) -> Inspected:
    named_codec, named_format = _by_name(name)
    try:
        if not inputs.stat(name).is_file:
            raise _NotAnInputError("not a regular file")  # opening a pipe would wait for ever
        with inputs.open(name) as source:
            size = source.stat.size
            head = source.read(EDGE_BYTES)
            codec = _codec(head) if head else named_codec
            source.seek(0)
            text, whole = _decompress_head(source, codec)
            fingerprint = fingerprint_of(source, head)
    except OSError as error:
        if named_format is None and not name.endswith((".json", *CODEC_SUFFIXES)):
            raise _NotAnInputError(f"cannot be read, and its name is no input's: {error.strerror}") from error
        problem = error.strerror or str(error)
        format_ = named_format or Format.JSONL
        unread = InputFile(name=name, size=0, fingerprint="", format=format_, codec=named_codec, problem=problem)
        return Inspected(unread)
    format_ = _format(head, text, whole, named_format, name)
    remark = None
    if codec is not named_codec:
        remark = f"the name says {named_codec}, the content is {codec}"
    elif named_format not in (None, format_):
        remark = f"the name says {named_format}, the content is {format_}"
    file = InputFile(name=name, size=size, fingerprint=fingerprint, format=format_, codec=codec)
    return Inspected(file, remark, head=text)


def _by_name(name: str) -> tuple[Codec, Format | None]:
    codec = CODEC_SUFFIXES.get(os.path.splitext(name.lower())[1], Codec.PLAIN)
    return codec, FORMAT_SUFFIXES.get(os.path.splitext(_stem(name))[1])


def _stem(name: str) -> str:
    """The name without the suffix of a codec: "a.json.gz" -> "a.json"."""
    stem, suffix = os.path.splitext(name.lower())
    return stem if suffix in CODEC_SUFFIXES else name.lower()


def _codec(head: bytes) -> Codec:
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return Codec.ZSTD  # a skippable frame, which some writers put first
    return next((codec for magic, codec in _MAGIC if head.startswith(magic)), Codec.PLAIN)


def _format(head: bytes, text: bytes, whole: bool, named: Format | None, name: str) -> Format:
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.startswith(b"ARROW1") or _begins_arrow_stream(head):
        return Format.ARROW
    first, most = _json_lines(text, whole)
    is_json = _stem(name).endswith(".json")
    # A shard may begin with a broken line; a JSON document of many lines may hold an object on one of them.
    if first or (most and is_json):
        return Format.JSONL
    if named is not None:
        return named
    if not text and is_json:
        return Format.JSONL
    if text.lstrip()[:1] in (b"{", b"["):
        raise _NotAnInputError("JSON, but not one object per line")
    raise _NotAnInputError("not JSON Lines, Parquet or .txt")


def _begins_arrow_stream(head: bytes) -> bool:
    """A marker and the size of the schema, which comes in eights. No text in UTF-8 begins so."""
    size = int.from_bytes(head[4:8], "little")
    return head.startswith(b"\xff\xff\xff\xff") and 0 < size <= MAX_SCHEMA_BYTES and size % 8 == 0


def _decompress_head(file: Source, codec: Codec) -> tuple[bytes, bool]:
    """The first bytes of the content, and whether that is all of it.

    A block of bzip2 gives nothing before all of its up to 900 kB are read, so it is the output that is bounded.
    """
    if codec is Codec.PLAIN:
        head = file.read(EDGE_BYTES)
        return head, len(head) < EDGE_BYTES
    try:
        return next(pieces(file, codec), b"")[:EDGE_BYTES], False
    except BrokenStreamError:
        return b"", False


def _json_lines(text: bytes, whole: bool) -> tuple[bool, bool]:
    """Whether the first line, and whether half of them, are JSON objects; a cut-off line that opens one counts."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    last = lines.pop()
    verdicts = [_is_object(line) for line in lines if line.strip()]
    if last.strip():
        opens = not whole and not verdicts and re.match(rb'\s*\{\s*"', last) is not None
        verdicts.append(opens or _is_object(last))
    return bool(verdicts) and verdicts[0], bool(verdicts) and 2 * sum(verdicts) >= len(verdicts)


def _is_object(line: bytes) -> bool:
    try:
        return line.lstrip()[:1] == b"{" and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
