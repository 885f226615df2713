"""`tokenmill verify`: is an output whole, and is it what its sources say?"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from tokenmill.cli.streams import result_on_stdout, summary_on_stdout
from tokenmill.cli.terminal import HelpFormatter, add_message_options, byte_progress, fitted, whole_number
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    from tokenmill.check.verdict import Verdict

log = logging.getLogger("tokenmill")

_MOST_NAMED = 5
_EPILOG = """\
examples:
  # metadata, checksums, ids, document boundaries, foreign files
  tokenmill verify tokenized/
  # and 1,000 documents encoded again by the reference tokenizer
  tokenmill verify tokenized/ --against-source 1000
  # all of them, if the inputs are elsewhere now
  tokenmill verify tokenized/ --against-source all \\
      --source /mnt/corpus

exit codes:
  0    everything that was looked at is right
  1    it is not, or input is missing or damaged: every problem is named, with \
what to do
  2    wrong usage, or not a tokenmill output directory, or none of the sources \
to compare with is there
  130  interrupted
"""


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        usage="%(prog)s OUTPUT [OPTION...]",
        help="check an output, also against its source",
        formatter_class=HelpFormatter,
        description="Check a finished output; nothing is written.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("output", metavar="OUTPUT", help="the directory that `tokenmill run` wrote")
    add("--against-source", default="0", metavar="N|all", help="compare N documents, or all, with their source records")
    add("--source", metavar="DIR", help="the folder of the inputs (default: where it was in the last run)")
    add("--seed", type=whole_number, default=0, metavar="N", help="seed for choosing documents (default: 0)")
    add("--json", action="store_true", help="print the verdict as JSON")
    add_message_options(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from tokenmill.check.verify import verify

    against = _against(args.against_source)
    if args.source and not against:
        log.warning("--source is of no use without --against-source")
    with byte_progress(args, "verifying") as progress:
        verdict = verify(args.output, against_source=against, source=args.source, seed=args.seed, progress=progress)
    with result_on_stdout() if args.json else summary_on_stdout():
        if args.json:
            print(json.dumps({"good": verdict.good, **asdict(verdict)}))
        else:
            _print(args, verdict)
    return 0 if verdict.good else 1 if verdict.found else 2


def _describe_absent(verdict: Verdict) -> str:
    from tokenmill.messages import counted, printable

    files = counted(len(verdict.absent), "source file is", "source files are")
    names = ", ".join(printable(name) for name in verdict.absent[:_MOST_NAMED])
    more = f" and {len(verdict.absent) - _MOST_NAMED:,} more" if len(verdict.absent) > _MOST_NAMED else ""
    return (
        f"not compared: {counted(verdict.uncompared, 'document')}, because {files} not in {verdict.source}: "
        f"{names}{more}. Name the folder of the inputs with --source"
    )


def _against(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    try:
        if (count := int(text)) >= 0:
            return count
    except ValueError:
        pass
    raise ConfigError(f"--against-source: {text!r} is neither a number of documents nor all")


def _print(args: argparse.Namespace, verdict: Verdict) -> None:
    from tokenmill.messages import counted, printable

    def say(line: str) -> None:
        print(fitted(line, sys.stdout))

    for fault in verdict.faults:
        say(f"problem: {printable(fault.what)}" + ("" if fault.unit is None else f" (--redo {fault.unit})"))
    if verdict.found > len(verdict.faults):
        say(f"… and {counted(verdict.found - len(verdict.faults), 'more problem')}")
    if verdict.uncompared:
        say(_describe_absent(verdict))
    looked = _describe_looked(verdict)
    if not verdict.found:
        say(
            f"verified: {looked}, no problem found" + ("" if verdict.good else ", but nothing compared with its source")
        )
        return
    say(f"FAILED: {counted(verdict.found, 'problem')} found in {looked}")
    if units := verdict.units_to_redo():
        numbers, output = ",".join(map(str, units)), shlex.quote(printable(args.output))
        say(f"run the units again with the job's options: tokenmill run INPUT... {output} --redo {numbers}")


def _describe_looked(verdict: Verdict) -> str:
    from tokenmill.messages import counted

    units, chunks, rows, tokens, documents = (
        counted(getattr(verdict, f"{noun}s"), noun) for noun in ("unit", "chunk", "row", "token", "document")
    )
    if verdict.separators is None:
        tokens += " (separators included)"
    elif verdict.separators:
        tokens += f" ({counted(verdict.separators, 'separator')} included)"
    if verdict.compared:
        documents += f" ({verdict.compared:,} compared with their source)"
    return f"{units}, {chunks}, {rows}, {tokens}, {documents}"
