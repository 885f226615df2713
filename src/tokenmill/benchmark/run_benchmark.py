"""A benchmark from beginning to end: a corpus, everything that is to be measured in turns, a report."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from tokenmill.benchmark.generate import Generator, write_corpus
from tokenmill.benchmark.methods import FASTOKENS, library_of, method_names
from tokenmill.benchmark.peers import (
    PEERS,
    compare,
    digests_of,
    digests_of_stripped,
    find_python,
    find_shards,
    run_peer,
)
from tokenmill.benchmark.report import Method, Report
from tokenmill.benchmark.runs import Contender, measure, python, run_engine
from tokenmill.config import DEFAULT_TOKENIZER, Config
from tokenmill.encode import Tokenizer, build_encoder, resolve_tokenizer
from tokenmill.engines.machine import available_cores
from tokenmill.engines.registry import engine_class
from tokenmill.errors import BenchmarkError
from tokenmill.messages import counted
from tokenmill.plan.make import make_plan
from tokenmill.read.corpus import Corpus
from tokenmill.read.formats import open_reader
from tokenmill.read.source import open_input
from tokenmill.records import Unit
from tokenmill.storage.base import Reading

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What is to be measured."""

    inputs: tuple[str, ...] = ()
    num_docs: int = 0
    engines: tuple[str, ...] = ()
    workers: tuple[int, ...] = (1,)
    peers: Path | None = None
    repeat: int = 3
    tokenizer: str = DEFAULT_TOKENIZER
    text_field: str = "text"
    size: int = 100_000_000
    """Bytes of text to generate for whole runs if no input is given."""

    def steps(self) -> int:
        """How often `tell` will be called, for a progress bar."""
        methods = len(self.methods()) * self.repeat
        engines = (1 + len(self.ways())) * self.repeat if self.engines else 0
        return methods + engines + (len(PEERS) if self.peers else 0)

    def job_options(self) -> tuple[str, ...]:
        tokenizer = () if self.tokenizer == DEFAULT_TOKENIZER else ("--tokenizer", self.tokenizer)
        return (*tokenizer, *(() if self.text_field == "text" else ("--text-field", self.text_field)))

    def ways(self) -> list[tuple[str, int]]:
        """Engines with worker counts; those that have one thread only once."""
        return [(e, w) for e in self.engines for w in (self.workers if engine_class(e).cost.parallel else (1,))]

    def methods(self) -> list[str]:
        """All of them, or what it takes to recommend a batch size."""
        names = method_names()
        return names if self.num_docs else [n for n in names if n.startswith(f"{FASTOKENS}_batch_")]


def run_benchmark(options: Benchmark, tell: Tell) -> Report:
    """Measure everything; `tell` is called before each step with what it is."""
    with _scratch() as work:
        inputs = options.inputs
        generated = not inputs
        if generated and (options.engines or options.peers):
            (work / "corpus").mkdir()
            write_corpus(work / "corpus", options.size)
            inputs = (str(work / "corpus"),)
        config = Config(
            inputs=inputs or (str(work),),
            output=work / "out",
            tokenizer=options.tokenizer,
            text_field=options.text_field,
        )
        if options.peers:
            find_shards(config.inputs, config.text_field)  # which may refuse them: now, not after an hour
        tokenizer = resolve_tokenizer(config)
        (work / "tokenizer.json").write_text(tokenizer.json, "utf-8")
        texts = list(islice(_texts(config) if options.inputs else Generator(), options.num_docs or 1000))
        report = Report(
            cores=available_cores(), inputs=options.inputs, generated=generated, job_options=options.job_options()
        )
        _measure_methods(options, texts, work, report, tell)
        if options.engines:
            _measure_engines(options, config, work, report, tell)
        if options.peers:
            _measure_peers(options, config, tokenizer, work, report, tell)
    return report


@contextmanager
def _scratch() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="tokenmill-benchmark-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _stripped(config: Config, tokenizer: Tokenizer) -> Counter[bytes]:
    encoder = build_encoder(tokenizer, config.encoder, config.special_tokens_in_text)
    return digests_of_stripped(_texts(config), encoder)


