"""The plan of a job as it is stored: units, one per line, each read when it is asked for."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

from tokenmill.output.spool import Spool
from tokenmill.records import InputFile, Unit


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
