"""Whole runs with tokenizers that can turn text into special tokens: none is in the rows, and verify agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.conftest import Run, rejects, texts
from tests.support.tokenizers import replaced, unigram_json, word_level_json, word_piece_json, write

FULL_WIDTH = "\uff1c/s\uff1e"  # which NFKC makes </s>

NFKC = unigram_json()
AT_SIGNS = word_level_json(normalizer=replaced(("</s>", ""), ("@@", "</s>")))

TEXTS = ["before a", f"a {FULL_WIDTH} b", "before </s> after", "x @@ after", "after", "@@", FULL_WIDTH, "</s>", "漢 b"]


@pytest.mark.parametrize(
    ("model", "mode", "forged"),
    [
        (NFKC, "plain", [1, 2, 6, 7]),
        (NFKC, "reject", [1, 2, 6, 7]),
        (AT_SIGNS, "plain", [3, 5]),
        (AT_SIGNS, "reject", [2, 3, 5, 7]),
        (word_level_json(), "plain", [2, 7]),
        (word_level_json(), "reject", [2, 7]),
        (word_piece_json(), "plain", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "" if isinstance(value, list) else value["model"]["type"],
)
def test_no_document_that_becomes_a_special_token_is_in_the_rows_and_verify_agrees(
    tmp_path: Path, inputs: Path, run: Run, model: dict[str, Any], mode: str, forged: list[int]
) -> None:
    (inputs / "a.jsonl").write_bytes(texts(*TEXTS))
    eos = "[SEP]" if model["model"]["type"] == "WordPiece" else "</s>"
    path = write(tmp_path / "t.json", model)
    for engine in ("streaming", "extreme"):
        output = tmp_path / engine
        result = run(output=output, engine=engine, tokenizer=path, special_tokens_in_text=mode, eos_token=eos)
        assert result.ledger.rejects_by_reason == ({"special_token": len(forged)} if forged else {})
        assert [r["line"] for r in rejects(output)] == [n + 1 for n in forged]
        empty = [7] if model is AT_SIGNS else []
        kept = [n for n in range(len(TEXTS)) if n not in forged + empty]
        assert [d.record for d in tokenmill.open(output).documents()] == [n + 1 for n in kept]
        rows = tokenmill.open(output)
        assert (np.stack(list(rows)) == rows.manifest["tokenizer"]["eos_id"]).sum() == len(kept)
        assert tokenmill.verify(output, against_source="all").faults == []
        assert tokenmill.verify(output, against_source=3).faults == []


def test_a_forgery_in_parquet_is_rejected_with_its_row(tmp_path: Path, inputs: Path, run: Run) -> None:
    pq.write_table(pa.table({"text": TEXTS}), inputs / "a.parquet")
    run(tokenizer=write(tmp_path / "t.json", NFKC))
    assert [(r["row"], r["reason"]) for r in rejects(tmp_path / "out")] == [
        (n + 1, "special_token") for n in (1, 2, 6, 7)
    ]
