"""What the JSON of an output says: the only module that knows a key of it.

Every file is one type here. Files are written as ASCII with escapes: any file name can be written, none can play tricks
on a terminal. Reading is strict: what no run of tokenmill writes is not accepted.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import xxhash

from tokenmill.records import EMPTY, ChunkEntry, Count, Damage, InputFile, Ledger, Partial, Reason

FORMAT_VERSION: Literal[1] = 1

T = TypeVar("T")
Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
ChunkCount = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Dtype = Literal["uint16", "uint32"]


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file, or an object in one, that has exactly these keys."""


# job.json


class StoredOptions(Stored, frozen=True, kw_only=True):
    """The options that change a byte of the output, resolved."""

    text_field: str
    id_field: str | None
    special_tokens_in_text: Literal["plain", "match", "reject"]
    eos_token: str | None
    bos_token: str | None
    seq_len: Positive
    sequences_per_chunk: Positive
    tail: Literal["pad", "drop"]
    max_document_bytes: Positive


class StoredTokenizer(Stored, frozen=True, kw_only=True):
    name: str
    sha256: str
    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 32)]
    eos_id: Count | None
    bos_id: Count | None
    pad_id: Count
    dtype: Dtype


class StoredJob(Stored, frozen=True, kw_only=True):
    """Nothing in it tells the machine, the folder or the time."""

    format_version: Literal[1] = FORMAT_VERSION
    options: StoredOptions
    tokenizer: StoredTokenizer


# units/


