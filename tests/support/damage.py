"""What can happen to the files of an output behind our back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

Damage = Callable[[Path], object]
"""Done to an output directory."""


def flip(path: Path, at: int) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def swap(one: Path, other: Path) -> None:
    held = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(held)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A JSON file, as a person would who writes it as tokenmill does."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def edit_text(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def forge(output: Path, chunk: str, change: Callable[[Any], None], suffix: str = ".npy") -> None:
    """Change an array and make its checksum right again, as a defect of the writer would.

    The manifest goes: the next run makes it from the receipts.
    """
    path = output / "chunks" / f"{chunk}{suffix}"
    array = np.load(path)
    change(array)
    np.save(path, array)
    key = "xxh3" if suffix == ".npy" else "docs_xxh3"

    def put(receipt: dict[str, Any]) -> None:
        for entry in receipt["chunks"]:
            if entry["name"] == chunk:
                entry[key] = xxhash.xxh3_128_hexdigest(array.tobytes())

    edit(output / "units" / f"{chunk[:5]}.json", put)
    (output / "manifest.json").unlink()
