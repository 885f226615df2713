"""Outputs to look into."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run, texts


def run_two_files(inputs: Path, run: Run) -> Path:
    """Rows of 8 in chunks of 2: "abc|" "defghijklmnopqrstuvwxyz0|" "é|" and padding."""
    (inputs / "part-001.jsonl").write_bytes(texts("abc", "", "defghijklmnopqrstuvwxyz0"))
    (inputs / "part-002.jsonl").write_bytes(b"broken\n" + texts("é\x1b[2J"))
    return run(sequences_per_chunk=2).output


@pytest.fixture
def output(inputs: Path, run: Run) -> Path:
    return run_two_files(inputs, run)


@pytest.fixture
def edges(inputs: Path, tmp_path: Path, run: Run) -> Path:
    """Rows of 4 in chunks of 2.

    aaa| bbbb  bbbb bbbb  bbbb bbb|  c|dd d|e|: the first ends with a row, the second with a chunk, and begins two
    chunks before; the last row is full, without padding.
    """
    (inputs / "a.jsonl").write_bytes(texts("aaa", "b" * 19, "c", "ddd", "e"))
    run(seq_len=4, sequences_per_chunk=2)
    return tmp_path / "out"
