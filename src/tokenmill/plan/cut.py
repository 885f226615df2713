"""Files become units: small ones together, big ones in ranges where the format allows it.

Units must be many enough to keep 64 workers busy to the end on 52 GB (512 units of 100 MB), and 4 on 300 MB (18
units), yet large enough that the padded last row of each is nothing: a row in 16 MiB of text is 0.03 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, pairwise
from pathlib import Path

from tokenmill.records import Codec, Format, InputFile, Part, Unit

MIN_UNIT_BYTES = 16 << 20
MAX_UNIT_BYTES = 1 << 30
UNITS_WANTED = 512
# Opening a file costs about as much as reading this much of one: a unit of tiny files is bounded too.
FILE_COST_BYTES = 16 << 10

# Rough size of the text in a compressed byte; it only steers how files are grouped.
_EXPANSION = {Codec.PLAIN: 1, Codec.GZIP: 3, Codec.ZSTD: 3, Codec.BZIP2: 4, Codec.XZ: 4}
_PARQUET_EXPANSION = 2


def unit_bytes(total: int) -> int:
    """How much a unit should weigh when all inputs together weigh `total`."""
    return min(max(total // UNITS_WANTED, MIN_UNIT_BYTES), MAX_UNIT_BYTES)


def weight(file: InputFile) -> int:
    factor = _PARQUET_EXPANSION if file.format is Format.PARQUET else _EXPANSION[file.codec]
    return file.size * factor + FILE_COST_BYTES


def cut_units(inputs: Iterable[InputFile], target: int, root: Path) -> Iterator[Unit]:
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
        ranges = list(_ranges(index, file, root, target))
        if len(ranges) > 1:
            yield from flush()
            yield from (unit([(part, file)], file.size // len(ranges)) for part in ranges)
            continue
        if held and held_weight + weight(file) > target:
            yield from flush()
        held_weight = held_weight + weight(file) if held else weight(file)
        held.append((ranges[0], file))
    yield from flush()


def _ranges(index: int, file: InputFile, root: Path, target: int) -> Iterator[Part]:
    wanted = round(weight(file) / target)
    if wanted < 2 or file.problem:
        yield Part(index)
    elif file.format is Format.JSONL and file.codec is Codec.PLAIN:
        cuts = [file.size * i // wanted for i in range(wanted + 1)]
        yield from (Part(index, a, b) for a, b in pairwise(cuts))
    elif file.format is Format.PARQUET:
        # Imported here: pyarrow takes 60 MB and 0.2 s.
        from tokenmill.read.parquet import count_row_groups

        groups = count_row_groups(root / file.name)
        cuts = sorted({groups * i // wanted for i in range(wanted + 1)})
        if len(cuts) < 3:
            yield Part(index)
        else:
            yield from (Part(index, a, b) for a, b in pairwise(cuts))
    else:
        yield Part(index)
