"""What a file is: its first bytes decide, its name where they leave it open."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

import xxhash

from tokenmill.read.decompress import BrokenStreamError, pieces
from tokenmill.records import Codec, Format, InputFile

EDGE_BYTES = 64 << 10

_MAGIC = (
    (b"\x1f\x8b", Codec.GZIP),
    (b"\x28\xb5\x2f\xfd", Codec.ZSTD),
    (b"BZh", Codec.BZIP2),
    (b"\xfd7zXZ\x00", Codec.XZ),
)
_CODEC_SUFFIXES = {
    ".gz": Codec.GZIP,
    ".zst": Codec.ZSTD,
    ".zstd": Codec.ZSTD,
    ".bz2": Codec.BZIP2,
    ".xz": Codec.XZ,
}
_FORMAT_SUFFIXES = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".jsonlines": Format.JSONL,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}


class NotAnInputError(Exception):
    """The file is none of the formats that tokenmill reads."""


def inspect(path: Path, name: str) -> tuple[InputFile, str | None]:
    """Look at a file once: its format, codec and fingerprint, and a remark if the name says something else."""
    named_codec, named_format = _by_name(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotAnInputError("not a regular file")  # opening a pipe would wait for ever
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(EDGE_BYTES)
            codec = _codec(head) if head else named_codec
            file.seek(0)
            text, whole = _decompress_head(file, codec)
            fingerprint = fingerprint_of(file, size, head)
    except OSError as error:
        if named_format is None and not name.endswith((".json", *_CODEC_SUFFIXES)):
            raise NotAnInputError(f"cannot be read, and its name is no input's: {error.strerror}") from error
        unread = InputFile(
            name=name,
            size=0,
            fingerprint="",
            format=named_format or Format.JSONL,
            codec=named_codec,
            problem=error.strerror or str(error),
        )
        return unread, None
    format_ = _format(head, text, whole, named_format, name)
    note = None
    if codec is not named_codec:
        note = f"the name says {named_codec}, the content is {codec}"
    elif named_format not in (None, format_):
        note = f"the name says {named_format}, the content is {format_}"
    return InputFile(name=name, size=size, fingerprint=fingerprint, format=format_, codec=codec), note


def fingerprint_of(file: io.BufferedReader, size: int, head: bytes | None = None) -> str:
    """A cheap identity of the content: XXH3-128 of the size and the first and last 64 KiB."""
    if head is None:
        file.seek(0)
        head = file.read(EDGE_BYTES)
    file.seek(max(0, size - EDGE_BYTES))
    return xxhash.xxh3_128_hexdigest(b"%d:" % size + head + file.read(EDGE_BYTES))


def _by_name(name: str) -> tuple[Codec, Format | None]:
    codec = _CODEC_SUFFIXES.get(os.path.splitext(name.lower())[1], Codec.PLAIN)
    return codec, _FORMAT_SUFFIXES.get(os.path.splitext(_stem(name))[1])


def _stem(name: str) -> str:
    """The name without the suffix of a codec: "a.json.gz" -> "a.json"."""
    stem, suffix = os.path.splitext(name.lower())
    return stem if suffix in _CODEC_SUFFIXES else name.lower()


def _codec(head: bytes) -> Codec:
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return Codec.ZSTD  # a skippable frame, which some writers put first
    return next((codec for magic, codec in _MAGIC if head.startswith(magic)), Codec.PLAIN)


def _format(head: bytes, text: bytes, whole: bool, named: Format | None, name: str) -> Format:
    if head.startswith(b"PAR1"):
        return Format.PARQUET
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
        raise NotAnInputError("JSON, but not one object per line")
    raise NotAnInputError("not JSON Lines, Parquet or .txt")


def _decompress_head(file: BinaryIO, codec: Codec) -> tuple[bytes, bool]:
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
