"""Nothing changes a byte of the output unnoticed: what the golden jobs write is pinned, and worked out another way.

A change on purpose: `make golden`, and say in the commit why the digests changed (tests/golden/record.py).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

import tokenmill
from tests.conftest import EOS, PAD
from tests.golden.jobs import FOLDER, JOBS, OUTPUT, digests, recorded, run_job
from tests.golden.make_corpus import arrow_files
from tokenmill.check.verify import verify
from tokenmill.cli import main
from tokenmill.config import ENGINES
from tokenmill.records import Reason

NEOX = Path(tokenmill.__file__).parent / "data" / "gpt-neox-20b.json"
TEXTS: dict[str, list[str]] = json.loads((FOLDER / "texts.json").read_text())

# Every job with the plain reference engine's neighbour; those with several units, ids and rejects with all of them.
WAYS = [(job, "streaming") for job in JOBS]
WAYS += [(job, engine) for job in ("plain", "units") for engine in ENGINES if engine != "streaming"]


@pytest.mark.parametrize(("job", "engine"), WAYS)
def test_every_file_of_a_golden_job_is_the_recorded_one(tmp_path: Path, job: str, engine: str) -> None:
    found, wanted = digests(run_job(job, tmp_path, engine)), recorded()[job]
    changed = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    assert not changed, f"other bytes than recorded, or a file too many or too few: {', '.join(changed)}"


def test_the_golden_corpus_has_every_hard_case(tmp_path: Path) -> None:
    manifests: dict[str, dict[str, Any]] = {
        job: json.loads((run_job(job, tmp_path / job) / "manifest.json").read_text())
        for job in ("plain", "rejected", "units", "missing", "wide")
    }
    seen = {r for m in manifests.values() for r in m["ledger"]["rejects_by_reason"]}
    assert seen == {str(r) for r in Reason}
    inputs = manifests["plain"]["inputs"]
    assert {i["codec"] for i in inputs} == {"plain", "gzip", "zstd", "bzip2", "xz"}
    assert {i["format"] for i in inputs} == {"jsonl", "parquet", "text"}
    parts = [u["parts"] for u in manifests["units"]["units"]]
    assert max(map(len, parts)) > 1  # a unit of several files
    assert sum(p[0]["file"] == 12 for p in parts) > 3  # several units of one file
    assert manifests["missing"]["missing"]
    assert {m["tokenizer"]["dtype"] for m in manifests.values()} == {"uint16", "uint32"}
    long = next(d for d in tokenmill.open(tmp_path / "plain" / "plain-streaming").documents() if len(d.tokens) > 800)
    assert len(long.tokens) > 2 * 24 * 16  # it lies in three chunks at the least


def packed(documents: list[list[int]], seq_len: int, eos: int, pad: int) -> list[list[int]]:
    """The plain packer: one stream, cut into rows, the last one filled up."""
    stream = [token for document in documents for token in [*document, eos]]
    stream += [pad] * (-len(stream) % seq_len)
    return [stream[start : start + seq_len] for start in range(0, len(stream), seq_len)]


def rows_of(output: Path) -> list[list[int]]:
    """As they lie in the files, read by numpy alone."""
    chunks = sorted(p for p in (output / "chunks").glob("*.npy") if ".docs" not in p.name)
    return [row for chunk in chunks for row in np.load(chunk).tolist()]


def kept() -> list[str]:
    return [text for name in sorted(TEXTS) for text in TEXTS[name]]


def test_the_rows_are_what_a_ten_line_packer_makes_of_the_texts(tmp_path: Path) -> None:
    documents = [list(text.encode()) for text in kept()]
    assert rows_of(run_job("plain", tmp_path)) == packed(documents, 16, EOS, PAD)


def test_the_rows_of_arrow_are_what_a_ten_line_packer_makes_of_the_texts(tmp_path: Path) -> None:
    output = run_job("arrow", tmp_path)
    manifest = json.loads((output / "manifest.json").read_text())
    assert {i["format"] for i in manifest["inputs"]} == {"arrow"}
    texts = {name: kept for name, (_, kept) in arrow_files().items()}
    units = [sorted({manifest["inputs"][p["file"]]["name"] for p in u["parts"]}) for u in manifest["units"]]
    assert len(units) > len({name for names in units for name in names}) > 3  # a file of several units
    assert [bytes(d.tokens[:-1].tolist()).decode() for d in tokenmill.open(output).documents()] == [
        text for name in sorted(texts) for text in texts[name]
    ]


def test_the_rows_are_what_hugging_face_tokenizers_make_of_the_texts(tmp_path: Path) -> None:
    reference = Tokenizer.from_file(str(NEOX))
    reference.encode_special_tokens = True
    documents = [reference.encode(text, add_special_tokens=False).ids for text in kept()]
    assert rows_of(run_job("neox", tmp_path)) == packed(documents, 32, eos=0, pad=1)


def test_the_first_rows_are_these_numbers(tmp_path: Path) -> None:
    """Worked out once by Hugging Face tokenizers 0.23.3 and a pencil, lest both sides above be wrong together."""
    first, *_, last = rows_of(run_job("neox", tmp_path))
    assert first == FIRST_ROW
    assert last == LAST_ROW
    assert rows_of(run_job("plain", tmp_path))[:2] == [
        [*b"the first", EOS, *b"CRLF", EOS, *b"n"],
        [*b"o id", EOS, *"ünïcödé".encode()],
    ]


FIRST_ROW = [
    783, 806, 0, 1311, 19546, 0, 2369, 2654, 0, 17499, 12589, 68, 25873, 860, 209, 45387,
    97, 30886, 49042, 211, 3974, 0, 44932, 310, 752, 13814, 12013, 0, 66, 22436, 654, 93,
]  # fmt: skip
LAST_ROW = [
    615, 74, 547, 67, 22492, 832, 338, 72, 187, 73, 571, 30550, 72, 12964, 277, 11316,
    45061, 480, 4989, 50276, 71, 75, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1,
]  # fmt: skip


def test_an_output_of_format_version_1_stays_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Committed as it was written by version 0.1.0."""
    output = tmp_path / "output"
    shutil.copytree(OUTPUT, output)
    rows = tokenmill.open(output)
    assert rows.manifest["format_version"] == 1
    found = [bytes(i for i in d.tokens.tolist() if i < 256).decode() for d in rows.documents()]
    assert found == kept()
    assert verify(output, against_source="all", source=FOLDER / "corpus").good
    assert main(["show", str(output), "--file", "12-long.jsonl", "--record", "3"]) == 0
    assert "after" in capsys.readouterr().out
    assert main(["stats", str(output)]) == 0
    assert f"{len(found)} documents" in capsys.readouterr().out
