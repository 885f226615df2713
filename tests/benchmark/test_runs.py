"""Commands, measured from outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tokenmill.benchmark.runs import measure, python, tree_memory
from tokenmill.errors import BenchmarkError


def test_memory_is_that_of_the_whole_process_tree() -> None:
    hold = "x = bytearray(60_000_000); x[::4096] = x[::4096]; print('held', flush=True); input()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with subprocess.Popen(python("-c", program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"held\n"  # by the child
        found = tree_memory(process.pid)
        process.stdin.write(b"\n")
    assert found > 65_000_000
    assert tree_memory(2**22) == 0  # no such process


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"exit code 3: .*no such luck"):
        measure(python("-c", "import sys; print('no such luck', file=sys.stderr); sys.exit(3)"), tmp_path / "log")
