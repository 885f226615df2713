"""`tokenmill run`: arguments become a Config, the Config goes into one library call, the outcome becomes text."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from tokenmill.cli.streams import summary_on_stdout
from tokenmill.cli.terminal import EXIT_CODES, HelpFormatter, add_message_options, fitted, path_argument, whole_number
from tokenmill.config import Config, Heading, Option, load_settings, options_of, resume_hint
from tokenmill.config.kinds import Choice, Flag, Kind, Paths, WholeNumber
from tokenmill.errors import ConfigError
from tokenmill.messages import printable

if TYPE_CHECKING:
    from tokenmill.job.execute import RunResult
    from tokenmill.job.progress import Meter

log = logging.getLogger("tokenmill")

_EXAMPLES = """\
examples:
  tokenmill run corpus/ tokenized/
  tokenmill run 'dolma/*.json.gz' tokenized/ \\
      --seq-len 4096 --tokenizer path/to/tokenizer.json
  tokenmill run --config job.toml --max-rejects 5%

The same command again continues an interrupted job.

"""
_NAMED = 20


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        usage="%(prog)s INPUT... OUTPUT [OPTION...]",
        help="tokenize and pack a corpus",
        formatter_class=HelpFormatter,
        description="Tokenize files, directories and globs of JSON Lines (plain, .gz, .zst, .bz2, .xz), Parquet, "
        "Arrow and text files into rows of token ids.",
        epilog=_EXAMPLES + EXIT_CODES,
    )
    add_options(parser)
    parser.set_defaults(execute=execute)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Every option that the configuration declares, under its heading, and those of the command line alone."""
    parser.add_argument("paths", nargs="*", metavar="INPUT... OUTPUT", help="what to read and, last, where to write")
    groups = {heading: parser.add_argument_group(str(heading)) for heading in Heading}
    for option in options_of(Config):
        groups[option.heading].add_argument(option.flag, dest=option.name, help=_help(option), **_argument(option.kind))
    groups[Heading.PLACES].add_argument(
        "--config", type=path_argument, metavar="FILE", help="a TOML file of options; the command line wins"
    )
    add_message_options(
        parser.add_argument_group("messages"),
        quiet="print errors only, and no summary",
        debug="show the traceback of an error, and why an engine was chosen",
    )


def _help(option: Option) -> str:
    default = f" (default: {option.shown_default})" if option.shown_default else ""
    return (option.help + default).replace("%", "%%")


def _argument(kind: Kind) -> dict[str, Any]:
    """How argparse reads an option. None has a default here: what is not typed may be set in the TOML file."""
    match kind:
        case Flag():
            return {"action": "store_true", "default": None}
        case Choice():
            return {"metavar": f"{{{','.join(map(str, kind.values))}}}"}  # the configuration checks it
        case WholeNumber():
            return {"type": whole_number, "metavar": kind.metavar}
        case Paths():
            return {"action": "append", "metavar": kind.metavar}
    return {"metavar": kind.metavar}


def execute(args: argparse.Namespace) -> int:
    from tokenmill.job.execute import run
    from tokenmill.job.interrupt import stop_on_signals

    typed, lone_path = _typed(args)
    settings = load_settings(typed, args.config, lone_path)
    config = settings.config()
    with settings.naming(), stop_on_signals(f"interrupted; {resume_hint(config)} to continue") as stop:
        result = run(config, stop=stop, display=lambda meter: _visible(args, meter))
    _report(args, result)
    return 0 if result.complete else 3


def _typed(args: argparse.Namespace) -> tuple[dict[str, Any], str | None]:
    """The options that were given, by name; the last path by position is the output, unless that has an option.

    One path, and no option that says what it is not, may be either.
    """
    inputs, output, paths = args.inputs, args.output, list(args.paths)
    lone_path = paths.pop() if len(paths) == 1 and output is None and not inputs else None
    if paths and output is None and (len(paths) > 1 or inputs):
        output = paths.pop()
    if args.output is not None and any(os.path.abspath(p) == os.path.abspath(args.output) for p in paths):
        named = printable(args.output)
        raise ConfigError(f"{named} is read as an input, because --output-dir is given: name it once")
    if paths and inputs:
        raise ConfigError("inputs were given both as --input-dir and by position: use one of them")
    given = vars(args) | {"inputs": inputs or paths or None, "output": output}
    typed = {option.name: given[option.name] for option in options_of(Config) if given[option.name] is not None}
    return typed, lone_path


