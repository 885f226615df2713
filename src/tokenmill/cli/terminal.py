"""What every command has in common: its options, bars, and where its messages go."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tokenmill.config import Use, local_path
from tokenmill.errors import ConfigError
from tokenmill.messages import duration, wrapped

log = logging.getLogger("tokenmill")

EXIT_CODES = """\
exit codes:
  0    complete
  1    failed: the message says what happened, where, and what to do. Also if \
the output is a file, holds other files, or holds a different job
  2    wrong usage: options, inputs or tokenizer that cannot be used
  3    complete, but with files missing, damaged, or skipped that look like \
data; or stopped, with more rejects than --max-rejects
  130  interrupted; the same command continues
"""
EXIT_CODES_OF_LOOKING = """\
exit codes:
  0    shown
  1    the output is damaged or not complete, or the result cannot be written
  2    wrong usage, or not a tokenmill output directory
  130  interrupted
"""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Descriptions and examples as they are written, but no wider than the terminal. No option is broken in two."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002 - argparse calls it so
        return "\n".join(_within(line, width) for line in text.splitlines())

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def columns(stream: TextIO) -> int | None:
    """How wide the terminal is that a stream goes to; None if it goes elsewhere, where nothing is wrapped."""
    if not stream.isatty():
        return None
    try:
        wide = int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        wide = 0
    return wide if wide > 0 else 80


def fitted(text: str, stream: TextIO, indent: int = 4) -> str:
    """A message or a line of a summary, wrapped between words if it goes to a terminal."""
    wide = columns(stream)
    return text if wide is None else "\n".join(wrapped(line, wide, indent) for line in text.splitlines())


def _within(line: str, width: int) -> str:
    """A line of text, wrapped below its first word if it is in a list. A command is never wrapped."""
    if len(line) <= width or line.lstrip().startswith(("tokenmill ", "--")):
        return line
    hang = re.match(r" *(\d+ +|# )?", line)
    following = "" if hang is None else re.sub(r"\d", " ", hang[0])
    return textwrap.fill(line, width, subsequent_indent=following, break_on_hyphens=False)


def whole_number(text: str) -> int:
    """The type of an option, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def add_message_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    quiet: str = "no messages but errors; the result is still printed",
    debug: str = "show the traceback of an error",
) -> None:
    add = parser.add_argument
    add("--quiet", action="store_true", help=quiet)
    add("--log-format", choices=["text", "json"], default="text", help="how messages are written (default: text)")
    add("--debug", action="store_true", help=debug)


def path_argument(text: str) -> Path:
    """A file or folder that an option names, for argparse."""
    try:
        return Path(local_path(text, Use.FILE))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


@contextmanager
def byte_progress(args: argparse.Namespace, what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for long reading, on a terminal: it is told how much is done, and of how much."""
    if args.quiet or args.log_format == "json" or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn
    from rich.text import Text

    class Left(ProgressColumn):
        """As the display of a run tells it."""

        def render(self, task: Any) -> Text:
            return Text(f"{'?' if task.time_remaining is None else duration(task.time_remaining)} left")

    console = Console(stderr=True)
    share = TaskProgressColumn("{task.percentage:.0f} %")
    bar = BarColumn(bar_width=max(8, min(40, console.width - 46)))  # the other columns take up to 46
    cells = (TextColumn(what), bar, share, DownloadColumn(), Left())
    with Progress(*cells, console=console, transient=True) as shown:
        task = shown.add_task(what)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def log_to_stderr(args: argparse.Namespace) -> Iterator[None]:
    """Log to stderr for as long as the command runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if args.log_format == "json" else _TextFormatter())
    log.addHandler(handler)
    before, log.propagate = (log.level, log.propagate), False
    log.setLevel(logging.ERROR if args.quiet else logging.DEBUG if args.debug else logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        level, log.propagate = before
        log.setLevel(level)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        stamp = time.strftime("%H:%M:%S ") if getattr(record, "event", "") == "progress" else ""
        return fitted(f"{stamp}tokenmill: {prefix}{record.getMessage()}", sys.stderr)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
        }
        return json.dumps(entry | getattr(record, "fields", {}))
