"""What the tests share: a tokenizer small enough to read, and short ways to make inputs and run jobs."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tokenmill.plan import cut
from tokenmill.read import lines

# Tests fork and start processes; the reference tokenizer must not keep threads.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A job forces its files to disk, some milliseconds each time. In memory that is nothing; what is forced, and when, is
# for tests/system/test_durability.py to see.
MEMORY = Path("/dev/shm")
ROOMY = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30 else None
if ROOMY:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(ROOMY))
# Nothing in the tests may reach for the network, whatever the machine offers.
os.environ["HF_HUB_OFFLINE"] = "1"


def byte_alphabet() -> list[str]:
    """The characters that byte-level BPE writes for the bytes 0 to 255."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in visible}
    hidden = (b for b in range(256) if b not in table)
    table |= {b: chr(256 + n) for n, b in enumerate(hidden)}
    return [table[b] for b in range(256)]


def tiny_tokenizer_json(**changes: Any) -> dict[str, Any]:
    """Byte b is token b; 256 is <|endoftext|>, 257 <|padding|>, 258 <|bos|>. So ids can be written by hand."""
    special = {"<|endoftext|>": 256, "<|padding|>": 257, "<|bos|>": 258}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": c, **flags} for c, i in special.items()],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {c: b for b, c in enumerate(byte_alphabet())},
            "merges": [],
        },
    } | changes


EOS, PAD, BOS = 256, 257, 258


def ids(text: str) -> list[int]:
    """What the tiny tokenizer makes of a text."""
    return list(text.encode())


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tokenizer") / "tiny.json"
    path.write_text(json.dumps(tiny_tokenizer_json()))
    return str(path)


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def texts(*values: str) -> bytes:
    """JSON Lines with these texts."""
    return jsonl(*({"text": v} for v in values))


MakeConfig = Callable[..., tokenmill.Config]
Run = Callable[..., tokenmill.RunResult]


@pytest.fixture
def config(tmp_path: Path, tiny_tokenizer: str) -> MakeConfig:
    """A job over tmp_path/in into tmp_path/out with short rows, unless told otherwise."""

    def make_config(**options: Any) -> tokenmill.Config:
        defaults: dict[str, Any] = {
            "inputs": (str(tmp_path / "in"),),
            "output": tmp_path / "out",
            "tokenizer": tiny_tokenizer,
            "seq_len": 8,
            "max_rejects": "100%",
        }
        return tokenmill.Config(**defaults | options)

    return make_config


@pytest.fixture
def run(config: MakeConfig) -> Run:
    """Run a job, see `config`; `stop` as tokenmill.run takes it."""

    def run_job(*, stop: threading.Event | None = None, **options: Any) -> tokenmill.RunResult:
        return tokenmill.run(config(**options), stop=stop)

    return run_job


SmallUnits = Callable[..., None]


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> SmallUnits:
    """Have inputs cut into units of so many bytes of text; opening a file counts as much as `file_cost` bytes."""

    def cut_small(min_bytes: int, file_cost: int = cut.FILE_COST_BYTES) -> None:
        monkeypatch.setattr(cut, "MIN_UNIT_BYTES", min_bytes)
        monkeypatch.setattr(cut, "FILE_COST_BYTES", file_cost)

    return cut_small


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have lines read in blocks of about so many bytes."""
    return lambda size: monkeypatch.setattr(lines, "BLOCK_BYTES", size)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def rejects(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "rejects.jsonl").read_text().splitlines()]


def documents(output: Path) -> list[bytes]:
    """The documents of an output made with the tiny tokenizer, as bytes, without EOS."""
    return [bytes(i for i in d.tokens.tolist() if i < 256) for d in tokenmill.open(output).documents()]


def tree(output: Path) -> dict[str, bytes]:
    """Every file of an output directory with its content, logs aside: what `diff -r` compares."""
    files = (p for p in output.rglob("*") if p.is_file())
    names = {p.relative_to(output).as_posix(): p for p in files}
    return {n: p.read_bytes() for n, p in sorted(names.items()) if not n.startswith("logs/")}
