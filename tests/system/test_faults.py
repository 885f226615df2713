"""Reading that fails, clocks that jump, locks that are left, machines that change, bombs and other hostile input."""

from __future__ import annotations

import errno
import gc
import gzip
import io
import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from tests.conftest import Run, documents, jsonl, rejects, texts, tree
from tests.support import mishaps
from tests.support.mishaps import PATIENCE_SECONDS, assert_reports_agree
from tokenmill.check.verify import ALL, verify
from tokenmill.config import ENGINES
from tokenmill.errors import Interrupted

LINES = texts(*(f"line {n} " + "x" * 200 for n in range(2000)))
NOISE = random.Random(1).randbytes(80_000).hex()
BITS = [NOISE[i : i + 2000] for i in range(0, 40_000, 2000)]


@dataclass(frozen=True)
class Kind:
    """A file that is read for a while and then not any more: what is in it, and the mishap that happens to it."""

    content: Callable[[], bytes]
    mishap: str
    """Of tests/support/mishaps.py; it is given the name of the file, and these arguments."""
    arguments: tuple[int, ...]
    error: int = errno.EIO

    def happen(self, name: str, patch: mishaps.Patch) -> None:
        getattr(mishaps, self.mishap)(name, *self.arguments, patch=patch)

    def statement(self, name: str) -> str:
        return f"mishaps.{self.mishap}{(name, *self.arguments)}"


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"text": bit} for bit in BITS]), file, row_group_size=8)
    return file.getvalue()


KINDS = {
    "b.jsonl": Kind(lambda: texts(*BITS), "break_file", (0,)),
    "c.jsonl": Kind(lambda: texts(*BITS), "break_file", (20_000,)),
    "d.jsonl": Kind(lambda: texts(*BITS), "break_file", (20_000, errno.ESTALE), errno.ESTALE),
    "e.jsonl.gz": Kind(lambda: gzip.compress(texts(*BITS)), "break_file", (10_000,)),
    "f.txt": Kind(lambda: "".join(BITS).encode(), "break_file", (20_000,)),
    "g.txt.gz": Kind(lambda: gzip.compress("".join(BITS).encode()), "break_file", (10_000, errno.EACCES), errno.EACCES),
    "h.parquet": Kind(parquet, "break_parquet", (1,)),
    "i.parquet": Kind(parquet, "replace_parquet", (), errno.ENXIO),
}
SMALL = {
    "tokenmill.read.lines.BLOCK_BYTES": 4096,  # so that blocks, rows and chunks were made of what came before
    "tokenmill.read.decompress.INPUT_BYTES": 2048,
    "tokenmill.read.decompress.OUTPUT_BYTES": 1024,
}


