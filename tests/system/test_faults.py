"""Reading that fails, clocks that jump, locks that are left, machines that change, disks that are full."""

from __future__ import annotations

import errno
import gc
import gzip
import io
import os
import random
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from tests.conftest import MakeConfig, Run, SmallUnits, documents, texts, tree
from tests.support import mishaps
from tests.support.failing_inputs import BadStretch, CutOff, FailingInputs
from tests.support.jobs import prepare
from tests.support.mishaps import assert_reports_agree
from tests.support.sources import arrow_bytes
from tests.support.stops import stop_at_checkpoint
from tokenmill.check.verify import verify
from tokenmill.config import ENGINES
from tokenmill.errors import Interrupted
from tokenmill.storage.local import LocalSource, LocalStorage

LINES = texts(*(f"line {n} " + "x" * 200 for n in range(2000)))
NOISE = random.Random(1).randbytes(160_000).hex()
BITS = [NOISE[i : i + 2000] for i in range(0, len(NOISE), 2000)]
BATCHES = [{"text": BITS[i : i + 10]} for i in range(0, len(BITS), 10)]


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"text": bit} for bit in BITS]), file, row_group_size=len(BITS) // 4)
    return file.getvalue()


@dataclass(frozen=True)
class Kind:
    """A file that is read for a while and then not any more."""

    content: Callable[[], bytes]
    bad: BadStretch | None
    """What of it cannot be read; None: all that Arrow reads by itself, see mishaps.break_parquet."""

    @property
    def error(self) -> int:
        return errno.EIO if self.bad is None else self.bad.error


START, END = 80_000, 81_000  # far from both ends, which are looked at first
KINDS = {
    "b.jsonl": Kind(lambda: texts(*BITS), BadStretch(0, 1)),
    "c.jsonl": Kind(lambda: texts(*BITS), BadStretch(START, END)),
    "d.jsonl": Kind(lambda: texts(*BITS), BadStretch(START, END, errno.ESTALE)),
    "e.jsonl.gz": Kind(lambda: gzip.compress(texts(*BITS)), BadStretch(START, END)),
    "f.txt": Kind(lambda: "".join(BITS).encode(), BadStretch(START, END)),
    "g.txt.gz": Kind(lambda: gzip.compress("".join(BITS).encode()), BadStretch(START, END, errno.EACCES)),
    "h.parquet": Kind(parquet, None),
    "i.parquet": Kind(parquet, BadStretch(START, END)),
    "j.arrow": Kind(lambda: arrow_bytes(BATCHES, "file"), BadStretch(START, END)),
    "k.arrow": Kind(lambda: arrow_bytes(BATCHES, "stream"), BadStretch(START, END)),
}
SMALL = {
    "tokenmill.read.lines.BLOCK_BYTES": 4096,  # so that blocks, rows and chunks were made of what came before
    "tokenmill.read.decompress.INPUT_BYTES": 2048,
    "tokenmill.read.decompress.OUTPUT_BYTES": 1024,
}


