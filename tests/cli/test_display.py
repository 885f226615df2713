"""What a run shows: a live display on a terminal, and a table at the end."""

from __future__ import annotations

import fcntl
import gzip
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import SmallUnits, texts
from tests.support.processes import python
from tokenmill.cli import main
from tokenmill.cli.display import Cell, fitting, live_table
from tokenmill.job.progress import Meter
from tokenmill.records import Ledger


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


def test_a_continuation_with_nothing_left_to_do_has_no_rate(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*job, "--quiet"]) == 0
    (tmp_path / "out" / "manifest.json").unlink()
    assert main(job) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "complete"
    assert [row[:24].rstrip() for row in rows][-3:] == ["output", "time", "peak memory"]


def test_what_is_wrong_with_files_stands_in_one_pair_of_parentheses(
    job: list[str], inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    (inputs / "cut.jsonl.gz").write_bytes(gzip.compress(texts("text"))[:-3])
    (inputs / "notes.md").write_text("# notes")
    assert main([*job, "--max-rejects", "50%"]) == 3
    first, files, *_ = capsys.readouterr().out.splitlines()
    assert first == "complete, except for 1 missing file and 1 damaged file"
    assert files[24:] == "3 (1 missing, 1 damaged, 1 skipped, named in manifest.json)"


def table_of(shown: str) -> dict[str, str]:
    return {row[:24].rstrip(): row[24:] for row in shown.splitlines()[1:]}


def test_numbers_agree_with_their_nouns(inputs: Path, job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "a.jsonl").write_bytes(texts("one"))
    assert main(job) == 0
    assert table_of(capsys.readouterr().out)["tokens"] == "3 (+ 1 separator)"
    assert main([*job, "--redo", "1"]) == 2
    assert "--redo: there is no unit 1: the job has unit 0 only\n" in capsys.readouterr().err


def test_what_was_dropped_is_told_with_its_share(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*job, "--tail", "drop"]) == 0
    dropped = table_of(capsys.readouterr().out)["dropped"]
    assert dropped == "6 tokens (1.54 %); 1 document is not, or not wholly, in the rows"


@pytest.mark.parametrize(
    ("text", "tail", "said"),
    [
        ("", "pad", "nothing was written: the inputs have no text"),
        ("short", "drop", "nothing was written: all tokens were dropped (--tail drop)"),
    ],
)
def test_an_output_without_rows_is_warned_of(
    text: str, tail: str, said: str, inputs: Path, job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "a.jsonl").write_bytes(texts(text))
    assert main([*job, "--tail", tail]) == 0
    out, err = capsys.readouterr()
    assert f"warning: {said}\n" in err
    assert ("bytes per token" in table_of(out)) == bool(text)


def test_a_continued_run_says_what_is_of_this_run_and_a_damaged_job_stays_that(
    inputs: Path, job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "b.jsonl.gz").write_bytes(gzip.compress(texts("cut"))[:-9])
    gone = inputs / "c.jsonl"
    gone.symlink_to(tmp_path / "later")
    assert main([*job, "--max-rejects", "50%"]) == 3
    assert "(this run)" not in capsys.readouterr().out
    (tmp_path / "later").write_bytes(texts("found"))
    assert main([*job, "--max-rejects", "50%"]) == 3
    assert main([*job, "--max-rejects", "50%"]) == 3
    assert "complete, except for 1 damaged file (nothing to do)\n" in capsys.readouterr().out


