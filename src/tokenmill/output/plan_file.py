"""The plan of a job as it is stored: units, one per line, each read when it is asked for.

A corpus may have millions of files, so only as many units are in memory as are under way.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import msgspec

from tokenmill.output.schema import SkippedEntry, decode, to_line
from tokenmill.output.spool import Spool
from tokenmill.records import InputFile, Unit


class Plan:
    """The units of a job, in order."""

    def __init__(self, units: Spool) -> None:
        self.sizes = array("Q")
        """The size of every unit."""
        self.files = 0
        self._units = units
        self._starts = array("Q", [0])
        self._index()

    @classmethod
    def of(cls, units: Iterable[Unit]) -> Plan:
        spool = Spool()
        for unit in units:
            spool.append(to_line(unit, sort_keys=True))
        return cls(spool)

    def _index(self) -> None:
        state = hashlib.sha256()
        for line in self._units:
            state.update(line)
            unit = decode(line, Unit)
            if unit.index != len(self.sizes):
                raise ValueError(f"unit {unit.index} in the place of unit {len(self.sizes)}")
            for file in unit.files:
                os.fsencode(file.name)  # raises for what cannot be the name of a file
            self.sizes.append(unit.size)
            self._starts.append(self._starts[-1] + len(line))
            self.files = max(self.files, *(p.file + 1 for p in unit.parts))
        self.digest = state.hexdigest()

    def unit(self, number: int) -> Unit:
        return decode(self._units.read(self._starts[number], self._starts[number + 1]), Unit)

    def units(self, numbers: Sequence[int] | None = None) -> Units:
        """These units, or all of them."""
        return Units(self, range(len(self.sizes)) if numbers is None else numbers)

    def lines(self) -> Iterable[bytes]:
        """The plan as it is written down."""
        return iter(self._units)

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
        return Plan.of(_repair(unit, repaired) for unit in self.units()) if repaired else self


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


def _repair(unit: Unit, repaired: dict[int, InputFile]) -> Unit:
    files = tuple(repaired.get(p.file, f) for p, f in zip(unit.parts, unit.files, strict=True))
    more = sum(repaired[p.file].size for p in unit.parts if p.file in repaired)
    return msgspec.structs.replace(unit, files=files, size=unit.size + more)


class Skipped:
    """Files below the inputs that are none, and why. Not part of the job: it may change between two runs."""

    def __init__(self) -> None:
        self._entries = Spool()

    def append(self, name: str, why: str, *, looks_like_data: bool = False) -> None:
        self._entries.append(to_line(SkippedEntry(name=name, why=why, looks_like_data=looks_like_data)))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SkippedEntry]:
        return (decode(line, SkippedEntry) for line in self._entries)

    def data(self) -> list[SkippedEntry]:
        """Those that were probably meant to be read."""
        return [entry for entry in self if entry.looks_like_data]
