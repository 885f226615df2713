"""Where things lie in an output: the only module that knows a file name of it.

job.json, plan.jsonl          the job: options and tokenizer; inputs and units, a unit per line; written once, first
tokenizer.json                the tokenizer, as it was found
chunks/00007-0000.npy         rows;  .docs.npy: where documents end;  .ids.jsonl: their ids, with --id-field
units/00007.json              receipt: the commit point. A unit with a receipt is done, one without never happened
units/00007.checkpoint.json   how far an interrupted unit came; gone once there is a receipt
units/00007.rejects.jsonl     its rejects, if there are any
rejects.jsonl, manifest.json  made from the receipts at the end
tmp/                          drafts: everything that is not whole yet; gone when a run is complete
logs/                         the only place with clocks, host names and process ids
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.records import ChunkEntry, Unit

JOB = "job.json"
PLAN = "plan.jsonl"
TOKENIZER = "tokenizer.json"
MANIFEST = "manifest.json"
REJECTS = "rejects.jsonl"
CHUNKS = "chunks"
UNITS = "units"
DRAFTS = "tmp"
LOGS = "logs"

LOCK = f"{LOGS}/lock"
TIMELINE = f"{LOGS}/timeline.jsonl"
INPUTS = f"{LOGS}/inputs"
MAPPED = f"{LOGS}/mapped"
"""Where the inputs were when the job ran last, for `verify`."""

ROWS, DOCUMENTS, IDS = ".npy", ".docs.npy", ".ids.jsonl"
"""What the files of a chunk end with."""

WHOLE_FILES = (JOB, PLAN, TOKENIZER, MANIFEST, REJECTS)

_CHECKPOINT = ".checkpoint.json"
_REJECTS = ".rejects.jsonl"
_RECEIPT = ".json"


def receipt_file(unit: Unit) -> str:
    return f"{UNITS}/{unit.name}{_RECEIPT}"


def checkpoint_file(unit: Unit) -> str:
    return f"{UNITS}/{unit.name}{_CHECKPOINT}"


def rejects_file(unit: Unit) -> str:
    return f"{UNITS}/{unit.name}{_REJECTS}"


def chunk_name(unit: Unit, number: int) -> str:
    return f"{unit.name}-{number:04d}"


def chunk_file(chunk: str, suffix: str) -> str:
    """chunk_file("00007-0000", DOCUMENTS) -> "chunks/00007-0000.docs.npy"."""
    return f"{CHUNKS}/{chunk}{suffix}"


def chunk_files(chunk: ChunkEntry) -> list[str]:
    return [chunk_file(chunk.name, suffix) for suffix in suffixes(with_ids=chunk.ids_xxh3 is not None)]


def base_name(name: str) -> str:
    """base_name("chunks/00007-0000.npy") -> "00007-0000.npy"."""
    return name.rpartition("/")[2]


def suffixes(*, with_ids: bool) -> tuple[str, ...]:
    return (ROWS, DOCUMENTS, IDS) if with_ids else (ROWS, DOCUMENTS)


def unit_of_checkpoint(base_name: str) -> str | None:
    """The name of the unit that a file in units/ is a checkpoint of: "00007.checkpoint.json" -> "00007"."""
    return base_name.removesuffix(_CHECKPOINT) if base_name.endswith(_CHECKPOINT) else None


def is_receipt_or_checkpoint(base_name: str) -> bool:
    return base_name.endswith(_RECEIPT)


def unit_of_draft(base_name: str) -> str | None:
    """The name of the unit that grows in a draft: "00007-0000.npy", "00007.rejects.jsonl" -> "00007".

    None for a draft of what is written at once, such as a receipt: nobody takes it up again.
    """
    if base_name.endswith(_REJECTS):
        return base_name.removesuffix(_REJECTS)
    unit, dash, _ = base_name.partition("-")
    return unit if dash else None


def unit_files(unit_name: str, *, has_rejects: bool) -> Iterator[str]:
    """The base names that a committed unit has in units/."""
    yield f"{unit_name}{_RECEIPT}"
    if has_rejects:
        yield f"{unit_name}{_REJECTS}"


def looks_like_an_output(base_names: set[str]) -> bool:
    """Whether a folder that holds a job holds something else of one, too."""
    return not base_names.isdisjoint({PLAN, UNITS, DRAFTS})
