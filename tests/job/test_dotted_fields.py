"""A field with a dot, as a key or column of that name and as a way to a nested one, in every format."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Run, documents, jsonl
from tests.support.sources import arrow_bytes
from tokenmill.check.verify import verify
from tokenmill.errors import ConfigError

BOTH = [{"d": {"t": f"way {n}", "i": -n}, "d.t": f"key {n}", "d.i": n} for n in range(3)]
KEYS = [{"d.t": f"key {n}", "d.i": n} for n in range(3)]
WAYS = [{"d": {"t": f"key {n}", "i": n}} for n in range(3)]
OTHERS = [{"d": {"x": "a"}, "d.y": "a", "t": "a"}]


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def arrow(rows: list[dict[str, Any]]) -> bytes:
    return arrow_bytes(pa.Table.from_pylist(rows).to_batches())


FORMATS = {"a.jsonl": lambda rows: jsonl(*rows), "a.parquet": parquet, "a.arrow": arrow}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("records", [BOTH, KEYS, WAYS], ids=["both", "keys", "ways"])
def test_a_name_with_a_dot_wins_over_a_nested_field_for_text_and_id(
    inputs: Path, tmp_path: Path, run: Run, name: str, records: list[dict[str, Any]]
) -> None:
    (inputs / name).write_bytes(FORMATS[name](records))
    run(text_field="d.t", id_field="d.i")
    assert documents(tmp_path / "out") == [b"key 0", b"key 1", b"key 2"]
    (ids,) = (tmp_path / "out" / "chunks").glob("*.ids.jsonl")
    assert [json.loads(line) for line in ids.read_text().splitlines()] == [0, 1, 2]
    assert verify(tmp_path / "out", against_source="all").good


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_with_neither_is_refused(inputs: Path, run: Run, name: str) -> None:
    (inputs / name).write_bytes(FORMATS[name](OTHERS))
    with pytest.raises(ConfigError, match=r"'d\.t'"):
        run(text_field="d.t")
