"""enhanced: a checkpoint after every batch, except where a restart could not continue from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import Run, texts, tree
from tests.engines.conftest import run_until
from tests.support.stops import LookAfterEachBlock


def test_a_batch_that_completes_no_row_is_no_place_to_go_on_from(
    inputs: Path, tmp_path: Path, job: dict[str, Any], run: Run
) -> None:
    """The row began in the file before, and what there is of it is on no disk."""
    for name, text in (("a", "A" * 100), ("b", "bcd"), ("c", "C" * 100)):
        (inputs / f"{name}.jsonl").write_bytes(texts(text))
    options: dict[str, Any] = {"engine": "enhanced", "seq_len": 64}
    run_until(LookAfterEachBlock(stop_after=2), **job, **options)  # in the second file
    run(**options)
    run(engine="streaming", seq_len=64, output=tmp_path / "fresh")
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
