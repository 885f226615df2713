"""Where the tests of writing write to, and how they look at it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xxhash

from tokenmill.output import layout
from tokenmill.storage.base import Storage
from tokenmill.storage.local import LocalStorage
from tokenmill.storage.memory import MemoryStorage


@pytest.fixture
def disk(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(tmp_path, tmp_path / layout.DRAFTS)
    for folder in (layout.DRAFTS, layout.CHUNKS, layout.UNITS):
        storage.make_folder(folder)
    return storage


@pytest.fixture(params=["disk", "memory"])
def storage(request: pytest.FixtureRequest) -> Storage:
    if request.param == "disk":
        on_disk: LocalStorage = request.getfixturevalue("disk")
        return on_disk
    in_memory = MemoryStorage()
    for folder in (layout.CHUNKS, layout.UNITS):
        in_memory.make_folder(folder)
    return in_memory


def published(storage: Storage, folder: str = layout.CHUNKS) -> dict[str, bytes]:
    """What is in a folder, by base name."""
    return {entry.name: storage.read(f"{folder}/{entry.name}") for entry in storage.list(folder)}


def draft_bytes(storage: Storage, name: str) -> bytes:
    """What has been written of a draft so far."""
    with storage.open_draft(name) as source:
        return source.read()


def checksum(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
