"""Whole runs, each in a process of its own: wall time with start-up, and the memory of the whole process tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.errors import BenchmarkError

SAMPLE_SECONDS = 0.4
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of a command."""

    seconds: float
    peak_memory: int
    output: str


@dataclass(slots=True, kw_only=True)
class Contender:
    """Something that was measured, as often as was asked for, and what it did."""

    name: str
    workers: int
    seconds: list[float]
    peak_memory: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    cpu_seconds: dict[str, float] | None = None
    agrees: str = ""
    problem: str = ""

    @property
    def best(self) -> float:
        return min(self.seconds)


def measure(
    command: Sequence[str], log: Path, environment: dict[str, str] | None = None, accepted: Sequence[int] = (0,)
) -> Measured:
    """Run a command to its end. Its standard output is given, its messages are added to the log."""
    start = time.perf_counter()
    peak = 0
    with log.open("ab") as messages, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=messages, env=os.environ | (environment or {}))
        try:
            due = 0.0
            while process.poll() is None:
                if time.perf_counter() >= due:  # it takes milliseconds of a core: not too often
                    peak = max(peak, tree_memory(process.pid))
                    due = time.perf_counter() + SAMPLE_SECONDS
                time.sleep(POLL_SECONDS)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.perf_counter() - start
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    if process.returncode not in accepted:
        raise BenchmarkError(f"{' '.join(command[:4])} … ended with exit code {process.returncode}: {_last_lines(log)}")
    return Measured(seconds=seconds, peak_memory=peak, output=said)


def _last_lines(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return " / ".join(lines[-3:]) or "it said nothing"


def tree_memory(root: int) -> int:
    """Bytes of a process and of all below it, what they share counted once; 0 where the system does not tell."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            total += _proportional(Path(f"/proc/{pid}/smaps_rollup").read_text())
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return total


def _proportional(rollup: str) -> int:
    line = next((line for line in rollup.splitlines() if line.startswith("Pss:")), "Pss: 0 kB")
    return int(line.split()[1]) * 1024


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def run_engine(contender: Contender, options: dict[str, Any], output: Path, log: Path) -> None:
    """One `tokenmill run`, added to what is known of this engine."""
    command = python("-m", "tokenmill", "run", *options["inputs"], str(output), "--overwrite", "--log-format", "json")
    command += ["--engine", contender.name, "--num-workers", str(contender.workers), "--max-rejects", "100%"]
    command += ["--tokenizer", options["tokenizer"], "--text-field", options["text_field"]]
    size = log.stat().st_size if log.exists() else 0
    # 3: complete except for unreadable files, which does not affect speed.
    found = measure(command, log, {"FASTOKENS_BPE_THREADS": "1"}, accepted=(0, 3))
    with log.open("rb") as file:
        file.seek(size)
        events = (json.loads(line) for line in file if line.startswith(b"{"))
        result = next(e for e in events if e["event"] == "result")
    if not contender.seconds or found.seconds < contender.best:
        contender.cpu_seconds = result["cpu_seconds"]
    contender.seconds.append(found.seconds)
    contender.peak_memory = max(contender.peak_memory, found.peak_memory)
    for name in ("documents", "tokens", "text_bytes"):
        setattr(contender, name, result[name])
