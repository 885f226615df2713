"""Bombs and other hostile content: nothing in an input runs, forges a token, or leaves the output directory."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from tests.conftest import Run, documents, jsonl, rejects, texts, tree
from tests.support import mishaps
from tests.support.mishaps import PATIENCE_SECONDS
from tests.support.processes import PEAK_MEMORY, python
from tests.support.sources import arrow_bytes
from tokenmill.check.verify import verify
from tokenmill.config import ENGINES

RUN = f"""
import sys, tokenmill
tokenmill.run(tokenmill.Config(inputs=(sys.argv[1],), output=sys.argv[2], engine=sys.argv[3], max_rejects="100%"))
print({PEAK_MEMORY})
"""


def bomb(line_bytes: int) -> bytes:
    """One line of so many bytes between two good ones, as zstd of many frames."""
    letters = zstd.compress(b"a" * (64 << 20))
    return (
        zstd.compress(texts("before") + b'{"text": "')
        + letters * (line_bytes >> 26)
        + zstd.compress(b'"}\n' + texts("after"))
    )


@pytest.mark.parametrize("engine", ["streaming", "extreme"])
def test_a_decompression_bomb_is_a_reject_within_the_budget(inputs: Path, tmp_path: Path, engine: str) -> None:
    data = bomb(2 << 30)
    assert len(data) < 400_000
    (inputs / "bomb.jsonl.zst").write_bytes(data)
    command = python("-c", RUN, inputs, tmp_path / "out", engine)
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 600_000_000
    (reject,) = rejects(tmp_path / "out")
    assert reject["reason"] == "too_large"
    assert reject["line"] == 2
    assert "2,147,483,6" in reject["detail"]
    assert tokenmill.open(tmp_path / "out").manifest["ledger"]["documents"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_many_empty_documents_are_counted(inputs: Path, tmp_path: Path, run: Run, engine: str) -> None:
    (inputs / "a.jsonl").write_bytes(texts("first") + b'{"text": ""}\n' * 200_000 + texts("last"))
    result = run(engine=engine)
    assert (result.ledger.documents, result.ledger.empty) == (2, 200_000)
    assert documents(tmp_path / "out") == [b"first", b"last"]


def test_no_text_can_forge_a_special_token_whatever_the_batch(
    inputs: Path, tmp_path: Path, run: Run, small_blocks: Callable[[int], None]
) -> None:
    """Every special token of the bundled tokenizer, in every surrounding, in blocks and batches of every size."""
    vocabulary = json.loads(Path(tokenmill.__file__).with_name("data").joinpath("gpt-neox-20b.json").read_text())
    special = {t["content"]: t["id"] for t in vocabulary["added_tokens"] if t["special"]}
    assert len(special) >= 2
    forms = [form.format(t) for t in special for form in ("{0}", "a{0}b", " {0} ", "{0}{0}", "\n{0}\n", "<{0}>")]
    halves = [part for t in special for part in (t[: len(t) // 2], t[len(t) // 2 :])]  # of two documents in a row
    (inputs / "a.jsonl").write_bytes(texts(*forms, *halves) * 10)
    trees = []
    for batch, block in ((1, 1000), (7, 100), (1000, 1 << 20)):
        small_blocks(block)
        output = tmp_path / f"out{batch}"
        run(output=output, tokenizer="gpt-neox-20b", batch_size=batch, engine="streaming", seq_len=128)
        trees.append(tree(output))
    assert all(t == trees[0] for t in trees)
    found = list(tokenmill.open(output).documents())
    assert len(found) == 10 * len(forms + halves)
    for document in found:
        assert not set(document.tokens[:-1].tolist()) & set(special.values())
    assert verify(output, against_source="all").good


def test_nothing_is_unpickled_or_evaluated(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that would write a file here, as every kind of input, as text, as an id and as a type of Arrow's."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    pickled = b"cposix\nsystem\n(S'touch unpickled'\ntR."
    program = "__import__('os').system('touch evaluated')"
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "c.arrow", "d.txt"):
        (inputs / name).write_bytes(pickled)
    lines = jsonl({"text": program, "id": program}, {"text": "$(touch ran)", "id": "`touch ran`"})
    (inputs / "e.jsonl").write_bytes(lines)
    (inputs / "f.txt").write_text(program)
    kind = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled}
    schema = pa.schema([pa.field(name, pa.string(), metadata=kind) for name in ("text", "id")])
    table = pa.table({"text": [program], "id": [program]}, schema)
    pq.write_table(table, inputs / "g.parquet")
    (inputs / "h.arrow").write_bytes(arrow_bytes(table.to_batches()))
    pickle.loads(pickled.replace(b"unpickled", b"works"))
    run(id_field="id")
    assert documents(tmp_path / "out") == [
        pickled,
        program.encode(),
        b"$(touch ran)",
        program.encode(),
        program.encode(),
        program.encode(),
    ]
    assert os.listdir(here) == ["works"]


def test_the_output_never_leaves_its_directory(
    tmp_path: Path, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever inputs, ids and folders are called: no file outside is written, moved or removed, not even for a time.

    But for temporary files, which are where the system has them.
    """
    work, temporary, log = tmp_path / "some" / "work", tmp_path / "temporary", tmp_path / "log"
    inputs, output = work / "in", work / "out"
    for folder in (inputs / "sub", work / "linked", temporary):
        folder.mkdir(parents=True)
    for number, name in enumerate(["..jsonl", "...jsonl", "%2e%2e%2fx.jsonl", "..\\..\\x.jsonl", "sub/~.jsonl"]):
        (inputs / name).write_bytes(jsonl({"text": "a", "id": "../../x"}) + b"bad\n" * number)
    (work / "linked" / "b.jsonl").write_bytes(jsonl({"text": "b", "id": "b"}))
    (inputs / "c.jsonl").symlink_to(work / "linked" / "b.jsonl")
    (inputs / "d").symlink_to(work / "linked")
    mishaps.in_new_processes(monkeypatch, tmp_path, f"mishaps.note_writes({str(log)!r})")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    before = files_of(tmp_path)
    command = python("-m", "tokenmill", "run", "in/../in/sub/..", "in/*/../*.jsonl", f"../{work.name}/out")
    command += ["--tokenizer", tiny_tokenizer, "--engine", "ultra", "--num-workers", "1", "--id-field", "id"]
    command += ["--max-rejects", "100%", "--seq-len", "8"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = files_of(tmp_path)
    assert {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)} == {log} | {
        p for p in after if output in p.parents
    }
    written = {Path(os.fsdecode(path)) for path in log.read_bytes().split(b"\0")[:-1]}
    elsewhere = {path for path in written if not {output, temporary} & set(path.parents)}
    assert elsewhere <= {output, temporary, Path("/dev/null")}
    assert {path for path in after if output in path.parents and path.is_file()} <= written


def files_of(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every file below a folder, and what changes when it does."""
    found = (p for p in folder.rglob("*") if not p.is_dir())
    return {p: (p.lstat().st_size, p.lstat().st_mtime_ns) for p in found}
