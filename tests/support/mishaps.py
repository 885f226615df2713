"""What goes wrong inside a process, in this one or in processes that it starts, and whether the counts agree after it.

A worker of ultra is a program of its own: no test can patch it. But Python imports `sitecustomize` before anything
else, so `in_new_processes` puts one on the path, which does there what `monkeypatch` does here.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from tests.support.processes import PROJECT

if TYPE_CHECKING:  # every worker imports this, and needs none of it
    import pytest

    from tokenmill.job.execute import RunResult
    from tokenmill.records import Ledger, TokenBatch

PATIENCE_SECONDS = 30.0
"""How long to wait for what should happen at once: only a test that fails takes it."""

Patch = Callable[[Any, str, Any], None]


def in_new_processes(monkeypatch: pytest.MonkeyPatch, folder: Path, *statements: str) -> None:
    """Have every Python process that is started from here on begin with these statements."""
    site = folder / "site"
    site.mkdir()
    program = ["import sys", f"sys.path.insert(0, {str(PROJECT)!r})", "from tests.support import mishaps", *statements]
    (site / "sitecustomize.py").write_text("\n".join(program))
    path = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def set_to(name: str, value: Any) -> None:
    """set_to("tokenmill.read.lines.BLOCK_BYTES", 512)"""
    module, _, attribute = name.rpartition(".")
    setattr(import_module(module), attribute, value)


# a disk that goes bad while Arrow reads from it; for everybody else see tests/support/failing_inputs.py


def break_parquet(name: str, from_group: int, patch: Patch = setattr) -> None:
    """Let Arrow itself get EIO for every read of a Parquet file from a row group on.

    Arrow has a descriptor of its own, so that is made one that the kernel cannot read from at such positions: the
    memory of this process, of which the first page is never there.
    """
    import pyarrow.parquet as pq

    original = pq.ParquetFile.iter_batches

    def iter_batches(self: Any, size: int, groups: list[int], *arguments: Any, **options: Any) -> Any:
        if groups[0] >= from_group:
            for number in os.listdir("/proc/self/fd"):
                if _target(number).endswith(f"/{name}"):
                    memory = os.open("/proc/self/mem", os.O_RDONLY)
                    os.dup2(memory, int(number))
                    os.close(memory)
        return original(self, size, groups, *arguments, **options)

    patch(pq.ParquetFile, "iter_batches", iter_batches)


def _target(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""  # of the listing itself, which is closed


# clocks, and files that are written


def let_clocks_jump(patch: Patch = setattr) -> Counter[str]:
    """Have every clock that tokenmill reads go to and fro by decades; how often each was read, as it happens."""
    for name in ("job.execute", "engines.extreme", "engines.ultra", "engines.worker"):  # and all that these import
        import_module(f"tokenmill.{name}")
    read: Counter[str] = Counter()
    jumps = itertools.cycle((1e9, 0.0, 4e9, 1.0))

    def jumping(name: str) -> Callable[[], float]:
        def clock() -> float:
            read[name] += 1
            return next(jumps)

        return clock

    clocks = {name: jumping(name) for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")}
    whole = SimpleNamespace(**vars(time) | clocks)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tokenmill":
            for attribute, value in list(vars(module).items()):
                if value is time:
                    patch(module, attribute, whole)
                elif getattr(value, "__module__", "") == "time" and getattr(value, "__name__", "") in clocks:
                    patch(module, attribute, clocks[value.__name__])
    return read


def note_writes(log: str) -> None:
    """Add to the log whatever path this process opens to write, makes, moves, cuts off or removes."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    one_path, two_paths = ("os.mkdir", "os.remove", "os.rmdir"), ("os.rename", "os.link", "os.symlink")

    def note(path: object, folder: object = -1) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            base = f"/proc/self/fd/{folder}" if isinstance(folder, int) and folder >= 0 else "."
            parent, name = os.path.split(os.path.join(os.path.realpath(base), os.fsdecode(path)))
            os.write(descriptor, os.fsencode(os.path.join(os.path.realpath(parent), name)) + b"\0")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.truncate" or (event == "open" and isinstance(arguments[2], int) and arguments[2] & writing):
            note(arguments[0])
        elif event in one_path:
            note(arguments[0], arguments[-1])
        elif event in two_paths:
            note(arguments[0], arguments[-2])
            note(arguments[1], arguments[-1])

    sys.addaudithook(hook)


# processes that wait, or die, at a certain document


class Gate:
    """Asked by processes before they encode a batch; they go on when `answer` returns.

    `answer` is given the process and the first document of its batch, on a thread of its own for each who asks.
    """

    def __init__(self, answer: Callable[[int, str], object] = lambda _process, _document: None) -> None:
        self.asked: list[str] = []
        """The first document of every batch, in the order of asking."""
        self._folder = tempfile.TemporaryDirectory()  # not tmp_path, whose name may be too long for a socket
        self.address = f"{self._folder.name}/gate"
        asked = self.asked

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                process, _, document = self.rfile.readline().decode().rstrip("\n").partition(" ")
                asked.append(document)
                answer(int(process), document)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self._server = Server(self.address, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._folder.cleanup()


class Hold:
    """An answer that holds whoever comes with a certain document, until it is opened."""

    def __init__(self, document: str) -> None:
        self.count = 0
        self.gave_up = False
        """Whether somebody was let go because nobody opened: then what should have ended it did not."""
        self._document = document
        self._opened = threading.Event()
        self._held: Queue[int] = Queue()

    def __call__(self, process: int, document: str) -> None:
        if document == self._document:
            self.count += 1
            self._held.put(process)
            self.gave_up |= not self._opened.wait(PATIENCE_SECONDS)

    def wait(self) -> int:
        """Until the next one is held: which process."""
        return self._held.get(timeout=PATIENCE_SECONDS)

    def open(self) -> None:
        self._opened.set()


def ask(address: str, patch: Patch = setattr) -> None:
    """Have this process ask a gate before every batch that it encodes."""
    from tokenmill.encode.encoder import FastokensEncoder

    right = FastokensEncoder.encode

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        with socket.socket(socket.AF_UNIX) as gate:
            gate.connect(address)
            gate.sendall(f"{os.getpid()} {ascii(texts[0][:100])[1:-1]}\n".encode())
            gate.recv(1)  # nothing comes: the gate hangs up when this process may go on
        return right(self, texts)

    patch(FastokensEncoder, "encode", encode)


def die_after_commit() -> None:
    """Kill this process as soon as the receipt of a unit is in place, before anybody is told."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        name = os.fspath(arguments[0]) if event == "os.remove" else ""
        if name.endswith(".checkpoint.json") and os.path.exists(name.replace(".checkpoint", "")):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


# the counts


def by_block(ledger: Ledger) -> dict[str, Any]:
    """What is counted block by block: rows, padding and what is dropped are known at the end of a unit only."""
    names = ("records", "documents", "empty", "rejected", "special_tokens_in_text", "text_bytes", "tokens")
    counts = {name: getattr(ledger, name) for name in (*names, "separators")}
    return counts | {reason: count for reason, count in ledger.rejects_by_reason.items() if count}


def assert_reports_agree(result: RunResult) -> None:
    """What a run said of itself while it ran adds up to what the receipts say."""
    assert by_block(result.meter.ledger) == by_block(result.ledger)
    assert result.meter.done_bytes == result.meter.total_bytes
    assert result.meter.done_files == result.meter.total_files == result.files
