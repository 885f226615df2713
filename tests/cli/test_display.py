"""What a run shows: a live display on a terminal, and a table at the end."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import python
from tokenmill.cli import main


def test_the_end_of_a_run_is_a_table(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "complete"
    table = {row[:24].rstrip(): row[24:] for row in rows}
    # "text 0" to "text 49" are 10 x 6 + 40 x 7 bytes, and with 50 times EOS fill 24 rows of 16 and the 25th up to 6.
    assert list(table.items())[:8] == [
        ("files", "1"),
        ("documents", "50"),
        ("empty", "0"),
        ("rejected", "0"),
        ("tokens", "340 (+ 50 separators)"),
        ("rows", "25"),
        ("padding", "10 (2.500 %)"),
        ("bytes per token", "1.00"),
    ]
    assert list(table)[8:] == ["output", "time", "rate", "peak memory"]
    assert table["output"].endswith(f" kB in {job[2]}")


def on_a_terminal(arguments: list[str]) -> tuple[int, bytes]:
    """The exit code, and what a pseudo terminal was sent."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        python("-m", "tokenmill", *arguments),
        stdin=child,
        stdout=child,
        stderr=child,
        env=os.environ | {"COLUMNS": "120"},
    )
    os.close(child)
    shown = b""
    try:
        while block := os.read(parent, 65536):
            shown += block
    except OSError:
        pass  # how Linux says that the other side is closed
    os.close(parent)
    return process.wait(), shown


def test_a_terminal_gets_a_live_display_and_an_error_after_it_is_still_readable(job: list[str], inputs: Path) -> None:
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    code, shown = on_a_terminal(job)
    assert code == 3
    assert b"50 documents" in shown
    assert b"time left" in shown
    assert b"tokens/s" in shown
    before, error, _ = shown.partition(
        b"tokenmill: error: missing: gone.jsonl (gone.jsonl cannot be read: No such file"
    )
    assert error
    assert before.endswith(b"\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2K")  # the cursor is back, both lines are cleared


def test_quiet_is_quiet_on_a_terminal_too(job: list[str]) -> None:
    assert on_a_terminal([*job, "--quiet"]) == (0, b"")
