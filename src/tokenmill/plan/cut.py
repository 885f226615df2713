"""Files become units: small ones together, big ones in ranges where the format allows it.

Units must be many enough to keep 64 workers busy to the end on 52 GB (512 units of 100 MB), and 4 on 300 MB (18
units), yet large enough that the padded last row of each is nothing: a row in 16 MiB of text is 0.03 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, pairwise
from typing import Protocol

from tokenmill.records import InputFile, Part, Unit

MIN_UNIT_BYTES = 16 << 20
MAX_UNIT_BYTES = 1 << 30
UNITS_WANTED = 512
# Opening a file costs about as much as reading this much of one: a unit of tiny files is bounded too.
FILE_COST_BYTES = 16 << 10


def unit_bytes(total: int) -> int:
    """How much a unit should weigh when all inputs together weigh `total`."""
    return min(max(total // UNITS_WANTED, MIN_UNIT_BYTES), MAX_UNIT_BYTES)


class Cutter(Protocol):
    """Who knows how much text a file holds and where it can be cut."""

    def text_bytes(self, file: InputFile) -> int: ...
    def cuts(self, file: InputFile, wanted: int) -> list[int]: ...


def weight(file: InputFile, cutter: Cutter) -> int:
    return cutter.text_bytes(file) + FILE_COST_BYTES


def cut_units(inputs: Iterable[InputFile], target: int, cutter: Cutter) -> Iterator[Unit]:
    """Cut the inputs, in order, into units of about this weight."""
    numbers = count()
    held: list[tuple[Part, InputFile]] = []
    held_weight = 0  # no mutant: the first file sets it

    def unit(parts: list[tuple[Part, InputFile]], size: int) -> Unit:
        return Unit(next(numbers), tuple(p for p, _ in parts), tuple(f for _, f in parts), size)

    def flush() -> Iterator[Unit]:
        if held:
            yield unit(held, sum(f.size for _, f in held))
            held.clear()

    for index, file in enumerate(inputs):
        added = weight(file, cutter)
        ranges = _ranges(index, file, round(added / target), cutter)
        if len(ranges) > 1:
            yield from flush()
            yield from (unit([(part, file)], file.size // len(ranges)) for part in ranges)
            continue
        if held and held_weight + added > target:
            yield from flush()
        held_weight = held_weight + added if held else added
        held.append((ranges[0], file))
    yield from flush()


def _ranges(index: int, file: InputFile, wanted: int, cutter: Cutter) -> list[Part]:
    cuts = cutter.cuts(file, wanted) if wanted >= 2 and not file.problem else []
    if len(cuts) < 3:
        return [Part(index)]
    return [Part(index, start, end) for start, end in pairwise(cuts)]
