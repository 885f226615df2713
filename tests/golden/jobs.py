"""The jobs over the golden corpus, and how their outputs are written down."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import xxhash

import tokenmill
from tests.conftest import tiny_tokenizer_json, tree

FOLDER = Path(__file__).parent
DIGESTS = FOLDER / "digests.json"
OUTPUT = FOLDER / "output"

Digests = dict[str, str]

COMMON: dict[str, Any] = {
    "tokenizer": "tiny",
    "seq_len": 16,
    "max_document_bytes": 2000,
    "max_rejects": "100%",
}
# Cut small, so that a file becomes several units. Elsewhere all files are one unit.
SMALL_UNITS = {"units", "missing", "arrow"}
JOBS: dict[str, dict[str, Any]] = {
    "plain": {"id_field": "id", "sequences_per_chunk": 24},
    "framed": {"bos_token": "<|bos|>", "tail": "drop", "id_field": "id"},
    "without-eos": {"no_eos": True},
    "matched": {"special_tokens_in_text": "match"},
    "rejected": {"special_tokens_in_text": "reject", "tail": "drop"},
    "wide": {"tokenizer": "wide"},
    "units": {"id_field": "id", "bos_token": "<|bos|>", "sequences_per_chunk": 50},
    "missing": {"seq_len": 5},
    "neox": {"tokenizer": "gpt-neox-20b", "seq_len": 32},
    "arrow": {"id_field": "id", "sequences_per_chunk": 300},
}
# Those of their own corpus: a file more in the common one would change the output of every job.
CORPORA = {"arrow": "corpus-arrow"}


def wide_tokenizer_json() -> dict[str, Any]:
    """The tiny tokenizer with EOS at 70,000, which 16 bits cannot hold."""
    model = tiny_tokenizer_json()
    model["added_tokens"][0]["id"] = 70_000
    model["model"]["vocab"] |= {f"filler{n}": n for n in range(259, 70_000)}
    return model


@contextmanager
def small_units() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", 3000)
        patch.setattr("tokenmill.plan.cut.FILE_COST_BYTES", 0)
        yield


@contextmanager
def one_unit() -> Iterator[None]:
    yield


def run_job(name: str, folder: Path, engine: str = "streaming") -> Path:
    """Run a job over a copy of the corpus below this folder; where its output is."""
    corpus = CORPORA.get(name, "corpus")
    inputs, output = folder / corpus, folder / f"{name}-{engine}"
    if not inputs.exists():
        shutil.copytree(FOLDER / corpus, inputs)
    options = COMMON | JOBS[name]
    if name == "missing":
        (inputs / "12-missing.jsonl").symlink_to(folder / "nowhere")
    if options["tokenizer"] in ("tiny", "wide"):
        path = folder / f"{options['tokenizer']}.json"
        path.write_text(json.dumps(tiny_tokenizer_json() if path.stem == "tiny" else wide_tokenizer_json()))
        options["tokenizer"] = str(path)
    with small_units() if name in SMALL_UNITS else one_unit():
        tokenmill.run(tokenmill.Config(inputs=(str(inputs),), output=output, engine=engine, num_workers=2, **options))
    return output


def digests(output: Path) -> Digests:
    """Every file of an output, logs aside."""
    return {name: xxhash.xxh3_128_hexdigest(data) for name, data in tree(output).items()}


def recorded() -> dict[str, Digests]:
    found: dict[str, Digests] = json.loads(DIGESTS.read_text())
    return found
