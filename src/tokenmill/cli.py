"""The command line: arguments become a Config, the Config goes into one library call, the outcome becomes text."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import tokenmill
from tokenmill.config import Config, EncoderChoice, SpecialTokens, Tail, again, load_config, nearest
from tokenmill.engines import AUTO, ENGINES
from tokenmill.errors import ConfigError, Interrupted, TokenmillError
from tokenmill.execute import RunResult, run
from tokenmill.interrupt import stop_on_signals
from tokenmill.progress import Meter, log_lines
from tokenmill.records import printable

log = logging.getLogger("tokenmill")

_EXIT_CODES = """\
exit codes:
  0    complete
  1    failed: the message says what, where and what to do
  2    wrong usage: options, inputs or tokenizer that cannot be used
  3    complete, but with files missing; or stopped, with more rejects than --max-rejects
  130  interrupted; the same command continues
"""

_RUN_EXAMPLES = """\
examples:
  tokenmill run FinPile/0fp-100dolma tokenized/
  tokenmill run 'dolma/*.json.gz' tokenized/ --seq-len 4096 --tokenizer path/to/tokenizer.json
  tokenmill run --config job.toml --max-rejects 5%

The same command again continues an interrupted job.

"""


class _Parser(argparse.ArgumentParser):
    """Names the nearest option when one is misspelt; takes no abbreviation, lest --over become --overwrite."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            message += nearest(message.split()[2].split("=")[0], _option_names(self))
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {message}\n")


def _option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from (o for o in action.option_strings if o.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _option_names(command)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="tokenmill",
        formatter_class=raw,
        description="Turn text corpora into packed token sequences: fast, resumable, every document accounted for.",
        epilog="example:\n  tokenmill run FinPile/0fp-100dolma tokenized/\n\n" + _EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"tokenmill {tokenmill.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "run",
        help="tokenize and pack a corpus",
        formatter_class=raw,
        description="Tokenize files, directories and globs of JSON Lines (plain, .gz, .zst, .bz2, .xz), Parquet and "
        "text files into rows of token ids.",
        epilog=_RUN_EXAMPLES + _EXIT_CODES,
    )
    _add_run_options(command)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    default = {f: v.default for f, v in Config.__dataclass_fields__.items()}
    # No option has a default here: what the user does not say may stand in the TOML file.
    add = parser.add_argument
    add("paths", nargs="*", metavar="INPUT... OUTPUT", help="what to read and, last, the directory to write")
    add("--input-dir", action="append", metavar="PATH", help="an input, instead of the positional ones; repeatable")
    add("--output-dir", metavar="DIR", help="the output, instead of the last positional one")
    add("--config", type=Path, metavar="FILE", help="a TOML file of options; the command line wins")

    text = parser.add_argument_group("input")
    add = text.add_argument
    add("--text-field", help=f"field or column of the text; dots for nested (default: {default['text_field']})")
    add("--id-field", help="field or column with a document's own id, kept in .ids.jsonl beside each chunk")
    add("--max-document-bytes", metavar="SIZE", help="reject larger records (default: 256MiB)")
    add("--max-rejects", metavar="N|P%", help="stop when more is rejected (default: 1%%)")

    tokens = parser.add_argument_group("tokenizer")
    add = tokens.add_argument
    add("--tokenizer", help=f"bundled name, tokenizer.json, directory or hub id (default: {default['tokenizer']})")
    add("--encoder", choices=list(map(str, EncoderChoice)), help="library to encode with (default: auto)")
    add(
        "--special-tokens-in-text",
        choices=list(map(str, SpecialTokens)),
        help="a special token written in a text is text, the token, or a reason to reject (default: plain)",
    )
    add("--eos-token", metavar="TOKEN", help="token after each document (default: the tokenizer's)")
    add("--bos-token", metavar="TOKEN", help="token before each document (default: none)")
    add("--no-eos", action="store_true", default=None, help="no token after documents")

    rows = parser.add_argument_group("output")
    add = rows.add_argument
    add("--seq-len", type=int, metavar="N", help=f"tokens per row (default: {default['seq_len']})")
    add("--sequences-per-chunk", type=int, metavar="N", help="most rows per file (default: 50000)")
    add("--tail", choices=list(map(str, Tail)), help="pad or drop the last, partial row of a unit (default: pad)")
    add("--overwrite", action="store_true", default=None, help="remove the job in the output directory first")

    how = parser.add_argument_group("how to run")
    add = how.add_argument
    add("--engine", choices=[AUTO, *ENGINES], help="how units are scheduled; all give the same bytes (default: auto)")
    add(
        "--num-workers", type=int, metavar="N", help="processes (ultra) or threads (extreme); default 80%% of the cores"
    )
    add("--batch-size", type=int, metavar="N", help=f"documents per encode call (default: {default['batch_size']})")
    add("--prefetch-files", type=int, metavar="N", help="files that ultra reads ahead (default: 4)")
    add("--max-memory", metavar="SIZE", help="budget for the whole run, e.g. 4GB (default: half of the machine's)")
    add("--quiet", action="store_true", help="print errors only")
    add("--log-format", choices=["text", "json"], default="text", help="how messages are written (default: text)")
    add("--debug", action="store_true", help="show the traceback of an error")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    args = build_parser().parse_args(arguments)
    with _messages(args):
        try:
            return _run_command(args)
        except TokenmillError as error:
            if args.debug:
                raise
            log.error("%s", error)
            return error.exit_code
        except KeyboardInterrupt:
            log.error("interrupted")
            return Interrupted.exit_code
        except Exception as error:
            if args.debug:
                raise
            log.error(
                "%s: %s. This is a defect: please report it with the output of --debug", type(error).__name__, error
            )
            return 1


