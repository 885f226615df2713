"""`tokenmill run`: arguments become a Config, the Config goes into one library call, the outcome becomes text."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.terminal import EXIT_CODES, add_message_options, quiet_pipe
from tokenmill.config import AUTO, ENGINES, Config, EncoderChoice, SpecialTokens, Tail, load_config, resume_hint
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    from tokenmill.job.execute import RunResult
    from tokenmill.job.progress import Meter

log = logging.getLogger("tokenmill")

_EXAMPLES = """\
examples:
  tokenmill run FinPile/0fp-100dolma tokenized/
  tokenmill run 'dolma/*.json.gz' tokenized/ --seq-len 4096 --tokenizer path/to/tokenizer.json
  tokenmill run --config job.toml --max-rejects 5%

The same command again continues an interrupted job.

"""


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="tokenize and pack a corpus",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Tokenize files, directories and globs of JSON Lines (plain, .gz, .zst, .bz2, .xz), Parquet and "
        "text files into rows of token ids.",
        epilog=_EXAMPLES + EXIT_CODES,
    )
    _add_options(parser)
    parser.set_defaults(execute=execute)


def _add_options(parser: argparse.ArgumentParser) -> None:
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
    add("--redo", metavar="UNITS", help="do these units of the job again, e.g. 7,12: `tokenmill verify` names them")
    add("--overwrite", action="store_true", default=None, help="remove the job in the output directory first")

    how = parser.add_argument_group("how to run")
    add = how.add_argument
    add("--engine", choices=[AUTO, *ENGINES], help="how units are scheduled; all give the same bytes (default: auto)")
    add(
        "--num-workers", type=int, metavar="N", help="processes (ultra) or threads (extreme); default 80%% of the cores"
    )
    add("--batch-size", type=int, metavar="N", help=f"documents per encode call (default: {default['batch_size']})")
    add("--prefetch-files", type=int, metavar="N", help="files that ultra and extreme have read ahead (default: 4)")
    add("--max-memory", metavar="SIZE", help="budget for the whole run, e.g. 4GB (default: half of the machine's)")
    add_message_options(how)


def execute(args: argparse.Namespace) -> int:
    from tokenmill.job.execute import run
    from tokenmill.job.interrupt import stop_on_signals

    config = _config(args)
    with stop_on_signals(f"interrupted; {resume_hint(config)} to continue") as stop:
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

        from tokenmill.cli.display import live

        return live(meter, Console(stderr=True))
    from tokenmill.job.progress import log_lines

    return log_lines(meter)


def _report(args: argparse.Namespace, result: RunResult) -> None:
    from tokenmill.cli.display import result_rows
    from tokenmill.messages import printable

    outcome = f"complete, but for {len(result.missing)} missing file(s)" if result.missing else "complete"
    for name, why in result.missing.items():
        log.error("missing: %s (%s)", printable(name), why)
    if result.missing:
        log.error("mend the files above and run the same command again: only what they are part of is done again")
    if result.damaged:
        log.warning(
            "some input is damaged (%s): what could not be read of it is not in the output. rejects.jsonl names the "
            "places; to have it all, mend the files and start anew with --overwrite",
            ", ".join(f"{reason} {count:,}" for reason, count in result.damaged.items()),
        )
    if args.quiet:
        return
    if args.log_format == "json":
        fields = {**result.ledger.to_json(), "summary": dict(result_rows(result)), **result.meter.snapshot()}
        log.info(outcome, extra={"event": "result", "fields": fields})
        return
    with quiet_pipe():
        print("already complete, nothing to do" if result.already_complete else outcome)
        for name, value in result_rows(result):
            print(f"{name:24}{value}")