def test_the_time_of_a_continued_run_is_of_this_run(
    small_units: SmallUnits, inputs: Path, job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_units(1)
    (inputs / "b.jsonl").symlink_to(tmp_path / "later")
    assert main(job) == 3
    (tmp_path / "later").write_bytes(texts("found"))
    capsys.readouterr()
    assert main(job) == 0
    out, err = capsys.readouterr()
    assert table_of(out)["time"].endswith(" s (this run)")
    assert table_of(out)["rate"].endswith(" of text (this run)")
    assert " units (267 done before)\n" in err


def test_a_long_message_is_wrapped_between_words_on_a_terminal_only(job: list[str], tmp_path: Path) -> None:
    said = [*job, "--seq-len", "0"]
    assert on_a_terminal(said, 40)[1] == (
        b"tokenmill: error: --seq-len: must be a\r\n    whole number of at least 1, not 0\r\n"
    )
    done = subprocess.run(python("-m", "tokenmill", *said), capture_output=True, cwd=tmp_path)
    assert done.stderr == b"tokenmill: error: --seq-len: must be a whole number of at least 1, not 0\n"


def on_a_terminal(arguments: list[str], columns: int = 120) -> tuple[int, bytes]:
    """The exit code, and what a pseudo terminal was sent."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        python("-m", "tokenmill", *arguments), stdin=child, stdout=child, stderr=child, env=environment
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


def lines_on(shown: bytes) -> list[str]:
    """Every line that a terminal was sent, as wide as it was on it."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    return re.split(r"[\r\n]+", plain)


def test_a_terminal_gets_a_live_display_and_an_error_after_it_is_still_readable(job: list[str], inputs: Path) -> None:
    (inputs / "gone.jsonl").symlink_to(inputs / "nowhere")
    code, shown = on_a_terminal(job)
    assert code == 3
    for wanted in (b"100.0 %", b"2/2 files", b"50 documents", b"0:00 left", b"tokens/s", b"elapsed", b"memory"):
        assert wanted in shown
    before, error, _ = shown.partition(b"tokenmill: error: missing: gone.jsonl (it cannot be read: No such file")
    assert error
    assert before.endswith(b"\x1b[?25h\r" + 3 * b"\x1b[1A\x1b[2K")  # the cursor is back, the three lines are cleared


def test_quiet_is_quiet_on_a_terminal_too(job: list[str]) -> None:
    assert on_a_terminal([*job, "--quiet"]) == (0, b"")


def far_into_a_long_run() -> Meter:
    meter = Meter(total_bytes=39_000_000_000, total_files=123, done_files=99)
    meter.start()
    meter.add(
        Ledger(documents=12_345_678, tokens=39_012_345, text_bytes=17 * 10**9, rejected=99_999), consumed=17 * 10**9
    )
    meter.freeze()
    meter.seconds = 9 * 3600 + 59 * 60 + 59
    return meter


@pytest.mark.parametrize(
    ("columns", "hidden"),
    [
        (120, set()),
        (80, set()),
        (60, set()),
        (50, {"99/123 files", "memory"}),
        (40, {"99/123 files", "memory", "12.3M documents", "1,084 tokens/s", "━"}),
    ],
)
def test_the_live_display_fits_the_terminal_and_shows_what_matters_most(columns: int, hidden: set[str]) -> None:
    console = Console(width=columns, force_terminal=True, color_system=None)
    with console.capture() as shown:
        console.print(live_table(far_into_a_long_run(), console))
    lines = shown.get().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= columns
    wanted = {"━", "43.6 %", "17.0 / 39.0 GB", "12:56:27 left"}
    wanted |= {"99/123 files", "12.3M documents", "39.0M tokens", "100k rejected"}
    wanted |= {"0.5 MB/s", "1,084 tokens/s", "9:59:59 elapsed", "memory"}
    assert {text for text in wanted if text not in shown.get()} == hidden


def test_a_worker_has_one_line_however_narrow_the_terminal_is() -> None:
    meter = far_into_a_long_run()
    meter.workers[0] = ("00012", 512_300_000)
    for columns, line in ((60, "worker 0: unit 00012, 512.3 MB"), (20, "worker 0: unit 0001…")):
        console = Console(width=columns, force_terminal=True, color_system=None)
        with console.capture() as shown:
            console.print(live_table(meter, console))
        assert shown.get().splitlines()[3].rstrip() == line


def test_cells_are_dropped_for_what_they_may_grow_to_so_that_none_comes_and_goes() -> None:
    cells = [Cell("1 a", 10, 1), Cell("2 b", 10, 0)]
    assert fitting(cells, 22) == cells
    assert fitting(cells, 21) == cells[1:]
    assert fitting([Cell("longer than it was thought", 10, 0)], 20) == []


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_of_a_command_is_wrapped_by_the_terminal(job: list[str], columns: int) -> None:
    code, shown = on_a_terminal(job, columns)
    assert code == 0
    live = [line for line in lines_on(shown) if line.rstrip().endswith((" left", " rejected", " memory"))]
    assert len(live) >= 3
    assert max(map(len, live)) <= columns
    whole = [line for line in lines_on(shown) if " " in line.strip()]  # a path alone in its line is not broken
    assert max(len(line.rstrip()) for line in whole) <= columns


@pytest.mark.parametrize("columns", [60, 120])
@pytest.mark.parametrize("command", [["verify"], ["verify", "--against-source", "3"], ["stats"]], ids=" ".join)
def test_the_bars_of_verify_and_stats_end_at_100_percent(job: list[str], command: list[str], columns: int) -> None:
    assert main([*job, "--quiet"]) == 0
    code, shown = on_a_terminal([command[0], job[2], *command[1:]], columns)
    assert code == 0
    *_, last = (line for line in lines_on(shown) if "━" in line)
    assert " 100 % " in last
    assert len(last) <= columns