def break_and_mend(names: list[str], engine: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a job of which these files go bad while they are read, then mend them and run it again."""
    inputs = tmp_path / "in"
    for name, data in {"a.jsonl": texts("before"), "z.jsonl": texts("after")}.items():
        (inputs / name).write_bytes(data)
    for name in names:
        (inputs / name).write_bytes(KINDS[name].content())
    options: dict[str, Any] = {"seq_len": 64, "sequences_per_chunk": 200}
    run(engine="streaming", output=tmp_path / "fresh", **options)
    with monkeypatch.context() as broken:
        for name, value in SMALL.items():
            broken.setattr(name, value)
        for name in names:
            KINDS[name].happen(name, broken.setattr)
        small = (f"mishaps.set_to({name!r}, {value})" for name, value in SMALL.items())
        mishaps.in_new_processes(broken, tmp_path, *small, *(KINDS[name].statement(name) for name in names))
        result = run(engine=engine, num_workers=2, **options)
    assert result.missing.keys() == set(names)
    for name in names:
        assert result.missing[name].startswith(f"{name} cannot be read: ")
        assert os.strerror(KINDS[name].error) in result.missing[name]
    assert documents(tmp_path / "out") == [b"before", b"after"]
    assert result.ledger.rejected == 0
    assert_reports_agree(result)
    left = {fault.what.partition(" is missing from the output")[0] for fault in verify(tmp_path / "out").faults}
    assert left == {f"the input {name}" for name in names}, "or there is something of them left"
    if (tmp_path / "i.parquet").exists():
        (tmp_path / "i.parquet").replace(inputs / "i.parquet")
    assert run(engine="streaming", **options).complete
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


IN_PROCESS = [name for name in ENGINES if name != "ultra"]


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("engine", IN_PROCESS)
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_cannot_be_read_to_its_end_leaves_nothing_behind_and_is_read_later(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str, name: str
) -> None:
    break_and_mend([name], engine, tmp_path, run, monkeypatch)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit_bytes", [16 << 20, 100_000], ids=["one unit", "a unit each"])
def test_files_that_fail_at_the_same_time_are_all_named_and_nothing_of_them_is_left(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str, unit_bytes: int
) -> None:
    """In worker processes too."""
    monkeypatch.setattr("tokenmill.plan.cut.MIN_UNIT_BYTES", unit_bytes)
    break_and_mend(list(KINDS), engine, tmp_path, run, monkeypatch)


@pytest.mark.parametrize("engine", IN_PROCESS)
@pytest.mark.parametrize("name", ["b.jsonl", "b.txt"])
def test_a_file_that_is_cut_off_while_it_is_read_is_named_and_nothing_of_it_is_mixed_in(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str, name: str
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("before"))
    (inputs / name).write_bytes(LINES * 5)
    with monkeypatch.context() as broken:
        mishaps.break_file(name, 1 << 20, 0, mishaps.ShrinkingFile, broken.setattr)
        result = run(engine=engine)
    assert "changed while it was read" in result.missing[name]
    assert documents(tmp_path / "out") == [b"before"]
    assert_reports_agree(result)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_clock_that_jumps_changes_nothing(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Every clock that is read anywhere goes to and fro by decades; in worker processes too."""
    (inputs / "a.jsonl").write_bytes(LINES)
    options: dict[str, Any] = {"num_workers": 2, "seq_len": 64, "sequences_per_chunk": 1000}
    run(engine="streaming", output=tmp_path / "fresh", **options)
    with monkeypatch.context() as jumping:
        read = mishaps.let_clocks_jump(jumping.setattr)
        mishaps.in_new_processes(jumping, tmp_path, "mishaps.let_clocks_jump()")
        run(engine=engine, **options)
    assert read.keys() == {"time", "monotonic"} | ({"thread_time"} if engine != "ultra" else set())
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


class StopAtFirstCheckpoint:
    """An event that is set once a unit is half done."""

    def __init__(self, output: Path) -> None:
        self._units = output / "units"

    def is_set(self) -> bool:
        return any(self._units.glob("*.checkpoint.json"))


def test_a_restart_on_another_machine_goes_on_where_the_first_stopped(
    inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other folders, a lock that nobody holds, logs of another host: none of it decides anything."""
    monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", 64 << 10)
    (inputs / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    options: dict[str, Any] = {"sequences_per_chunk": 500, "seq_len": 64}
    run(output=tmp_path / "fresh", engine="streaming", **options)
    here = tmp_path / "out"
    config = tokenmill.Config(
        inputs=(str(inputs),), output=here, tokenizer=tiny_tokenizer, engine="streaming", **options
    )
    with pytest.raises(Interrupted):
        tokenmill.run(config, stop=cast(threading.Event, StopAtFirstCheckpoint(here)))
    there = tmp_path / "another" / "machine"
    shutil.copytree(here, there / "tokens")
    shutil.copytree(inputs, there / "texts")
    (there / "tokens" / "logs" / "lock").write_text("host elsewhere, process 1")
    first = there / "tokens" / "chunks" / "00000-0000.npy"
    written = first.stat().st_mtime_ns
    result = run(inputs=(str(there / "texts"),), output=there / "tokens", engine="extreme", **options)
    assert first.stat().st_mtime_ns == written  # it went on, and did not begin anew
    assert_reports_agree(result)
    assert tree(there / "tokens") == tree(tmp_path / "fresh")


# bombs and other hostile content

# Not ru_maxrss, which a process inherits from the one that started it.
PEAK = """
import sys, tokenmill
tokenmill.run(tokenmill.Config(inputs=(sys.argv[1],), output=sys.argv[2], engine=sys.argv[3], max_rejects="100%"))
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
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
    command = [sys.executable, "-c", PEAK, str(inputs), str(tmp_path / "out"), engine]
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
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
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
        monkeypatch.setattr("tokenmill.read.lines.BLOCK_BYTES", block)
        output = tmp_path / f"out{batch}"
        run(output=output, tokenizer="gpt-neox-20b", batch_size=batch, engine="streaming", seq_len=128)
        trees.append(tree(output))
    assert all(t == trees[0] for t in trees)
    found = list(tokenmill.open(output).documents())
    assert len(found) == 10 * len(forms + halves)
    for document in found:
        assert not set(document.tokens[:-1].tolist()) & set(special.values())
    assert verify(output, against_source=ALL).good


def test_nothing_is_unpickled_or_evaluated(
    inputs: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that would write a file here, as every kind of input, as text, as an id and as a type of Arrow's."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    pickled = b"cposix\nsystem\n(S'touch unpickled'\ntR."
    python = "__import__('os').system('touch evaluated')"
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.txt"):
        (inputs / name).write_bytes(pickled)
    lines = jsonl({"text": python, "id": python}, {"text": "$(touch ran)", "id": "`touch ran`"})
    (inputs / "e.jsonl").write_bytes(lines)
    (inputs / "f.txt").write_text(python)
    kind = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled}
    schema = pa.schema([pa.field("text", pa.string(), metadata=kind)])
    pq.write_table(pa.table({"text": [python]}, schema), inputs / "g.parquet")
    pickle.loads(pickled.replace(b"unpickled", b"works"))
    run(id_field="id")
    assert documents(tmp_path / "out") == [pickled, python.encode(), b"$(touch ran)", python.encode(), python.encode()]
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
    (work / "linked" / "b.jsonl").write_bytes(texts("b"))
    (inputs / "c.jsonl").symlink_to(work / "linked" / "b.jsonl")
    (inputs / "d").symlink_to(work / "linked")
    mishaps.in_new_processes(monkeypatch, tmp_path, f"mishaps.note_writes({str(log)!r})")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    before = files_of(tmp_path)
    command = [sys.executable, "-m", "tokenmill", "run", "in/../in/sub/..", "in/*/../*.jsonl", "../work/out"]
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


def test_descriptors_are_given_back(inputs: Path, tmp_path: Path, run: Run) -> None:
    for n in range(30):
        (inputs / f"{n}.jsonl").write_bytes(texts("a"))
    (inputs / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    run(output=tmp_path / "warm")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 25, limits[1]))
    try:
        for engine in ENGINES:
            run(output=tmp_path / engine, engine=engine, num_workers=2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= used


# a disk that is full

PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many pages, or gives the one that was made as many."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root only; test_interruption.py has the disk full without")

    def resize(pages: int) -> Path:
        subprocess.run(["mount", "-o", f"remount,size={pages * PAGE}", str(path)], check=True)
        return path / "out"

    yield resize
    gc.collect()  # the plan's file is closed with the plan
    subprocess.run(["umount", "--lazy", str(path)], check=True)  # a failed test may still hold a file


@pytest.mark.parametrize("engine", ENGINES)
def test_a_disk_that_fills_up_anywhere_is_a_clear_error_and_with_room_the_job_goes_on(
    inputs: Path, tmp_path: Path, run: Run, small_disk: Callable[[int], Path], engine: str
) -> None:
    """From a disk on which nothing fits to one on which all does: so it fills up in every file there is."""
    (inputs / "a.jsonl").write_bytes(LINES[:60_000] + b"no JSON\n")
    (inputs / "b.jsonl").write_bytes(LINES[:20_000])
    options = {"engine": engine, "num_workers": 2, "seq_len": 64, "sequences_per_chunk": 64, "max_rejects": "100%"}
    run(output=tmp_path / "fresh", **options)
    said = set()
    for pages in range(2, 200, 3 if engine == "streaming" else 23):
        output = small_disk(pages)
        try:
            run(output=output, **options)
            break
        except tokenmill.OutputError as error:
            said.add(str(error).split(":")[0])
            assert os.strerror(errno.ENOSPC) in str(error)
        assert not (output / "manifest.json").exists()
        small_disk(1000)
        assert run(output=output, **options | {"engine": "streaming"}).complete
        assert tree(output) == tree(tmp_path / "fresh")
        assert verify(output).good
        shutil.rmtree(output)
    assert tree(output) == tree(tmp_path / "fresh")
    assert said == {f"cannot write unit 00000 to {output}", f"cannot write to {output}"}
