"""The command line: one module per command; this one puts them together.

What a command needs is imported when it runs: `tokenmill --help` must not load numpy.
"""

from __future__ import annotations

import argparse
import errno
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import tokenmill
from tokenmill.cli import benchmark, run, show, stats, verify
from tokenmill.cli.streams import result_on_stdout
from tokenmill.cli.terminal import EXIT_CODES, HelpFormatter, fitted, log_to_stderr
from tokenmill.errors import Interrupted, OutputError, TokenmillError
from tokenmill.messages import near, nearest, printable

log = logging.getLogger("tokenmill")

COMMANDS = (run, verify, show, stats, benchmark)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in a line or two, with what was probably meant.

    Takes no abbreviation, so that --over is not --overwrite.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Here and not in `parse_args`, which argparse calls for the whole program only, not for a command."""
        found, unknown = super().parse_known_args(args, namespace)
        paths = getattr(found, "paths", None)
        if paths and not any(argument.startswith("-") for argument in unknown):
            paths += unknown  # argparse takes only those before the first option
        elif unknown:
            self.error(self._describe_unknown(unknown))
        return found, []

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found = super().parse_args(args, namespace)
        if found.command is None:  # after all that is there was looked at: it may be wrong
            self.print_help(sys.stderr)
            self.exit(2)
        return found

    def _describe_unknown(self, unknown: Sequence[str]) -> str:
        options = [argument.split("=")[0] for argument in unknown if argument.startswith("-")]
        if not options:
            return f"{unknown[0]!r} is one argument too many"
        name, own = options[0], list(option_names(self))
        if meant := near(name, own):
            return f"there is no option {printable(name)}; did you mean {meant}?"
        if any(name in option_names(command) for command in commands_of(self).values()):
            return f"{printable(name)} must come after the command"
        return f"there is no option {printable(name)}; `{self.prog} --help` lists them"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        option = "/".join(action.option_strings)
        what = f"{option}: there is no choice" if option else "there is no command"
        raise argparse.ArgumentError(None, f"{what} {value!r}{nearest(value, action.choices)}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help, version and usage. Unlike argparse's own, it says so if they cannot be written."""
        with result_on_stdout():
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, fitted(f"tokenmill: error: {message.removeprefix('argument ')}", sys.stderr) + "\n")


def option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a command, or of the program itself."""
    for action in parser._actions:
        yield from (o for o in action.option_strings if o.startswith("--"))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of the program, by name."""
    found = (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(next(found, {}))


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="tokenmill",
        usage="%(prog)s {run,verify,show,stats,benchmark} ...",
        formatter_class=HelpFormatter,
        description="Turn text corpora into packed token sequences: fast, resumable, every document accounted for.",
        epilog="example:\n  tokenmill run corpus/ tokenized/\n\n" + EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"tokenmill {tokenmill.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="tokenmill")
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
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                return _report_defect(args, error)
            from tokenmill.storage.local import open_files_error

            log.error("%s", open_files_error())
            return TokenmillError.exit_code
        except MemoryError:
            if args.debug:
                traceback.print_exc()
            log.error("there is not enough memory: give it more, or end other programs, and run the command again")
            return TokenmillError.exit_code
        except KeyboardInterrupt:
            log.error("interrupted")
            return Interrupted.exit_code
        except Exception as error:
            return _report_defect(args, error)


def _report_defect(args: argparse.Namespace, error: Exception) -> int:
    if args.debug:
        traceback.print_exc()
    log.error("%s: %s. This is a defect: please report it with the output of --debug", type(error).__name__, error)
    return 1