def _texts(config: Config) -> Iterator[str]:
    """The user's own documents, from the first on."""
    planned = make_plan(config.inputs, config.output, partial(Corpus, options=config))
    for unit in planned.plan.units():
        yield from _unit_texts(config, planned.inputs, unit)


def _unit_texts(config: Config, inputs: Reading, unit: Unit) -> Iterator[str]:
    for part, file in zip(unit.parts, unit.files, strict=True):
        if file.problem is None:
            with open_input(inputs, file) as source:
                for block in open_reader(source, file, part, config).blocks(None):
                    yield from block.parse().texts


def _measure_methods(options: Benchmark, texts: list[str], work: Path, report: Report, tell: Tell) -> None:
    if not texts:
        raise BenchmarkError("there is no document in the input")
    path = work / "texts.json"
    path.write_text(json.dumps(texts), "ascii")
    size = sum(len(t.encode()) for t in texts)
    methods = [Method(name=n, documents=len(texts), text_bytes=size) for n in options.methods()]
    for _ in range(options.repeat):
        for method in methods:
            tell(method.name)
            if (library := library_of(method.name)) in report.refused:
                continue
            command = python("-m", "tokenmill.benchmark.methods", method.name, str(path), str(work / "tokenizer.json"))
            found = json.loads(measure(command, work / "methods.log").output)
            if "problem" in found:
                report.refused[library] = found["problem"]
            else:
                method.add(found)
    usable = [m for m in methods if library_of(m.name) not in report.refused]
    if options.num_docs and not usable:
        raise BenchmarkError(f"no library can use this tokenizer: {'; '.join(report.refused.values())}")
    reference = usable[0].digest if usable else ""
    report.methods = [m for m in usable if m.digest == reference]
    report.differing = [m.name for m in usable if m.digest != reference]


def _measure_engines(options: Benchmark, config: Config, work: Path, report: Report, tell: Tell) -> None:
    report.engines = [Contender(name=e, workers=w, seconds=[]) for e, w in options.ways()]
    run = {"inputs": list(config.inputs), "tokenizer": str(work / "tokenizer.json"), "text_field": config.text_field}
    limit = json.dumps({**run, "scratch": str(work)})
    for _ in range(options.repeat):
        tell("the limit: the bare kernels")
        found = json.loads(measure(python("-m", "tokenmill.benchmark.limit", limit), work / "limit.log").output)
        if not report.limit or sum(found.values()) < sum(report.limit.values()):
            report.limit = found
        for contender in report.engines:
            tell(f"{contender.name} with {counted(contender.workers, 'worker')}")
            run_engine(contender, run, work / "out", work / "runs.log")


def _measure_peers(
    options: Benchmark, config: Config, tokenizer: Tokenizer, work: Path, report: Report, tell: Tell
) -> None:
    assert options.peers is not None
    shards = find_shards(config.inputs, config.text_field)
    workers = max(options.workers)
    if not report.engines:
        raise BenchmarkError("--peers needs --engines, to have something to compare the peers with")
    ours, eos = digests_of(work / "out", tokenizer.eos_id), tokenizer.eos_id
    for peer in PEERS:
        tell(peer.name)
        environment = find_python(peer, options.peers)
        if environment is None:
            report.absent.append(peer.name)
            continue
        reference = report.engines[0]
        contender = Contender(
            name=peer.name,
            workers=workers,
            seconds=[],
            documents=reference.documents,
            tokens=reference.tokens,
            text_bytes=reference.text_bytes,
        )
        out = work / peer.package
        try:
            run_peer(peer, environment, contender, shards, tokenizer, out)
            expected = _stripped(config, tokenizer) if peer.strips else ours
            contender.agrees = compare(peer.read(out, tokenizer.dtype), expected, eos)
            if peer.strips:
                contender.agrees += " (of stripped texts)"
        except BenchmarkError as error:
            contender.problem = str(error)
        report.peers.append(contender)
        shutil.rmtree(out, ignore_errors=True)
