"""The command line: one module per command; this one puts them together.

What a command needs is imported when it runs: `tokenmill --help` must not load numpy.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import tokenmill
from tokenmill.cli import benchmark, run, show, stats, verify
from tokenmill.cli.streams import result_on_stdout
from tokenmill.cli.terminal import EXIT_CODES, log_to_stderr
from tokenmill.errors import Interrupted, OutputError, TokenmillError
from tokenmill.messages import nearest

log = logging.getLogger("tokenmill")

COMMANDS = (run, verify, show, stats, benchmark)


class _Parser(argparse.ArgumentParser):
    """Names the nearest option when one is misspelt; takes no abbreviation, so that --over is not --overwrite."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help, version and usage. Unlike argparse's own, it says so if they cannot be written."""
        with result_on_stdout():
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            message += nearest(message.split()[2].split("=")[0], option_names(self))
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n")


def option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (o for o in action.option_strings if o.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from option_names(command)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="tokenmill",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Turn text corpora into packed token sequences: fast, resumable, every document accounted for.",
        epilog="example:\n  tokenmill run FinPile/0fp-100dolma tokenized/\n\n" + EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"tokenmill {tokenmill.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    try:
        args = build_parser().parse_args(arguments)
    except OutputError as error:
        sys.stderr.write(f"tokenmill: error: {error}\n")
        return error.exit_code
    with log_to_stderr(args):
        try:
            code: int = args.execute(args)
            return code
        except TokenmillError as error:
            if args.debug:
                traceback.print_exc()
            log.error("%s", error)
            return error.exit_code
        except KeyboardInterrupt:
            log.error("interrupted")
            return Interrupted.exit_code
        except Exception as error:
            if args.debug:
                traceback.print_exc()
            log.error(
                "%s: %s. This is a defect: please report it with the output of --debug", type(error).__name__, error
            )
            return 1
