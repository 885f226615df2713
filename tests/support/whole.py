"""What must hold for an output directory at any moment, and after any crash: nothing in it says more than is true.

Written without a line of tokenmill, so that the two cannot be wrong in the same way.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import xxhash

Files = dict[str, bytes]
"""The files of an output directory, as `tests.conftest.tree` gives them."""

RECEIPT = re.compile(r"units/\d+\.json")
CHECKPOINT = re.compile(r"units/(\d+)\.checkpoint\.json")


def faults(files: Files, versions: Sequence[Files]) -> Iterator[str]:
    """What is wrong with a directory whose receipts and manifest can only be of one of these complete outputs."""
    receipts = {name: data for name, data in files.items() if RECEIPT.fullmatch(name)}
    for name, data in receipts.items():
        yield from receipt_faults(name, data, files)
        if not any(v.get(name) == data and v["job.json"] == files.get("job.json") for v in versions):
            yield f"{name} is not of the job in job.json"
    for name in ("job.json", "plan.jsonl", "tokenizer.json") if receipts else ():
        if files.get(name) not in [v[name] for v in versions if name in v]:
            yield f"there are receipts, but {name} is not whole"
    for name, data in files.items():
        if CHECKPOINT.fullmatch(name):
            yield from checkpoint_faults(name, data, files)
    if "manifest.json" in files:
        yield from manifest_faults(files, versions)


def receipt_faults(name: str, data: bytes, files: Files) -> Iterator[str]:
    if (receipt := parsed(data)) is None:
        yield f"{name} is not whole"
        return
    for chunk in receipt["chunks"]:
        yield from chunk_faults(name, chunk, files)
    rejects = files.get(name.replace(".json", ".rejects.jsonl"), b"")
    if receipt["rejects_xxh3"] != (xxhash.xxh3_128_hexdigest(rejects) if rejects else None):
        yield f"{name} tells of other rejects than there are"


def checkpoint_faults(name: str, data: bytes, files: Files) -> Iterator[str]:
    if (checkpoint := parsed(data)) is None:
        yield f"{name} is not whole"
        return
    for chunk in checkpoint["chunks"]:
        yield from chunk_faults(name, chunk, files)


def chunk_faults(owner: str, chunk: dict[str, Any], files: Files) -> Iterator[str]:
    for suffix, checksum, items in ((".npy", "xxh3", "rows"), (".docs.npy", "docs_xxh3", "documents")):
        name = f"chunks/{chunk['name']}{suffix}"
        if name not in files:
            yield f"{owner} names {name}, which is not there"
        elif array(files[name]) != (chunk[items], chunk[checksum]):
            yield f"{owner} names {name}, which is not whole"
    ids = files.get(f"chunks/{chunk['name']}.ids.jsonl")
    if chunk["ids_xxh3"] != (None if ids is None else xxhash.xxh3_128_hexdigest(ids)):
        yield f"{owner} names the ids of {chunk['name']}, which are not whole"


def manifest_faults(files: Files, versions: Sequence[Files]) -> Iterator[str]:
    data, _, end = files["manifest.json"].rpartition(b',\n "xxh3": "')
    if end != xxhash.xxh3_128_hexdigest(data).encode() + b'"\n}\n':
        yield "manifest.json is not whole"
        return
    units = range(files.get("plan.jsonl", b"").count(b"\n"))
    for name in [f"units/{unit:05d}.json" for unit in units]:
        if name not in files:
            yield f"there is a manifest, but no {name}"
    complete = next((v for v in versions if v.get("manifest.json") == files["manifest.json"]), None)
    if complete is None:
        yield "manifest.json is of another job"
        return
    for name in complete:
        if files.get(name) != complete[name]:
            yield f"there is a manifest, but {name} is not what it was when that was written"


def lost_progress(files: Files, after: Files) -> Iterator[str]:
    """What a checkpoint tells of an incomplete chunk and of the rejects must be there, or the unit starts over.

    Both are drafts in tmp/ until they are published, and may be found where they were or where they were to be.
    """
    for name, data in files.items():
        match = CHECKPOINT.fullmatch(name)
        if match is None or (checkpoint := parsed(data)) is None:
            continue
        partial, chunk = checkpoint["partial"], f"chunks/{match[1]}-{len(checkpoint['chunks']):04d}"
        counted = {
            f"{chunk}.npy": 2 * partial["tokens"],
            f"{chunk}.docs.npy": 20 * partial["documents"],
            f"{chunk}.ids.jsonl": partial["ids_bytes"],
            f"units/{match[1]}.rejects.jsonl": checkpoint["rejects_bytes"],
        }
        for file, size in counted.items():
            found = files.get(f"tmp/{file.rpartition('/')[2]}") or files.get(file, b"")
            expected = after.get(file, b"")
            first = header_size(expected)
            if size and found[first : first + size] != expected[first : first + size]:
                yield f"{name} tells of more of {file} than is there"


def header_size(data: bytes) -> int:
    """Of a .npy file; it says how many rows there are only when they are complete."""
    return 10 + int.from_bytes(data[8:10], "little") if data.startswith(b"\x93NUMPY") else 0


@cache
def array(data: bytes) -> tuple[int, str] | None:
    """The number of rows of a .npy file and the checksum of its data."""
    try:
        found = np.load(io.BytesIO(data))
    except (ValueError, EOFError):
        return None
    return len(found), xxhash.xxh3_128_hexdigest(found.tobytes())


@cache
def parsed(data: bytes) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError:
        return None
    return found
