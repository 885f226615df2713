"""Rows that no tokenizer wrote are found, though their checksums are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.check.conftest import OPTIONS
from tests.conftest import Run, texts
from tests.support.damage import flip, forge
from tokenmill.check import chunks
from tokenmill.check.verify import verify

FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "an id beyond the vocabulary": (
        lambda o: forge(o, "00001-0000", lambda a: a.__setitem__((0, 1), 300)),
        "it holds the id 300, but the vocabulary ends at 258",
    ),
    "an EOS inside a document": (
        lambda o: forge(o, "00001-0000", lambda a: a.__setitem__((0, 1), 256)),
        "it has 3 EOS tokens, but 2 documents end there",
    ),
    "a document without EOS": (
        lambda o: forge(o, "00001-0000", lambda a: a.__setitem__(a == 256, 65)),
        "does not end with EOS",
    ),
    "something behind the last token": (
        lambda o: forge(o, last_chunk(o), lambda a: a.__setitem__((-1, -1), 65)),
        "something other than padding",
    ),
    "ends that do not increase": (
        lambda o: forge(o, "00001-0000", lambda a: a["end"].__setitem__(slice(None), 5), ".docs.npy"),
        "do not increase",
    ),
    "a record that is not there": (
        lambda o: forge(o, "00001-0000", lambda a: a["record"].__setitem__(-1, 1000), ".docs.npy"),
        "is not of this unit",
    ),
    "a record twice": (
        lambda o: forge(o, "00001-0000", lambda a: a["record"].__setitem__(slice(None), 0), ".docs.npy"),
        "appears twice or out of order",
    ),
}


def last_chunk(output: Path) -> str:
    return max(p.name.split(".")[0] for p in (output / "chunks").glob("00001-*.docs.npy"))


@pytest.mark.parametrize("name", FORGED)
def test_rows_that_no_tokenizer_wrote_are_found_though_their_checksums_are_right(
    output: Path, run: Run, name: str
) -> None:
    damage, said = FORGED[name]
    damage(output)
    run(**OPTIONS)  # makes the manifest again from the receipts
    verdict = verify(output)
    assert any(said in f.what for f in verdict.faults), verdict.faults
    assert verdict.units_to_redo() == [1]


FRAMED: dict[str, Any] = {"seq_len": 4, "sequences_per_chunk": 2, "bos_token": "<|bos|>"}


@pytest.fixture
def framed(inputs: Path, tmp_path: Path, run: Run) -> Path:
    """Chunks of 8 tokens: `Bab| Bcd|`, `Be|B fghi`, `j|pp`: a document begins with a chunk, one goes on in the next."""
    (inputs / "a.jsonl").write_bytes(texts("ab", "cd", "e", "fghij"))
    run(**FRAMED)
    return tmp_path / "out"


@pytest.mark.parametrize("block_bytes", [2, 6, 1 << 20])
@pytest.mark.parametrize(
    ("chunk", "token"),
    [("00000-0000", 0), ("00000-0000", 4), ("00000-0001", 0), ("00000-0001", 3)],
    ids=["first of the unit", "inside a chunk", "first of a chunk", "goes on in the next chunk"],
)
def test_a_document_without_bos_is_found_wherever_it_begins(
    framed: Path, run: Run, monkeypatch: pytest.MonkeyPatch, chunk: str, token: int, block_bytes: int
) -> None:
    monkeypatch.setattr(chunks, "BLOCK_BYTES", block_bytes)
    assert verify(framed).good
    forge(framed, chunk, lambda a: a.reshape(-1).__setitem__(token, ord("x")))
    run(**FRAMED)
    (fault,) = verify(framed).faults
    assert fault.what == f"chunk {chunk}: the document that begins at token {token} does not begin with BOS"
    assert fault.unit == 0


@pytest.mark.parametrize("block_bytes", [2, 6, 1 << 20])
@pytest.mark.parametrize(
    ("chunk", "token"), [("00000-0000", 3), ("00000-0000", 7), ("00000-0001", 2), ("00000-0002", 1)]
)
def test_a_document_without_eos_is_found_wherever_it_ends(
    framed: Path, run: Run, monkeypatch: pytest.MonkeyPatch, chunk: str, token: int, block_bytes: int
) -> None:
    monkeypatch.setattr(chunks, "BLOCK_BYTES", block_bytes)
    forge(framed, chunk, lambda a: a.reshape(-1).__setitem__(token, ord("x")))
    run(**FRAMED)
    (fault,) = verify(framed).faults
    assert fault.what == f"chunk {chunk}: the document that ends at token {token + 1} does not end with EOS"


def test_a_damaged_chunk_raises_no_alarm_about_the_next(framed: Path) -> None:
    """Whether a document begins with it can then not be told."""
    flip(framed / "chunks/00000-0001.docs.npy", -20)
    (fault,) = verify(framed).faults
    assert fault.what.startswith("chunk 00000-0001: the checksum of the sidecar")
