"""Reading manifest.json, of which nobody needs everything: with a million chunks it is hundreds of megabytes."""

from __future__ import annotations

import json
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

from tokenmill.records import Ledger

T = TypeVar("T")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    run_id: str
    ledger: Ledger
    missing: dict[str, str]


class Options(msgspec.Struct, frozen=True):
    seq_len: int


class TokenizerEntry(msgspec.Struct, frozen=True):
    dtype: str


class Chunk(msgspec.Struct, gc=False, frozen=True):
    name: str
    rows: int


class Index(msgspec.Struct, frozen=True):
    """What it takes to find a row."""

    options: Options
    tokenizer: TokenizerEntry
    chunks: list[Chunk]


CHECKSUM = b',\n "xxh3": "'


def has_checksum(path: Path) -> bool:
    """Whether a manifest ends with the XXH3-128 of all that stands before it."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        end = data.rfind(CHECKSUM)
        if end < 0:
            return False
        with memoryview(data) as whole, whole[:end] as before:
            digest = xxhash.xxh3_128_hexdigest(before)
        return data[end:] == CHECKSUM + digest.encode() + b'"\n}\n'


def read_manifest(path: Path, kind: type[T]) -> T:
    """As much of a manifest as this type has fields for. Raises OSError, or ValueError for what is no manifest."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped, memoryview(mapped) as data:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # A file name that is no Unicode is written as lone surrogates, which only Python's own decoder takes.
            found: Any = json.loads(bytes(data))
            return msgspec.convert(found, kind)