def break_and_restore(
    names: list[str], engine: str, tmp_path: Path, config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a job of which these files go bad while they are read, then run it again when they can be read."""
    inputs = tmp_path / "in"
    for name, data in {"a.jsonl": texts("before"), "z.jsonl": texts("after")}.items():
        (inputs / name).write_bytes(data)
    for name in names:
        (inputs / name).write_bytes(KINDS[name].content())
    job = prepare(config(seq_len=64, sequences_per_chunk=500, num_workers=2, engine="streaming"))
    job.run(output=tmp_path / "fresh")
    failing = FailingInputs(inputs, mishaps={n: bad for n in names if (bad := KINDS[n].bad) is not None})
    with monkeypatch.context() as broken:
        for name, value in SMALL.items():
            broken.setattr(name, value)
        for name in {"h.parquet"} & {*names}:
            mishaps.break_parquet(name, 1, broken.setattr)
        small = (f"mishaps.set_to({name!r}, {value})" for name, value in SMALL.items())
        mishaps.in_new_processes(broken, tmp_path, *small, "mishaps.break_parquet('h.parquet', 1)")
        result = job.run(inputs=failing, engine=engine)
    assert result.missing.keys() == set(names)
    for name in names:
        assert result.missing[name].startswith(f"{name} cannot be read: ")
        assert os.strerror(KINDS[name].error) in result.missing[name]
    assert documents(tmp_path / "out") == [b"before", b"after"]
    assert result.ledger.rejected == 0
    assert_reports_agree(result)
    left = {fault.what.partition(" is missing from the output")[0] for fault in verify(tmp_path / "out").faults}
    assert left == {f"the input {name}" for name in names}, "or there is something of them left"
    assert job.run().complete
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


IN_PROCESS = [name for name in ENGINES if name != "ultra"]


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("engine", IN_PROCESS)
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_cannot_be_read_to_its_end_leaves_nothing_behind_and_is_read_later(
    tmp_path: Path, config: MakeConfig, monkeypatch: pytest.MonkeyPatch, engine: str, name: str
) -> None:
    break_and_restore([name], engine, tmp_path, config, monkeypatch)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit_bytes", [16 << 20, 600_000], ids=["one unit", "a unit each"])
def test_files_that_fail_at_the_same_time_are_all_named_and_nothing_of_them_is_left(
    tmp_path: Path,
    config: MakeConfig,
    small_units: SmallUnits,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    unit_bytes: int,
) -> None:
    """In worker processes too."""
    small_units(unit_bytes)
    break_and_restore(list(KINDS), engine, tmp_path, config, monkeypatch)


@pytest.mark.parametrize("engine", IN_PROCESS)
@pytest.mark.parametrize("name", ["b.jsonl", "b.txt"])
def test_a_file_that_is_cut_off_while_it_is_read_is_named_and_nothing_of_it_is_mixed_in(
    inputs: Path, tmp_path: Path, config: MakeConfig, engine: str, name: str
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("before"))
    (inputs / name).write_bytes(LINES * 5)
    failing = FailingInputs(inputs, mishaps={name: CutOff(1 << 20, 2 << 20)})
    result = prepare(config(engine=engine)).run(inputs=failing)
    assert (inputs / name).stat().st_size == 1 << 20
    assert "changed while it was read" in result.missing[name]
    assert documents(tmp_path / "out") == [b"before"]
    assert_reports_agree(result)


@pytest.mark.parametrize("is_put_back", [True, False])
def test_a_parquet_file_that_is_replaced_after_it_was_opened_is_read_as_it_was(
    inputs: Path, tmp_path: Path, config: MakeConfig, is_put_back: bool
) -> None:
    """Arrow is given the opened file, not its name, which is that of a socket meanwhile.

    What was read counts if the file is back before anybody looks again; otherwise it has changed.
    """
    path, away = inputs / "a.parquet", tmp_path / "away"
    path.write_bytes(parquet())

    class Replacing(LocalStorage):
        def open(self, name: str) -> LocalSource:
            source = super().open(name)
            path.rename(away)
            os.mknod(path, stat.S_IFSOCK | 0o600)
            return source

        def stat(self, name: str) -> Any:
            if is_put_back:
                away.replace(path)
            return super().stat(name)

    result = prepare(config(engine="streaming")).run(inputs=Replacing(inputs))
    if is_put_back:
        assert result.complete
        assert documents(tmp_path / "out") == [bit.encode() for bit in BITS]
    else:
        assert result.missing == {"a.parquet": "a.parquet changed while it was read: restore it, or use --overwrite"}
        assert documents(tmp_path / "out") == []


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


def test_a_restart_on_another_machine_goes_on_where_the_first_stopped(
    inputs: Path, tmp_path: Path, run: Run, small_blocks: Callable[[int], None]
) -> None:
    """Other folders, a lock that nobody holds, logs of another host: none of it decides anything."""
    small_blocks(64 << 10)
    (inputs / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    options: dict[str, Any] = {"sequences_per_chunk": 500, "seq_len": 64}
    run(output=tmp_path / "fresh", engine="streaming", **options)
    here = tmp_path / "out"
    with pytest.raises(Interrupted):
        run(stop=stop_at_checkpoint(here), engine="streaming", **options)
    there = tmp_path / "another" / "machine"
    shutil.copytree(here, there / "tokens")
    shutil.copytree(inputs, there / "texts")
    (there / "tokens" / "logs" / "lock").write_text("host elsewhere, process 1")
    first = there / "tokens" / "chunks" / "00000-0000.npy"
    written = first.stat().st_mtime_ns
    result = run(inputs=(str(there / "texts"),), output=there / "tokens", engine="extreme", **options)
    assert first.stat().st_mtime_ns == written  # it went on, and did not start over
    assert_reports_agree(result)
    assert tree(there / "tokens") == tree(tmp_path / "fresh")


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