def _run_command(args: argparse.Namespace) -> int:
    config = _config(args)
    with stop_on_signals(f"interrupted; {again(config)} to continue") as stop:
        result = run(config, stop=stop, display=lambda meter: _visible(args, meter))
    _report(args, result)
    return 0 if result.complete else 3


def _config(args: argparse.Namespace) -> Config:
    values = {k: v for k, v in vars(args).items() if k in Config.__dataclass_fields__ and v is not None}
    paths = list(args.paths)
    output = args.output_dir
    if paths and output is None and (len(paths) > 1 or args.input_dir):
        output = paths.pop()
    if paths and args.input_dir:
        raise ConfigError("inputs were given both as --input-dir and by position: use one of them")
    if inputs := args.input_dir or paths:
        values["inputs"] = tuple(inputs)
    if output is not None:
        values["output"] = output
    return load_config(values, args.config)


def _visible(args: argparse.Namespace, meter: Meter) -> AbstractContextManager[object]:
    if args.quiet:
        return ExitStack()
    if args.log_format == "text" and sys.stderr.isatty():
        from rich.console import Console

        from tokenmill.display import live

        return live(meter, Console(stderr=True))
    return log_lines(meter)


def _report(args: argparse.Namespace, result: RunResult) -> None:
    from tokenmill.display import result_rows

    outcome = f"complete, but for {len(result.missing)} missing file(s)" if result.missing else "complete"
    for name, why in result.missing.items():
        log.error("missing: %s (%s)", printable(name), why)
    if result.missing:
        log.error("mend the files above and run the same command again: only what they are part of is done again")
    if args.quiet:
        return
    if args.log_format == "json":
        fields = dict(result_rows(result))
        log.info(outcome, extra={"event": "result", "fields": {**result.ledger.to_json(), "summary": fields}})
        return
    with _quiet_pipe():
        print("already complete, nothing to do" if result.already_complete else outcome)
        for name, value in result_rows(result):
            print(f"{name:24}{value}")


@contextmanager
def _quiet_pipe() -> Iterator[None]:
    """Whoever reads our output may stop reading, as `head` does: that is no error of the job."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _messages(args: argparse.Namespace) -> Iterator[None]:
    """Log to stderr for as long as the command runs."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if args.log_format == "json" else _TextFormatter())
    log.addHandler(handler)
    before, log.propagate = (log.level, log.propagate), False
    log.setLevel(logging.ERROR if args.quiet else logging.INFO)
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
