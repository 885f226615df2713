"""All checks, in order, with a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenmill.check.chunks import UnitChecker
from tokenmill.check.metadata import (
    check_job,
    check_manifest,
    check_receipts,
    check_rejects,
    check_strangers,
    check_tokenizer,
)
from tokenmill.check.source import SourceChecker, sample_documents
from tokenmill.check.tally import Tally
from tokenmill.check.verdict import Fault, Verdict
from tokenmill.config import Use, local_path
from tokenmill.errors import ConfigError, OutputError, TokenizerError, TokenmillError
from tokenmill.output import layout
from tokenmill.output.open import Output, last_inputs, open_output
from tokenmill.output.schema import Receipt
from tokenmill.records import Unit
from tokenmill.storage.base import Reading
from tokenmill.storage.local import LocalStorage

Progress = Callable[[int, int], None]
"""Told of the bytes that were looked at, and of how many there are in all."""


def verify(
    output: str | Path,
    *,
    against_source: int | Literal["all"] = 0,
    source: str | Path | None = None,
    seed: int = 0,
    progress: Progress = lambda _done, _total: None,
) -> Verdict:
    """Check a finished output; nothing is written.

    `against_source`: how many documents, chosen by `seed`, are compared with the records they came from, or "all" of
    them. `source` is the folder of the inputs, if it is not where it was when the job ran.
    """
    if against_source != "all" and (not isinstance(against_source, int) or against_source < 0):
        raise ConfigError(f"against_source: must be a number of documents or all, not {against_source}")
    found = open_output(output)
    check_job(found)
    verdict = Verdict(units=len(found.plan.sizes))
    if check_receipts(found, verdict.add):
        for check in (check_manifest, check_rejects, check_tokenizer, check_strangers):
            try:
                check(found, verdict.add)
            except (TokenmillError, OSError) as error:  # which must not hide what else is wrong
                verdict.add(Fault(str(error)))
    _check_units(found, _Sample(against_source, seed), _inputs(found, source), verdict, progress)
    return verdict


@dataclass(frozen=True, slots=True)
class _Sample:
    """Which documents are compared with their source."""

    count: int | Literal["all"]
    seed: int

    def choose(self, documents: list[int]) -> dict[int, list[int] | None]:
        """Unit -> places in it, None for all of them; from how many documents each unit has."""
        if self.count == "all":
            return dict.fromkeys(range(len(documents)))
        return {**sample_documents(documents, self.count, self.seed)}


def _inputs(output: Output, source: str | Path | None) -> Reading:
    if source is not None:
        return LocalStorage(Path(local_path(source, Use.INPUT)).absolute())
    return LocalStorage(Path(os.fsdecode(last_inputs(output.storage) or b"")))


def _check_units(output: Output, sample: _Sample, inputs: Reading, verdict: Verdict, progress: Progress) -> None:
    receipts = [_receipt(output, unit) for unit in output.plan.units()]
    sizes = [_data_bytes(output, r) for r in receipts]
    tally = Tally(sum(sizes) + sum(output.plan.sizes[n] for n in _chosen(sample, receipts)), progress)
    damaged = set()
    for unit, receipt in zip(output.plan.units(), receipts, strict=True):
        if receipt is None:
            damaged.add(unit.index)
            continue
        with tally.step(sizes[unit.index]):
            for fault in UnitChecker(output, unit, receipt, tally.add).faults():
                damaged.add(unit.index)
                verdict.add(fault)
        verdict.chunks += len(receipt.chunks)
        verdict.rows += sum(c.rows for c in receipt.chunks)
        verdict.tokens += sum(c.tokens for c in receipt.chunks)
        if receipt.ledger.dropped_tokens:
            verdict.separators = None
        elif verdict.separators is not None:
            verdict.separators += receipt.ledger.separators
        verdict.documents += sum(c.documents for c in receipt.chunks)
    if sample.count:
        whole = [None if n in damaged else r for n, r in enumerate(receipts)]
        _check_source(output, whole, sample, inputs, verdict, tally)


def _check_source(
    output: Output,
    receipts: list[Receipt | None],
    sample: _Sample,
    inputs: Reading,
    verdict: Verdict,
    tally: Tally,
) -> None:
    """What is damaged already is not looked at again."""
    try:
        checker = SourceChecker(output, inputs, tally.add)
    except TokenizerError as error:
        verdict.add(Fault(f"the source cannot be compared: {error}"))
        tally.expect(0)
        return
    chosen = _chosen(sample, receipts)
    tally.expect(sum(output.plan.sizes[n] for n in chosen))
    for number, places in chosen.items():
        unit, receipt = output.plan.unit(number), receipts[number]
        assert receipt is not None  # or none of its documents would have been chosen
        with tally.step(unit.size):
            for fault in _compare(checker, unit, receipt, places):
                verdict.add(fault)
    verdict.compared, verdict.uncompared = checker.compared, checker.uncompared
    verdict.absent, verdict.source = [*checker.absent], inputs.describe()


def _chosen(sample: _Sample, receipts: list[Receipt | None]) -> dict[int, list[int] | None]:
    """The units that are compared with their source, and the places in each, None for all of them."""
    chosen = sample.choose([sum(c.documents for c in r.chunks) if r else 0 for r in receipts])
    return {number: places for number, places in chosen.items() if receipts[number] is not None}


def _compare(checker: SourceChecker, unit: Unit, receipt: Receipt, places: list[int] | None) -> Iterator[Fault]:
    absent = checker.find_absent(unit, receipt)
    if changed := list(checker.changed(unit, {*receipt.missing, *absent})):
        yield from changed
        return
    try:
        if places is None:
            yield from checker.check_all(unit, receipt, absent)
        else:
            yield from checker.check_some(unit, receipt, places, absent)
    except (OSError, ValueError) as error:
        yield Fault(f"unit {unit.name} cannot be compared with its source: {error}", unit.index)


def _receipt(output: Output, unit: Unit) -> Receipt | None:
    try:
        return output.receipts.receipt(unit)
    except OutputError:
        return None  # which was reported before


def _data_bytes(output: Output, receipt: Receipt | None) -> int:
    names = (name for c in (receipt.chunks if receipt else ()) for name in layout.chunk_files(c))
    return sum(output.storage.stat(name).size for name in names if output.store.has(name))
