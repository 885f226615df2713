"""The nouns that flow between the stages.

InputFile ─cut─> Unit(Part…) ─read─> Block ─parse─> Documents ─encode─> TokenBatch ─concat─> PackedRows ─write─> …
└ Reject                                       └ Ledger, Receipt
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.errors import LedgerError

TokenIds = npt.NDArray[np.unsignedinteger[Any]]
Ends = npt.NDArray[np.int64]
Sidecar = npt.NDArray[np.void]

# One entry per document, in the chunk in which the document ends. `end` is exclusive and counts tokens from the
# start of the chunk; `record` counts from 0 at the start of the part (see Part) that the document was read from.
SIDECAR_DTYPE = np.dtype([("end", "<i8"), ("record", "<i8"), ("file", "<i4")])

PREVIEW_BYTES = 160

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Format(StrEnum):
    """What the (decompressed) bytes of a file mean."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    TEXT = "text"
    ARROW = "arrow"

    @property
    def has_rows(self) -> bool:
        """Whether its records are rows, and its parts groups of them, instead of lines and bytes."""
        return self in (Format.PARQUET, Format.ARROW)


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

    @property
    def is_damage(self) -> bool:
        """Whether the file is at fault, so that nobody knows what else it held."""
        return self in (Reason.TRUNCATED_FILE, Reason.CORRUPT_FILE)


class InputFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One input, by its name below the input root; `problem` says why it could not be read when it was planned."""

    name: str
    size: Count
    fingerprint: str
    format: Format
    codec: Codec
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class AbsentField:
    """An option that names a field which a file does not have; `known` are those that it has in its place."""

    option: str
    field: str
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a file turned out to be: an input, perhaps with a remark; or (`file` None) none, and why not.

    `absent` is set if the options cannot be right for it. `head` are the first bytes of its content, decompressed.
    `looks_like_data` is set for what cannot be read, but was probably meant to be.
    """

    file: InputFile | None
    remark: str | None = None
    looks_like_data: bool = False
    absent: AbsentField | None = None
    head: bytes = field(default=b"", compare=False, repr=False)


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A stretch of one file: bytes [start, end) of plain JSONL, row groups of Parquet, record batches of Arrow.

    Any other file is one part. A line belongs to the part that its first byte lies in. `end` None means to the end of
    the file.
    """

    file: Count
    start: Count = 0
    end: Count | None = None


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The smallest piece of work that is committed: its output depends on it and the configuration alone."""

    index: Count = msgspec.field(name="unit")
    parts: tuple[Part, ...]
    files: tuple[InputFile, ...]
    """The file of each part, so that whoever runs a unit need not know the other 100,000 files of the job."""
    size: Count
    """Bytes of the input that it stands for, to show progress."""

    def __post_init__(self) -> None:
        if len(self.files) != len(self.parts):
            raise ValueError(f"{len(self.files)} files for {len(self.parts)} parts")

    @property
    def name(self) -> str:
        return f"{self.index:05d}"

    @property
    def names(self) -> dict[int, str]:
        """Number of a file -> its name."""
        return {part.file: file.name for part, file in zip(self.parts, self.files, strict=True)}


@dataclass(frozen=True, slots=True)
class Loss:
    """What is missing where a file is damaged, as far as it can be told.

    `rows` are those that the file says it has there; `unread_bytes` are those of the file that nobody could make sense
    of.
    """

    rows: int | None = None
    unread_bytes: int | None = None


NO_LOSS = Loss()


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
    loss: Loss = NO_LOSS


@dataclass(slots=True, kw_only=True)
class Documents:
    """What one block held: texts with the number of the record each came from, and what left the stream."""

    texts: list[str]
    numbers: list[int] | range
    document_ids: list[bytes] | None
    """Each document's own id as JSON, if ids are kept."""
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
    """Token ids of consecutive documents, flat: document i is token_ids[offsets[i]:offsets[i + 1]]."""

    token_ids: TokenIds
    offsets: Ends


class Ledger(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where every record and every token went."""

    records: Count = 0
    documents: Count = 0
    empty: Count = 0
    rejected: Count = 0
    special_tokens_in_text: Count = 0
    text_bytes: Count = 0
    tokens: Count = 0
    separators: Count = 0
    padding: Count = 0
    dropped_tokens: Count = 0
    dropped_documents: Count = 0
    rows: Count = 0
    rejects_by_reason: dict[str, Count] = {}

    def add(self, other: Ledger) -> None:
        for name in _LEDGER_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.rejects_by_reason.items():
            self.rejects_by_reason[reason] = self.rejects_by_reason.get(reason, 0) + count

    def copy(self) -> Ledger:
        """One that does not change with this one."""
        return msgspec.structs.replace(self, rejects_by_reason=dict(self.rejects_by_reason))

    def to_json(self) -> dict[str, Any]:
        """Every count, for whoever writes JSON."""
        found = msgspec.structs.asdict(self)
        return found | {"rejects_by_reason": dict(sorted(self.rejects_by_reason.items()))}

    def __neg__(self) -> Ledger:
        reasons = {reason: -count for reason, count in self.rejects_by_reason.items()}
        return Ledger(**{name: -getattr(self, name) for name in _LEDGER_COUNTS}, rejects_by_reason=reasons)

    def check(self, seq_len: int, where: str) -> None:
        """Raise LedgerError unless everything read is written, empty, rejected, padded or dropped."""
        if self.records != self.documents + self.empty + self.rejected:
            raise LedgerError(f"{where}: records do not add up, please report this: {self}")
        if self.tokens + self.separators + self.padding != self.rows * seq_len + self.dropped_tokens:
            raise LedgerError(f"{where}: tokens do not add up, please report this: {self}")

    def adds_up(self, seq_len: int) -> bool:
        """The same of a ledger that was stored. It was checked before it was: if it does not, somebody changed it."""
        try:
            self.check(seq_len, "")
        except LedgerError:
            return False
        return True


_LEDGER_COUNTS = [name for name in Ledger.__struct_fields__ if name != "rejects_by_reason"]


class ChunkEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chunk as receipts and the manifest know it. Checksums are XXH3-128 of the array data behind the header."""

    name: str
    rows: Count
    tokens: Count
    documents: Count
    xxh3: str
    docs_xxh3: str
    ids_xxh3: str | None = None


class Damage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wrong with a part of a file: the first place, how many there are, and what is missing in all of them.

    `record` counts from 0 at the start of the part. What cannot be told is None.
    """

    part: Count
    reason: Reason
    detail: str
    record: Count
    offset: Count
    places: Count
    lost_rows: Count | None
    unread_bytes: Count | None


class Partial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of an incomplete chunk is safely on disk."""

    tokens: Count = 0
    documents: Count = 0
    ids_bytes: Count = 0
    xxh3: str = ""
    """Of what there is."""


EMPTY = Partial()


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Whole rows for the current chunk, flat, and the documents that end in them.

    `documents` has the sidecar's type, its ends count from the start of the chunk; `document_ids` are the documents'
    own ids, if they are kept; `full` says that the chunk is complete with these rows.
    """

    token_ids: TokenIds
    documents: Sidecar
    document_ids: list[bytes]
    full: bool
    padding: int
