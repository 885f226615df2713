from __future__ import annotations

import pytest

from tokenmill.storage.memory import MemoryStorage


@pytest.fixture
def storage() -> MemoryStorage:
    """An output in memory with nothing in its folders."""
    storage = MemoryStorage()
    for folder in ("chunks", "units"):
        storage.make_folder(folder)
    storage.sync()
    return storage