class Receipt(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """Proof that a unit is committed."""

    unit: Count
    ledger: Ledger
    chunks: tuple[ChunkEntry, ...]
    lines: tuple[Count, ...]
    """Per part: how many lines or rows it holds, so that record numbers can be made absolute."""
    rejects_bytes: Count
    rejects_xxh3: str | None
    """XXH3-128 of the unit's list of rejects, None if it rejected nothing."""
    missing: dict[Count, str]
    """Input files that could not be read, and why: the unit is run again when the job is."""
    damaged: tuple[Damage, ...] = ()
    """Parts of files that are damaged, or break off: what is whole of them was read."""


class Checkpoint(Stored, frozen=True, kw_only=True):
    """An interrupted unit: its whole chunks, and where to read on.

    Reading goes on at the block in which the last chunk was completed; `skip` is how many tokens of what comes from
    there are in chunks already. Encoding them again is cheaper, and simpler to trust, than keeping them.
    """

    unit: Count
    part: Count
    offset: Count | None
    skip: Count
    ledger: Ledger
    chunks: tuple[ChunkEntry, ...]
    lines: tuple[Count, ...]
    rejects_bytes: Count
    rejects_xxh3: str | None = None
    """XXH3-128 of these bytes, None if there are none."""
    missing: dict[Count, str]
    damaged: tuple[Damage, ...] = ()
    partial: Partial = EMPTY
    """What there is of the next chunk already, as drafts."""


class StoredReject(Stored, frozen=True, kw_only=True):
    """A line of a unit's list of rejects; `record` counts from 0 at the start of the part."""

    part: Count
    record: Count
    offset: Count
    reason: str
    detail: str
    records: Count
    head: str


# rejects.jsonl


class LineReject(Stored, frozen=True, kw_only=True):
    """A reject as users see it, of a file that has lines."""

    file: str
    line: Count | None
    offset: Count
    reason: str
    detail: str
    records: Count
    head: str


class RowReject(Stored, frozen=True, kw_only=True):
    """A reject as users see it, of a file that has rows."""

    file: str
    row: Count | None
    offset: None = None
    reason: str
    detail: str
    records: Count
    head: str


# manifest.json


class DamagedFile(Stored, frozen=True, kw_only=True):
    """A damaged input: the first place, how many there are, and what is missing, as far as it can be told.

    `record` is the line or row of that place, from 1; `offset` is in bytes of the decompressed file, None for rows.
    """

    reason: Reason
    detail: str
    record: Count | None
    offset: Count | None
    places: Count
    lost_rows: Count | None
    unread_bytes: Count | None
    size: Count


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The head of a manifest: how a job ended."""

    run_id: str
    ledger: Ledger
    missing: dict[str, str]
    damaged: dict[str, DamagedFile] = {}


class PartEntry(Stored, frozen=True, kw_only=True):
    """`first_record`: the number of its first line or row in the file, from 1; None if nobody knows."""

    file: Count
    start: Count
    end: Count | None
    first_record: Count | None
    lines: Count


class UnitEntry(Stored, frozen=True, kw_only=True):
    unit: Count
    parts: tuple[PartEntry, ...]


class SkippedEntry(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """`looks_like_data`: it was probably meant to be read, so the output is not complete without it."""

    name: str
    why: str
    looks_like_data: bool = False


class SkippedFiles(msgspec.Struct, frozen=True):
    """As much of a manifest as it takes to tell what was not read."""

    left_out: list[SkippedEntry]


class _Rows(msgspec.Struct, frozen=True):
    seq_len: Positive
    id_field: str | None = None


class _Dtype(msgspec.Struct, frozen=True):
    dtype: Dtype


class ChunkRows(msgspec.Struct, gc=False, frozen=True):
    name: str
    rows: ChunkCount
    tokens: ChunkCount


class RowIndex(msgspec.Struct, frozen=True):
    """As much of a manifest as it takes to find a row."""

    options: _Rows
    tokenizer: _Dtype
    chunks: list[ChunkRows]


class InputName(msgspec.Struct, gc=False, frozen=True):
    name: str


class ChunkOfUnit(msgspec.Struct, gc=False, frozen=True):
    unit: Count
    name: str
    rows: ChunkCount
    tokens: ChunkCount
    documents: ChunkCount


class Catalog(msgspec.Struct, frozen=True):
    """As much of a manifest as it takes to tell where each document came from."""

    inputs: list[InputName]
    units: list[UnitEntry]
    chunks: list[ChunkOfUnit]

    def __post_init__(self) -> None:
        """Whoever looks something up in it may rely on what it refers to being there."""
        for number, unit in enumerate(self.units):
            if unit.unit != number or not unit.parts or any(p.file >= len(self.inputs) for p in unit.parts):
                raise ValueError(f"what it says of unit {number} does not fit the rest")
        if any(chunk.unit >= len(self.units) for chunk in self.chunks):
            raise ValueError("a chunk is of a unit that is not there")


_LISTS_END_WITH = ' "left_out": [\n'


def manifest_pieces(
    summary: Summary,
    job: StoredJob,
    *,
    inputs: Iterable[InputFile],
    units: Iterable[UnitEntry],
    chunks: Iterable[tuple[int, ChunkEntry]],
    skipped: Iterable[SkippedEntry],
) -> Iterator[str]:
    """The manifest in pieces, a line for each file, unit and chunk: there may be a million of them.

    What was skipped comes last: all before it follows from job, plan and receipts alone. The very end is the XXH3-128
    of all that stands before it.
    """
    head = {**to_builtins(summary), **to_builtins(job)}
    lists: dict[str, Iterator[Any]] = {
        "inputs": map(to_builtins, inputs),
        "units": map(to_builtins, units),
        "chunks": ({"unit": unit, **to_builtins(chunk)} for unit, chunk in chunks),
        "left_out": map(to_builtins, skipped),
    }
    state = xxhash.xxh3_128()
    for piece in _pieces(head, lists):
        state.update(piece.encode())
        yield piece
    yield _checksum_end(state.hexdigest())


def _pieces(head: dict[str, Any], lists: dict[str, Iterator[Any]]) -> Iterator[str]:
    yield json.dumps(head, indent=1, sort_keys=True).removesuffix("\n}")
    for name, entries in lists.items():
        yield f',\n "{name}": ['
        separator = "\n  "
        for entry in entries:
            yield separator + json.dumps(entry)
            separator = ",\n  "
        yield "\n ]"


def is_end_of_derived_lines(line: str) -> bool:
    """Whether everything behind this line of a manifest is known to nothing else."""
    return line == _LISTS_END_WITH


def has_checksum(manifest: memoryview) -> bool:
    """Whether a manifest ends with the XXH3-128 of all that stands before it."""
    with manifest[:-_CHECKSUM_BYTES] as before:
        digest = xxhash.xxh3_128_hexdigest(before)
    return bytes(manifest[-_CHECKSUM_BYTES:]) == _checksum_end(digest).encode()


def _checksum_end(digest: str) -> str:
    return f',\n "xxh3": "{digest}"\n}}\n'


_CHECKSUM_BYTES = len(_checksum_end("0" * 32))

# checkpoints


def checkpoint_text(checkpoint: Checkpoint) -> str:
    """A checkpoint as it is stored: the very end is the XXH3-128 of all that stands before it, as in a manifest."""
    body = to_text(checkpoint).removesuffix("\n}\n")
    return body + _checksum_end(xxhash.xxh3_128_hexdigest(body.encode()))


def read_checkpoint(data: bytes) -> Checkpoint:
    """Raises ValueError for one that is not, to the byte, as it was written."""
    if not has_checksum(memoryview(data)):
        raise ValueError("its checksum is wrong")
    return decode_exactly(data[:-_CHECKSUM_BYTES] + b"\n}\n", Checkpoint)


# writing and reading


def to_builtins(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def to_text(value: object) -> str:
    """A whole file."""
    return json.dumps(to_builtins(value), indent=1, sort_keys=True) + "\n"


def to_line(value: object, *, sort_keys: bool = False) -> str:
    """A line of a file that has an object per line."""
    return json.dumps(to_builtins(value), sort_keys=sort_keys) + "\n"


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_building = threading.Lock()


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Built once, by one thread at a time: two that meet a type for the first time together crash msgspec."""
    with _building:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def decode(data: bytes | memoryview, kind: type[T]) -> T:
    """As much of a JSON text as this type has fields for. Raises ValueError for what it cannot be."""
    decoder = _decoder(kind)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A file name that is not Unicode is written as lone surrogates, which only Python's own decoder takes.
        return msgspec.convert(json.loads(bytes(data)), kind, str_keys=True)


def decode_exactly(data: bytes, kind: type[T]) -> T:
    """A JSON text that says what this type says, no less and no more."""
    found = decode(data, kind)
    if json.loads(to_text(found)) != json.loads(data):
        raise ValueError("it is not what tokenmill writes")
    return found


def format_version(data: bytes) -> object:
    """Of a job.json that this program may not be able to read otherwise; None if it tells none."""
    return _object_in(data).get("format_version")


def describes_a_job(data: bytes) -> bool:
    """Whether this is the job.json of some output of tokenmill."""
    return _object_in(data).keys() >= {"format_version", "options", "tokenizer"}


def _object_in(data: bytes) -> dict[str, Any]:
    """What somebody wrote, if it is a JSON object; else one without keys."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def run_id_of(job: StoredJob, plan_digest: str) -> str:
    """The run id. Two jobs with the same id have the same output."""
    described = json.dumps(to_builtins(job), sort_keys=True)
    return hashlib.sha256(f"{described}\n{plan_digest}".encode()).hexdigest()
