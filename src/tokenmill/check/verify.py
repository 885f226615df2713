"""All checks, in order, with a verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tokenmill.check.chunks import UnitChecker
from tokenmill.check.metadata import (
    Output,
    check_manifest,
    check_receipts,
    check_rejects,
    check_strangers,
    check_tokenizer,
    open_output,
)
from tokenmill.check.source import SourceChecker, choose
from tokenmill.check.verdict import Fault, Verdict
from tokenmill.errors import ConfigError, OutputError, TokenizerError, TokenmillError
from tokenmill.records import Receipt, Unit

ALL = -1

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
    against_source = ALL if against_source == "all" else against_source
    if not isinstance(against_source, int) or against_source < ALL:
        raise ConfigError(f"against_source: must be a number of documents or all, not {against_source}")
    found = open_output(Path(output), None if source is None else Path(source).absolute())
    verdict = Verdict(units=len(found.plan.sizes))
    if check_receipts(found, verdict.add):
        for check in (check_manifest, check_rejects, check_tokenizer, check_strangers):
            try:
                check(found, verdict.add)
            except (TokenmillError, OSError) as error:  # which must not hide what else is wrong
                verdict.add(Fault(str(error)))
    _check_units(found, against_source, seed, verdict, progress)
    return verdict


def _check_units(output: Output, against: int, seed: int, verdict: Verdict, progress: Progress) -> None:
    receipts = [_receipt(output, unit) for unit in output.plan.units()]
    sizes = [_data_bytes(output, r) for r in receipts]
    total = sum(sizes) + (sum(output.plan.sizes) if against else 0)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    damaged = set()
    for unit, receipt in zip(output.plan.units(), receipts, strict=True):
        if receipt is None:
            damaged.add(unit.index)
            continue
        for fault in UnitChecker(output, unit, receipt, advance).faults():
            damaged.add(unit.index)
            verdict.add(fault)
        verdict.chunks += len(receipt.chunks)
        verdict.rows += sum(c.rows for c in receipt.chunks)
        verdict.tokens += sum(c.tokens for c in receipt.chunks)
        verdict.documents += sum(c.documents for c in receipt.chunks)
    if against:
        whole = [None if n in damaged else r for n, r in enumerate(receipts)]
        _check_source(output, whole, against, seed, verdict, advance)


def _check_source(
    output: Output,
    receipts: list[Receipt | None],
    against: int,
    seed: int,
    verdict: Verdict,
    advance: Callable[[int], None],
) -> None:
    """What is damaged already is not looked at again."""
    try:
        checker = SourceChecker(output, advance)
    except TokenizerError as error:
        verdict.add(Fault(f"the source cannot be compared: {error}"))
        return
    counts = [sum(c.documents for c in r.chunks) if r else 0 for r in receipts]
    chosen = choose(counts, against, seed) if against != ALL else {}
    for unit, receipt in zip(output.plan.units(), receipts, strict=True):
        if receipt is None or (against != ALL and unit.index not in chosen):
            continue
        if changed := list(checker.changed(unit, receipt)):
            for fault in changed:
                verdict.add(fault)
            continue
        try:
            some = chosen.get(unit.index, [])
            faults = checker.check_all(unit, receipt) if against == ALL else checker.check_some(unit, receipt, some)
            for fault in faults:
                verdict.add(fault)
        except (OSError, ValueError) as error:
            verdict.add(Fault(f"unit {unit.name} cannot be compared with its source: {error}", unit.index))
    verdict.compared = checker.compared


def _receipt(output: Output, unit: Unit) -> Receipt | None:
    try:
        return output.store.receipt(unit)
    except OutputError:
        return None  # which was reported before


def _data_bytes(output: Output, receipt: Receipt | None) -> int:
    paths = (p for c in (receipt.chunks if receipt else ()) for p in output.store.chunk_paths(c))
    return sum(p.stat().st_size for p in paths if p.exists())
