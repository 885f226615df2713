"""Messages: as text, as JSON or not at all, a line every ten seconds, and readers that go away."""

from __future__ import annotations

import itertools
import json
import logging
import re
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.processes import python
from tokenmill.cli import main
from tokenmill.job import progress
from tokenmill.records import Ledger


def test_quiet_prints_errors_only(job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "NOTES.md").write_text("left out")
    assert main([*job, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*job[:-1], "32", "--quiet"]) == 1
    assert "different job" in capsys.readouterr().err


def test_messages_can_be_json(job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "NOTES.md").write_text("left out")
    assert main([*job, "--log-format", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    entries = [json.loads(line) for line in shown.err.splitlines()]
    assert [e["event"] for e in entries] == ["message"] * 4 + ["result"]
    assert "NOTES.md" in entries[0]["message"]
    assert entries[-1]["documents"] == 50


class Patience:
    """Takes the place of an event that is waited for: 30 seconds pass in no time, then it is set."""

    seconds = 0.0

    def wait(self, seconds: float) -> bool:
        if Patience.seconds >= 30:
            return True
        Patience.seconds += seconds
        return False

    def set(self) -> None:
        pass


def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Patience, "seconds", 0.0)
    monkeypatch.setattr(progress, "threading", SimpleNamespace(Event=Patience, Thread=threading.Thread))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: Patience.seconds))
    meter = progress.Meter(total_bytes=1000)
    meter.start()
    meter.add(Ledger(documents=3, tokens=600, text_bytes=60_000_000, rejected=2), 250)
    with caplog.at_level(logging.INFO, "tokenmill"), progress.log_lines(meter):
        pass
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4  # after 10, 20 and 30 seconds, and at the end
    assert lines[0].startswith("25.0 % of 1.0 kB, 3 documents, 600 tokens, 6.0 MB/s, 60 tokens/s, memory ")
    assert [line.split(", ")[-2:] for line in lines] == [
        ["2 rejected", f"{left} left"] for left in ("0:30", "1:00", "1:30", "1:30")
    ]


def test_the_line_tells_where_a_long_run_stands_and_a_short_or_quiet_one_has_none(
    job: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(job) == 0
    assert " % of " not in capsys.readouterr().err
    slow = SimpleNamespace(monotonic=itertools.count(0, 10).__next__, time=time.time)  # ten seconds at every look
    monkeypatch.setattr(progress, "time", slow)
    assert main([*job, "--overwrite"]) == 0
    *_, line = capsys.readouterr().err.splitlines()
    assert re.match(r"\d\d:\d\d:\d\d tokenmill: 100\.0 % of 990 B, 50 documents, 340 tokens, .* 0:00 left$", line)
    assert main([*job, "--overwrite", "--log-format", "json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(e["documents"], e["tokens"], e["input_bytes"]) for e in entries if e["event"] == "progress"] == [
        (50, 340, entries[-1]["input_bytes_total"])
    ]
    assert main([*job, "--overwrite", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_is_no_error(job: list[str]) -> None:
    command = subprocess.Popen(python("-m", "tokenmill", *job), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None
    command.stdout.close()
    assert command.stderr is not None
    assert b"defect" not in command.stderr.read()
    command.stderr.close()
    assert command.wait() == 0


def test_logs_keep_a_time_line(job: list[str], tmp_path: Path) -> None:
    main(job)
    lines = (tmp_path / "out" / "logs" / "timeline.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    assert first["documents"] == 0
    assert last["documents"] == 50
    assert last["input_bytes"] == last["input_bytes_total"]
    assert last["memory_bytes"] > 0


def test_logging_is_left_as_it_was(job: list[str]) -> None:
    logger = logging.getLogger("tokenmill")
    before = (logger.level, logger.propagate, list(logger.handlers))
    main(job)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
