"""What the name of a file says about it, before anybody looks inside."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum

from tokenmill.read.formats import CODEC_SUFFIXES, FORMAT_SUFFIXES
from tokenmill.records import Codec, Format

# Spark and Hadoop (part-00000, part-r-00000, part-00000-…-c000), Hive (000000_0), shards of a known number.
_SHARD = re.compile(r"part-(\w-)?\d.*|\d+_\d+(_copy_\d+)?|.*\d-of-\d+")
# Numbers that writers put behind a name: data.00012, data.00012-of-01024, part-00000-….c000
_NUMBER = re.compile(r"(\.c?\d+([-_](of[-_])?\d+)*)+$")
_UNSUPPORTED_COMPRESSION = (
    ".7z",
    ".br",
    ".deflate",
    ".lz",
    ".lz4",
    ".lzma",
    ".lzo",
    ".rar",
    ".snappy",
    ".z",
    ".zip",
    ".zlib",
)


class Hint(StrEnum):
    """What a file may be that has none of the suffixes of a format."""

    JSON = "json"
    SHARD = "shard"
    TABLE = "table"
    NOTHING = "nothing"
    OTHER = "other"

    @property
    def is_data(self) -> bool:
        """Whether the name alone calls it data."""
        return self in (Hint.JSON, Hint.SHARD)


@dataclass(frozen=True, slots=True)
class Named:
    """What a name says: "a.json.gz" -> gzip, no format, JSON."""

    codec: Codec
    format: Format | None
    hint: Hint
    is_out_of_reach: bool = False
    """Whether it is compressed in a way that cannot be read."""


def read_name(name: str) -> Named:
    base = os.path.basename(name).lower()
    stem, last = os.path.splitext(base)
    if last in _UNSUPPORTED_COMPRESSION:
        inner = _NUMBER.sub("", stem)
        is_data = os.path.splitext(inner)[1] in (".json", *FORMAT_SUFFIXES) or _SHARD.fullmatch(inner) is not None
        return Named(Codec.PLAIN, None, Hint.OTHER, is_out_of_reach=is_data)
    codec = CODEC_SUFFIXES.get(last, Codec.PLAIN)
    if codec is Codec.PLAIN:
        stem = base
    return Named(codec, FORMAT_SUFFIXES.get(os.path.splitext(stem)[1]), _hint(stem))


def _hint(stem: str) -> Hint:
    plain = _NUMBER.sub("", stem)
    suffix = os.path.splitext(plain)[1]
    if suffix == ".json" or FORMAT_SUFFIXES.get(suffix) is Format.JSONL:
        return Hint.JSON
    if suffix in (".csv", ".tsv"):
        return Hint.TABLE
    if suffix:
        return Hint.OTHER
    return Hint.SHARD if plain != stem or _SHARD.fullmatch(plain) else Hint.NOTHING
