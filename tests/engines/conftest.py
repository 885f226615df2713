"""What the tests of engines share: small units and blocks, processes that ask before each block, runs that are stopped.

Constants of the program are set here, and in the processes that a test starts, which no monkeypatch reaches.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

import tokenmill
from tests.conftest import texts, tree
from tests.support import mishaps
from tests.support.jobs import prepare
from tests.support.mishaps import Gate
from tokenmill.config import ENGINES
from tokenmill.engines import worker
from tokenmill.errors import Interrupted
from tokenmill.job.execute import Display
from tokenmill.job.progress import Meter
from tokenmill.plan import cut
from tokenmill.read import lines
from tokenmill.storage.base import Reading

EVERY = pytest.mark.parametrize("engine", ENGINES)

Setting = tuple[ModuleType, str, float]
SMALL_UNITS: list[Setting] = [(cut, "MIN_UNIT_BYTES", 15_000), (cut, "FILE_COST_BYTES", 0)]
SMALL_BLOCKS: list[Setting] = [
    (cut, "MIN_UNIT_BYTES", 4000),  # a file is a unit
    (cut, "FILE_COST_BYTES", 0),
    (lines, "BLOCK_BYTES", 64),  # a line is a block
    (worker, "REPORT_SECONDS", 0.0),  # a worker reports every block, and checks that its parent is there
]
BLOCKS = 60
HOLD = "hold".ljust(64, ".")
BLOCK_OPTIONS: dict[str, Any] = {"seq_len": 8, "sequences_per_chunk": 100}


def apply(settings: Iterable[Setting], patch: pytest.MonkeyPatch) -> None:
    for module, name, value in settings:
        patch.setattr(module, name, value)


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    apply(SMALL_UNITS, monkeypatch)


@pytest.fixture
def job(tmp_path: Path, tiny_tokenizer: str) -> dict[str, Any]:
    """The options of a job over tmp_path/in into tmp_path/out, for a test that cannot use the fixture `run`."""
    inputs, output = (str(tmp_path / "in"),), tmp_path / "out"
    return {"inputs": inputs, "output": output, "tokenizer": tiny_tokenizer, "max_rejects": "100%"}


# units of many blocks


def write_blocks(inputs: Path, patch: pytest.MonkeyPatch) -> None:
    """Two units of many blocks, of a document each; after the first ones, and a checkpoint, comes the document HOLD."""
    apply(SMALL_BLOCKS, patch)
    for name in ("a", "b"):
        documents = [f"{name}{n}".ljust(64, ".") for n in range(BLOCKS)]
        (inputs / f"{name}.jsonl").write_bytes(texts(*documents[:20], HOLD, *documents[20:]))


@pytest.fixture
def blocks(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_blocks(inputs, monkeypatch)
    return inputs


@pytest.fixture(scope="session")
def blocks_expected(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: str) -> dict[str, bytes]:
    """What an undisturbed run makes of them."""
    folder = tmp_path_factory.mktemp("blocks")
    (folder / "in").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        write_blocks(folder / "in", patch)
        options = BLOCK_OPTIONS | {"inputs": (str(folder / "in"),), "tokenizer": tiny_tokenizer}
        tokenmill.run(tokenmill.Config(output=folder / "out", engine="enhanced", **options))
    return tree(folder / "out")


def ask_before_blocks(gate: Gate, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have every process that is started ask the gate before each block."""
    small = (f"mishaps.set_to('{module.__name__}.{name}', {value})" for module, name, value in SMALL_BLOCKS)
    mishaps.in_new_processes(monkeypatch, folder, *small, f"mishaps.ask({gate.address!r})")


def worker_processes() -> list[int]:
    """Worker processes of this process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
            command = (entry.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"tokenmill.engines.worker" in command:
            found.append(int(entry.parent.name))
    return found


# runs that are stopped, or watched


def run_until(stop: object, display: Display | None = None, **options: Any) -> None:
    """Run a job that is to be stopped."""
    with pytest.raises(Interrupted, match="run the same command again to continue"):
        tokenmill.run(tokenmill.Config(**options), stop=cast(threading.Event, stop), display=display)


class Watch:
    """Looks at the meter of a run after every report: a `stop` that never stops it, and a display."""

    def __init__(self, look: Callable[[Meter], object]) -> None:
        self._look = look
        self._meter = Meter(total_bytes=0)

    def is_set(self) -> bool:
        self._look(self._meter)
        return False

    def display(self, meter: Meter) -> AbstractContextManager[None]:
        self._meter = meter
        return nullcontext()

    def run(self, disk: Reading | None = None, **options: Any) -> tokenmill.RunResult:
        """Run a job, over inputs on this disk if they are not on an ordinary one."""
        job = prepare(tokenmill.Config(**options))
        return job.run(inputs=disk, stop=cast(threading.Event, self), display=self.display)
