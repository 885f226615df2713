"""The nouns that flow between the stages.

InputFile ─cut─> Unit(Part…) ─read─> Block ─parse─> Documents ─encode─> TokenBatch ─concat─> PackedRows ─write─> …
└ Reject                                       └ Ledger, Receipt
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.errors import LedgerError

Ids = npt.NDArray[np.unsignedinteger[Any]]
Ends = npt.NDArray[np.int64]

# One entry per document, in the chunk in which the document ends. `end` is exclusive and counts tokens from the
# start of the chunk; `record` counts from 0 at the start of the part (see Part) that the document was read from.
SIDECAR_DTYPE = np.dtype([("end", "<i8"), ("record", "<i8"), ("file", "<i4")])

PREVIEW_BYTES = 160


class Format(StrEnum):
    """What the (decompressed) bytes of a file mean."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"


class Codec(StrEnum):
    """How the bytes of a file are compressed."""

    PLAIN = "plain"
    GZIP = "gzip"
    ZSTD = "zstd"
    BZIP2 = "bzip2"
    XZ = "xz"


class Reason(StrEnum):
    """Why a record was rejected."""

    BROKEN_JSON = "broken_json"
    NOT_AN_OBJECT = "not_an_object"
    NO_TEXT_FIELD = "no_text_field"
    TEXT_NOT_A_STRING = "text_not_a_string"
    INVALID_UTF8 = "invalid_utf8"
    LONE_SURROGATE = "lone_surrogate"
    TOO_LARGE = "too_large"
    SPECIAL_TOKEN = "special_token"
    TRUNCATED_FILE = "truncated_file"
    CORRUPT_FILE = "corrupt_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One input, by its name below the input root; `problem` says why it could not be read when it was planned."""

    name: str
    size: int
    fingerprint: str
    format: Format
    codec: Codec
    problem: str | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> InputFile:
        return cls(**{**data, "format": Format(data["format"]), "codec": Codec(data["codec"])})


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one file: bytes [start, end) of plain JSONL, row groups [start, end) of Parquet, else all of it.

    A line belongs to the part that its first byte lies in. `end` None means to the end of the file.
    """

    file: int
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest piece of work that is committed: its output depends on it and the configuration alone."""

    index: int
    parts: tuple[Part, ...]
    files: tuple[InputFile, ...]
    """The file of each part, so that whoever runs a unit need not know the other 100,000 files of the job."""
    size: int
    """Bytes of the input that it stands for, to show progress."""

    @property
    def name(self) -> str:
        return f"{self.index:05d}"

    @property
    def names(self) -> dict[int, str]:
        """Number of a file -> its name."""
        return {part.file: file.name for part, file in zip(self.parts, self.files, strict=True)}

    def to_json(self) -> dict[str, Any]:
        return {
            "unit": self.index,
            "size": self.size,
            "parts": [[p.file, p.start, p.end] for p in self.parts],
            "files": [asdict(f) for f in self.files],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Unit:
        parts = tuple(Part(*p) for p in data["parts"])
        files = tuple(InputFile.from_json(f) for f in data["files"])
        if len(files) != len(parts):
            raise ValueError(f"{len(files)} files for {len(parts)} parts")
        return cls(data["unit"], parts, files, data["size"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """One record that was left out, or (`records` 0 or many) a stretch of a file that could not be read.

    `record` counts from 0 within the block and is made absolute on the way out.
    """

    record: int
    offset: int
    reason: Reason
    detail: str
    head: bytes = b""
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Raw material for one parse: whole lines, or rows, of one part.

    `offset` is where it starts (bytes into the decompressed file; rows for Parquet), `consumed` how many bytes of
    the input file were read for it, `broken` a reject that stands in place of data; `release` is called once the data
    is parsed, for whoever lent it.
    """

    offset: int
    data: Any
    consumed: int
    broken: Reject | None = None
    release: Callable[[], None] | None = None


@dataclass(slots=True, kw_only=True)
class Documents:
    """What one block held: texts with the number of the record each came from, and what left the stream."""

    texts: list[str]
    numbers: list[int] | range
    ids: list[bytes] | None
    records: int
    lines: int
    empty: int = 0
    rejects: list[Reject] = field(default_factory=list)


@dataclass(slots=True)
class StageSeconds:
    """CPU seconds by stage. A few calls of the clock per block, so it is always kept."""

    read: float = 0.0
    parse: float = 0.0
    encode: float = 0.0
    pack: float = 0.0
    write: float = 0.0

    def add(self, other: StageSeconds) -> None:
        self.read += other.read
        self.parse += other.parse
        self.encode += other.encode
        self.pack += other.pack
        self.write += other.write


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Token ids of consecutive documents, flat: document i is ids[offsets[i]:offsets[i + 1]]."""

    ids: Ids
    offsets: Ends


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Where every record and every token went."""

    records: int = 0
    documents: int = 0
    empty: int = 0
    rejected: int = 0
    special_tokens_in_text: int = 0
    text_bytes: int = 0
    tokens: int = 0
    separators: int = 0
    padding: int = 0
    dropped_tokens: int = 0
    dropped_documents: int = 0
    rows: int = 0
    rejects_by_reason: dict[str, int] = field(default_factory=dict)

    def add(self, other: Ledger) -> None:
        for name in _LEDGER_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.rejects_by_reason.items():
            self.rejects_by_reason[reason] = self.rejects_by_reason.get(reason, 0) + count

    def __neg__(self) -> Ledger:
        reasons = {reason: -count for reason, count in self.rejects_by_reason.items()}
        return Ledger(**{name: -getattr(self, name) for name in _LEDGER_COUNTS}, rejects_by_reason=reasons)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rejects_by_reason": dict(sorted(self.rejects_by_reason.items()))}

    def check(self, seq_len: int, where: str) -> None:
        """Raise LedgerError unless everything read is written, empty, rejected, padded or dropped."""
        if self.records != self.documents + self.empty + self.rejected:
            raise LedgerError(f"{where}: records do not add up, please report this: {self}")
        if self.tokens + self.separators + self.padding != self.rows * seq_len + self.dropped_tokens:
            raise LedgerError(f"{where}: tokens do not add up, please report this: {self}")


_LEDGER_COUNTS = [f.name for f in fields(Ledger) if f.name != "rejects_by_reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkEntry:
    """A chunk as receipts and the manifest know it. Checksums are XXH3-128 of the array data behind the header."""

    name: str
    rows: int
    tokens: int
    documents: int
    xxh3: str
    docs_xxh3: str
    ids_xxh3: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof that a unit is committed."""

    unit: int
    ledger: Ledger
    chunks: tuple[ChunkEntry, ...]
    lines: tuple[int, ...]
    """Per part: how many lines or rows it holds, so that record numbers can be made absolute."""
    rejects_bytes: int
    rejects_xxh3: str | None
    """XXH3-128 of the unit's list of rejects, None if it rejected nothing."""
    missing: dict[int, str]
    """Input files that could not be read, and why: the unit is run again when the job is."""

    def to_json(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "ledger": self.ledger.to_json(),
            "chunks": [asdict(c) for c in self.chunks],
            "lines": list(self.lines),
            "rejects_bytes": self.rejects_bytes,
            "rejects_xxh3": self.rejects_xxh3,
            "missing": {str(k): v for k, v in sorted(self.missing.items())},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Receipt:
        """Raises ValueError for what no receipt can say."""
        receipt = msgspec.convert(data, cls, str_keys=True)
        if receipt.to_json() != data or _has_negative(data):
            raise ValueError("not what a receipt looks like")
        return receipt


def _has_negative(data: Any) -> bool:
    """Whether there is a number below 0 anywhere in it."""
    if isinstance(data, dict | list):
        return any(map(_has_negative, data.values() if isinstance(data, dict) else data))
    return isinstance(data, int) and data < 0


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Whole rows for the current chunk, flat, and the documents that end in them.

    `docs` has the sidecar's type, its ends count from the start of the chunk; `ids` are the documents' own ids, if
    they are kept; `full` says that the chunk is complete with this piece.
    """

    tokens: Ids
    docs: npt.NDArray[np.void]
    ids: list[bytes]
    full: bool
    padding: int