def _visible(args: argparse.Namespace, meter: Meter) -> AbstractContextManager[object]:
    if args.quiet:
        return ExitStack()
    if args.log_format == "text" and sys.stderr.isatty():
        from rich.console import Console

        from tokenmill.cli.display import live

        return live(meter, Console(stderr=True))
    from tokenmill.job.progress import log_lines

    return log_lines(meter)


def _report(args: argparse.Namespace, result: RunResult) -> None:
    from tokenmill.cli.display import result_rows
    from tokenmill.messages import printable, without_name
    from tokenmill.output.schema import to_builtins

    outcome = _outcome(result)
    for name, why in result.missing.items():
        log.error("missing: %s (%s)", printable(name), without_name(name, why))
    if result.missing:
        log.error("fix the files above and run the same command again: only the units they belong to are run again")
    _report_damage(result)
    _report_skipped(result)
    if not result.ledger.rows:
        dropped = "all tokens were dropped (--tail drop)" if result.ledger.dropped_tokens else "the inputs have no text"
        log.warning("nothing was written: %s", dropped)
    if args.quiet:
        return
    if args.log_format == "json":
        summary = {name.strip(): value for name, value in result_rows(result)}
        bad = {"missing": result.missing, "damaged": to_builtins(result.damaged)}
        fields = {**result.ledger.to_json(), **bad, "summary": summary, **result.meter.snapshot()}
        log.info(outcome, extra={"event": "result", "fields": fields})
        return
    with summary_on_stdout():
        print(fitted(_headline(result, outcome), sys.stdout, indent=4))
        for name, value in result_rows(result):
            print(fitted(f"{name:24}{value}", sys.stdout, indent=24))


def _headline(result: RunResult, outcome: str) -> str:
    if not result.already_complete:
        return outcome
    return "already complete, nothing to do" if result.complete else f"{outcome} (nothing to do)"


def _outcome(result: RunResult) -> str:
    from tokenmill.messages import counted

    counts = (
        (result.missing, "missing file", "missing files"),
        (result.damaged, "damaged file", "damaged files"),
        (result.skipped_data, "skipped file that looks like data", "skipped files that look like data"),
    )
    exceptions = [counted(len(files), one, several) for files, one, several in counts if files]
    return f"complete, except for {' and '.join(exceptions)}" if exceptions else "complete"


def _report_damage(result: RunResult) -> None:
    """An error and not a warning, for --quiet must not hide it: the output lacks something."""
    from tokenmill.output import layout
    from tokenmill.output.damage import describe_damage

    for name, found in list(result.damaged.items())[:_NAMED]:
        log.error("damaged: %s (%s)", printable(name), printable(describe_damage(found)))
    if not result.damaged:
        return
    more = len(result.damaged) - _NAMED
    log.error(
        "%swhat could not be read of damaged files is not in the output; %s lists every place. To have it all, replace "
        "them with whole copies and start over with --overwrite",
        f"{more:,} more are named in {layout.MANIFEST}; " if more > 0 else "",
        layout.REJECTS,
    )


def _report_skipped(result: RunResult) -> None:
    from tokenmill.messages import first_few

    if result.skipped_data:
        one = len(result.skipped_data) == 1
        log.error(
            "skipped, although %s like data: %s. To have %s in the output, convert %s and start over with --overwrite; "
            "else leave %s out of the inputs, for example with a glob",
            "it looks" if one else "they look",
            first_few(result.skipped_data.items()),
            *["it" if one else "them"] * 3,
        )
