"""Stage 1, plan: what the user named becomes a list of files, and the files become units.

    arguments ─find─> names below one root ─sniff─> InputFile (format, codec, fingerprint) ─cut─> Unit…

A plan depends on the inputs and the configuration only: not on worker count, machine, mount point or time. It lives in
a file, one unit per line, and only as many bytes of it are in memory as there are units under way: a corpus may have
millions of files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import overload

from tokenmill.config import Config
from tokenmill.errors import InputError
from tokenmill.plan.cut import cut_units, unit_bytes, weight
from tokenmill.plan.find import JOB_FILE, find_files, is_job
from tokenmill.plan.sniff import NotAnInputError, inspect
from tokenmill.plan.spool import Spool
from tokenmill.records import Format, InputFile, Unit, printable

log = logging.getLogger("tokenmill")

NAMED_IN_MESSAGE = 5


class Plan:
    """The units of a job. `root` is where the inputs lie on this machine and is never written down."""

    def __init__(self, root: Path, units: Spool, left_out: Spool | None = None) -> None:
        self.root = root
        self.left_out = left_out
        """Files below the inputs that are none, and why. Not part of the job: it may change between two runs."""
        self.sizes = array("Q")
        """The size of every unit."""
        self.files = 0
        self._units = units
        self._starts = array("Q", [0])
        self._index()

    def _index(self) -> None:
        state = hashlib.sha256()
        for line in self._units.lines():
            state.update(line)
            unit = Unit.from_json(json.loads(line))
            if unit.index != len(self.sizes):
                raise ValueError(f"unit {unit.index} in the place of unit {len(self.sizes)}")
            for file in unit.files:
                os.fsencode(file.name)  # raises for what cannot be the name of a file
            self.sizes.append(unit.size)
            self._starts.append(self._starts[-1] + len(line))
            self.files = max(self.files, *(p.file + 1 for p in unit.parts))
        self.digest = state.hexdigest()

    def __reduce__(self) -> tuple[Callable[[Path], Plan], tuple[Path]]:
        """What is sent to a worker has no units: it is told which to run."""
        return _without_units, (self.root,)

    def unit(self, number: int) -> Unit:
        return Unit.from_json(self._units.read(self._starts[number], self._starts[number + 1]))

    def units(self, numbers: Sequence[int] | None = None) -> Units:
        """These units, or all of them."""
        return Units(self, range(len(self.sizes)) if numbers is None else numbers)

    def lines(self) -> Iterator[str]:
        """The plan as it is written down."""
        return (line.decode("ascii") for line in self._units.lines())

    def inputs(self) -> Iterator[tuple[int, InputFile]]:
        """Every input file once, with its number, in order."""
        expected = 0
        for unit in self.units():
            for part, file in zip(unit.parts, unit.files, strict=True):
                if part.file == expected:
                    yield part.file, file
                    expected += 1

    def with_inputs(self, repaired: dict[int, InputFile]) -> Plan:
        """The same units over inputs that could not be read before."""
        units = (_repair(unit, repaired) for unit in self.units())
        return write_plan(self.root, units, self.left_out) if repaired else self


class Units(Sequence[Unit]):
    """Units of a plan, each read from the plan's file when it is asked for."""

    def __init__(self, plan: Plan, numbers: Sequence[int]) -> None:
        self.plan = plan
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Unit: ...
    @overload
    def __getitem__(self, index: slice) -> Units: ...
    def __getitem__(self, index: int | slice) -> Unit | Units:
        if isinstance(index, slice):
            return Units(self.plan, self.numbers[index])
        return self.plan.unit(self.numbers[index])


def _without_units(root: Path) -> Plan:
    return write_plan(root, ())


def write_plan(root: Path, units: Iterable[Unit], left_out: Spool | None = None) -> Plan:
    return Plan(root, Spool(unit.to_json() for unit in units), left_out)


def _repair(unit: Unit, repaired: dict[int, InputFile]) -> Unit:
    files = tuple(repaired.get(p.file, f) for p, f in zip(unit.parts, unit.files, strict=True))
    more = sum(repaired[p.file].size for p in unit.parts if p.file in repaired)
    return replace(unit, files=files, size=unit.size + more)


def make_plan(config: Config) -> Plan:
    """Find, inspect and cut the inputs of a job; say what was left out and what is not what its name says."""
    root, found = find_files(config.inputs, config.output)
    inputs, left_out, odd = Spool(), Spool(), Spool()
    total = 0
    for name, explicit in found:
        try:
            if os.path.basename(name).startswith(".") and not explicit:
                raise NotAnInputError("hidden")
            if os.path.basename(name) == JOB_FILE and is_job(root / name):
                raise NotAnInputError("the output of a job: nothing in that directory is read")
            file, note = inspect(root / name, name)
        except NotAnInputError as error:
            if explicit:
                raise InputError(f"{printable(root / name)}: {error}") from error
            left_out.append((name, str(error)))
            continue
        if file.format is Format.PARQUET:  # no mutant: only speed depends on it
            # 0.2 s that are free here: the tokenizer is being loaded meanwhile.
            import_module("tokenmill.read.parquet")  # no mutant: only speed depends on it
        inputs.append(asdict(file))
        total += weight(file)
        if note:
            odd.append((name, note))
    _warn("left out %d file(s) that are no input: %s", left_out)
    _warn("%d file(s) are not what their name says: %s", odd)
    if not inputs:
        raise InputError(
            f"no input found in {', '.join(map(printable, config.inputs))}: looked for JSON Lines (plain, .gz, .zst, "
            f".bz2, .xz), Parquet and .txt files{'; left out ' + listed(left_out, 1) if left_out else ''}"
        )
    return write_plan(root, cut_units(map(InputFile.from_json, inputs), unit_bytes(total), root), left_out)


def _warn(message: str, entries: Spool) -> None:
    if entries:
        log.warning(message, len(entries), listed(entries))


def listed(entries: Spool, most: int = NAMED_IN_MESSAGE) -> str:
    """The first few of many: "a.md (not JSON Lines); b.md (hidden); and 7 more"."""
    shown = [f"{printable(name)} ({why})" for (name, why), _ in zip(entries, range(most), strict=False)]
    more = len(entries) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
