"""What every command has in common: its options, bars, and where its messages go."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenmill.config import Use, local_path
from tokenmill.errors import ConfigError

log = logging.getLogger("tokenmill")

EXIT_CODES = """\
exit codes:
  0    complete
  1    failed: the message says what, where and what to do
  2    wrong usage: options, inputs or tokenizer that cannot be used
  3    complete, but with files missing, damaged, or skipped that look like data;
       or stopped, with more rejects than --max-rejects
  130  interrupted; the same command continues
"""


def whole_number(text: str) -> int:
    """The type of an option, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def add_message_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, debug: str = "show the traceback of an error"
) -> None:
    add = parser.add_argument
    add("--quiet", action="store_true", help="print errors only")
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
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    share = TaskProgressColumn("{task.percentage:.0f} %")
    bar = BarColumn(bar_width=max(8, min(40, console.width - 42)))  # the other columns take up to 42
    columns = (TextColumn(what), bar, share, DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as shown:
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
        return f"{stamp}tokenmill: {prefix}{record.getMessage()}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
        }
        return json.dumps(entry | getattr(record, "fields", {}))
