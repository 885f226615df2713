"""Standard streams that are closed, full, or that nobody reads."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import tree
from tests.support.processes import python
from tokenmill.cli import main
from tokenmill.config import ENGINES

CLOSED = ["2>&-", ">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"]
FULL = [">/dev/full", "2>/dev/full", ">/dev/full 2>/dev/full"]
UNREAD = ["| true", "2>&1 | head -1", "| head -1"]


def ended(arguments: list[str], redirected: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command, redirected by a shell."""
    program = f'set -o pipefail; "$@" {redirected}'
    command = ["bash", "-c", program, "bash", *python("-m", "tokenmill", *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for word in ("Traceback", "defect", "ignored", "Error"):
        assert word not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def output(job: list[str]) -> str:
    assert main([*job, "--quiet"]) == 0
    return job[2]


@pytest.mark.parametrize("redirected", [*CLOSED, *FULL, *UNREAD])
def test_the_exit_code_of_verify_is_its_verdict_whatever_becomes_of_its_words(output: str, redirected: str) -> None:
    assert ended(["verify", output], redirected)[0] == 0


@pytest.mark.parametrize("redirected", [CLOSED[-1], FULL[-1]])
def test_a_wrong_usage_and_a_problem_keep_their_exit_codes(output: str, redirected: str) -> None:
    assert ended(["verify", "nowhere"], redirected)[0] == 2
    assert ended(["verify", output, "--bogus"], redirected)[0] == 2
    (Path(output) / "tokenizer.json").unlink()
    assert ended(["verify", output], redirected)[0] == 1


@pytest.mark.parametrize("redirected", ["2>&-", ">&-", "<&- >&- 2>&-", *FULL, "| true"])
@pytest.mark.parametrize("arguments", [["show", "OUT"], ["stats", "OUT", "--json"], ["--help"]], ids=" ".join)
def test_a_result_that_cannot_be_written_is_an_error_and_one_that_nobody_reads_is_none(
    output: str, arguments: list[str], redirected: str
) -> None:
    lost = ">&-" in redirected.replace("2>&-", "") or redirected.startswith(">/dev/full")
    code, _, said = ended([argument.replace("OUT", output) for argument in arguments], redirected)
    assert code == (1 if lost else 0)
    if lost and "2>" not in redirected:
        why = "Bad file descriptor" if "-" in redirected else "No space left on device"
        assert said == f"tokenmill: error: cannot write to standard output: {why}\n"


@pytest.mark.parametrize("redirected", [">&-", ">/dev/full"])
def test_verify_as_json_and_version_are_results_too(output: str, redirected: str) -> None:
    assert ended(["verify", output, "--json"], redirected)[0] == 1
    assert ended(["--version"], redirected)[0] == 1


@pytest.mark.parametrize("redirected", [CLOSED[-1], FULL[-1], UNREAD[1]])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_is_done_with_every_engine_and_no_file_of_it_takes_the_place_of_a_stream(
    job: list[str], output: str, tmp_path: Path, engine: str, redirected: str
) -> None:
    again = [*job[:2], str(tmp_path / "again"), *job[3:], "--engine", engine, "--num-workers", "2"]
    assert ended(again, redirected)[0] == 0
    assert tree(tmp_path / "again") == tree(Path(output))


def test_a_summary_that_cannot_be_written_is_a_warning(job: list[str]) -> None:
    code, _, said = ended(job, ">/dev/full")
    assert code == 0
    warning = "warning: cannot write to standard output: No space left on device. The exit code tells how"
    assert warning in said
    code, _, said = ended(job, ">&-")
    assert code == 0
    assert "warning" not in said


def test_text_that_the_encoding_of_stdout_lacks_is_escaped(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, shown, _ = ended(["stats", output], "")
    assert code == 0
    assert "\\u2588" in shown


def test_a_terminal_that_goes_away_does_not_stop_a_job(job: list[str], tmp_path: Path) -> None:
    parent, child = pty.openpty()
    command = python("-m", "tokenmill", *job)
    process = subprocess.Popen(
        command,
        stdin=child,
        stdout=child,
        stderr=child,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    os.close(child)
    assert os.read(parent, 10)
    os.close(parent)
    assert process.wait() == 0
    assert (tmp_path / "out" / "manifest.json").exists()
