"""`tokenmill benchmark`: measure on this machine, compare, recommend."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.cli.streams import result_on_stdout
from tokenmill.cli.terminal import HelpFormatter, add_message_options, columns, path_argument, whole_number
from tokenmill.config import DEFAULT_TOKENIZER, ENGINES, parse_size
from tokenmill.errors import ConfigError
from tokenmill.messages import nearest

if TYPE_CHECKING:
    from tokenmill.benchmark.run_benchmark import Benchmark

log = logging.getLogger("tokenmill")

_EXAMPLES = """\
examples:
  # encoding alone, by library and batch size
  tokenmill benchmark --num-docs 1000
  # whole runs on your own shards, and their limit
  tokenmill benchmark --input corpus/ --engines all \\
      --workers 1,2
  # and other programs
  tokenmill benchmark --input corpus/ --engines all \\
      --workers 2 --peers --json result.json

Everything timed runs in a process of its own, with cold caches; methods and engines take turns, --repeat times. \
The first example takes one to three minutes on two cores, and a whole run of 100 MB some seconds. \
Nothing is written but what --json and --plot name. `make peers` in a checkout of tokenmill makes the environments \
for --peers.

exit codes:
  0    measured
  1    something that was measured failed, or methods gave different ids
  2    wrong usage
  130  interrupted
"""
_DEFAULT_DOCS = 1000
_DEFAULT_SIZE = "100MB"
LEAST_SIZE = 1_000_000


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "benchmark",
        usage="%(prog)s [OPTION...]",
        help="measure on this machine, compare with peers, recommend settings",
        formatter_class=HelpFormatter,
        description="Measure methods of encoding, whole runs of the engines against the limit of their kernels, and "
        "other programs, on your own shards or on a generated corpus.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("--num-docs", type=whole_number, metavar="N", help=f"compare methods on N documents (default: {_DEFAULT_DOCS})")
    add("--input", action="append", metavar="PATH", help="your own shards; repeatable (default: a generated corpus)")
    add("--engines", metavar="LIST", help=f"whole runs of `all` or of some of {','.join(ENGINES)}")
    add("--workers", metavar="LIST", help="worker counts for ultra and extreme, e.g. 1,2 (default: 1)")
    peers = "also dolma, datatrove, gigatoken and datasets.map, from the environments below DIR (default: .peers)"
    add("--peers", nargs="?", type=path_argument, const=Path(".peers"), metavar="DIR", help=peers)
    add(
        "--repeat",
        type=whole_number,
        default=3,
        metavar="N",
        help="times that each is measured; peers once (default: 3)",
    )
    add("--size", metavar="SIZE", help=f"generated text for whole runs (default: {_DEFAULT_SIZE})")
    add("--tokenizer", default=DEFAULT_TOKENIZER, help=f"as for run (default: {DEFAULT_TOKENIZER})")
    add("--text-field", default="text", help="as for run (default: text)")
    add("--json", type=path_argument, metavar="FILE", help="write everything that was measured")
    add("--plot", type=path_argument, metavar="FILE", help="write a bar chart, .svg or .png (needs tokenmill[plot])")
    add_message_options(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    options = _options(args)
    _check_writable(args)
    from tokenmill.benchmark.run_benchmark import run_benchmark

    # What is being measured must end with us, and the generated corpus go.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _progress(args, options.steps()) as tell:
            report = run_benchmark(options, tell)
    except ConfigError as error:
        raise error.renamed({"text_field": "--text-field", "tokenizer": "--tokenizer"}) from error.__cause__
    finally:
        signal.signal(signal.SIGTERM, before)
    if args.json:
        command = ["tokenmill", *sys.argv[1:]]
        args.json.write_text(json.dumps(report.to_json(command), indent=1) + "\n", "utf-8")
    if args.plot:
        from tokenmill.benchmark.chart import draw

        draw(report, args.plot)
    with result_on_stdout():
        for line in report.lines(columns(sys.stdout)):
            print(line)
    return 1 if report.differing else 0


def _options(args: argparse.Namespace) -> Benchmark:
    from tokenmill.benchmark.run_benchmark import Benchmark

    engines = () if args.engines is None else ENGINES if args.engines == "all" else tuple(args.engines.split(","))
    for name in engines:
        if name not in ENGINES:
            raise ConfigError(f"--engines: there is no engine {name!r}{nearest(name, ENGINES)}")
    for flag, given in (("--workers", args.workers), ("--size", args.size)):
        if given is not None and not engines:
            log.warning("%s is for whole runs: without --engines it is of no use", flag)
    try:
        workers = tuple(int(w) for w in (args.workers or "1").split(","))
    except ValueError:
        workers = ()
    if not workers or min(workers) < 1:
        raise ConfigError(f"--workers: expected numbers such as 1,2, got {args.workers!r}")
    for name, value in (("--repeat", args.repeat), ("--num-docs", args.num_docs)):
        if value is not None and value < 1:
            raise ConfigError(f"{name}: must be at least 1, not {value}")
    if args.peers is not None and not args.peers.is_dir():
        raise ConfigError(f"--peers: there is no directory {args.peers}; `make peers` in a checkout makes .peers")
    if args.peers is not None and not engines:
        raise ConfigError("--peers compares whole runs: add --engines all, or one of them")
    size = parse_size(args.size or _DEFAULT_SIZE, "--size")
    if size < LEAST_SIZE:
        raise ConfigError(f"--size: {args.size} is too little to measure anything: the minimum is 1MB")
    return Benchmark(
        inputs=tuple(args.input or ()),
        num_docs=args.num_docs or (0 if engines else _DEFAULT_DOCS),
        engines=engines,
        workers=workers,
        peers=args.peers,
        repeat=args.repeat,
        tokenizer=args.tokenizer,
        text_field=args.text_field,
        size=size,
    )


def _check_writable(args: argparse.Namespace) -> None:
    """Before an hour of measuring, not after it."""
    for path in filter(None, (args.json, args.plot)):
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: there is no directory {path.parent}")
    if args.plot and args.plot.suffix not in (".svg", ".png"):
        raise ConfigError(f"--plot: {args.plot} must end in .svg or .png")
    if args.plot:
        import importlib.util

        if importlib.util.find_spec("matplotlib") is None:
            raise ConfigError("--plot needs matplotlib: pip install 'tokenmill[plot]'")


@contextmanager
def _progress(args: argparse.Namespace, steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, else a line per step."""
    if args.quiet:
        yield lambda _: None
    elif args.log_format == "text" and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=steps)
            done = iter(range(steps))
            yield lambda what: bar.update(task, description=what, completed=next(done, steps))
    else:
        counter = iter(range(1, steps + 1))
        yield lambda what: log.info("%d of %d: %s", next(counter, steps), steps, what)
