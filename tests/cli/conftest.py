"""A small job for the commands to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import texts


@pytest.fixture
def job(inputs: Path, tmp_path: Path, tiny_tokenizer: str) -> list[str]:
    (inputs / "a.jsonl").write_bytes(texts(*(f"text {n}" for n in range(50))))
    return ["run", str(inputs), str(tmp_path / "out"), "--tokenizer", tiny_tokenizer, "--seq-len", "16"]
