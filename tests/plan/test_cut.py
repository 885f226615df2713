"""How a corpus is cut into units: small files together, big ones in ranges where their format allows it."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SmallUnits
from tokenmill.plan import cut
from tokenmill.plan.cut import cut_units, unit_bytes, weight
from tokenmill.read.corpus import Corpus
from tokenmill.records import Codec, Format, InputFile, Part, Unit
from tokenmill.storage.memory import MemoryStorage

NOISE = random.Random(1).randbytes(50_000)
CORPUS = Corpus(MemoryStorage())


def file(name: str, size: int, codec: Codec = Codec.PLAIN, format_: Format = Format.JSONL) -> InputFile:
    return InputFile(name=name, size=size, fingerprint="f", format=format_, codec=codec)


def cut_all(*files: InputFile, corpus: Corpus = CORPUS) -> list[Unit]:
    return list(cut_units(files, unit_bytes(sum(weight(f, corpus) for f in files)), corpus))


def spans(*files: InputFile) -> list[list[tuple[int, int, int | None]]]:
    return [[(p.file, p.start, p.end) for p in unit.parts] for unit in cut_all(*files)]


def test_how_a_corpus_is_cut_is_part_of_the_format() -> None:
    """Other units are other bytes: these numbers stay as they are."""
    assert unit_bytes(0) == unit_bytes(512 * 16_777_216) == 16_777_216
    assert unit_bytes(512 * 20_000_000) == 20_000_000
    assert unit_bytes(512 << 30) == unit_bytes(1 << 50) == 1 << 30
    plain = {codec: weight(file("a", 1000, codec), CORPUS) - 16_384 for codec in Codec}
    assert plain == {Codec.PLAIN: 1000, Codec.GZIP: 3000, Codec.ZSTD: 3000, Codec.BZIP2: 4000, Codec.XZ: 4000}
    assert weight(file("a", 1000, format_=Format.PARQUET), CORPUS) - 16_384 == 2000


def test_consecutive_small_files_share_a_unit() -> None:
    assert spans(*(file(f"{n}", 1000) for n in range(5))) == [[(n, 0, None) for n in range(5)]]


def test_every_unit_is_filled_with_files_up_to_the_same_weight() -> None:
    files = [file(f"{n}", 1000) for n in range(7)]
    units = cut_units(files, 3 * weight(files[0], CORPUS), CORPUS)
    assert [[p.file for p in u.parts] for u in units] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_unit_knows_its_number_its_files_and_its_size() -> None:
    files = [file("a", 1000), file("b", 100 << 20, Codec.GZIP), file("c", 5), file("d", 7)]
    units = cut_all(*files)
    assert [u.index for u in units] == [0, 1, 2]
    assert [[f.name for f in u.files] for u in units] == [["a"], ["b"], ["c", "d"]]
    assert [u.size for u in units] == [1000, 100 << 20, 12]


def test_a_big_plain_file_is_cut_into_ranges_that_cover_it() -> None:
    size = 100 << 20
    units = cut_all(file("a", size))
    parts = [part for unit in units for part in unit.parts]
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == size
    assert len(parts) == len(units) == round(size / cut.MIN_UNIT_BYTES)
    assert {u.size for u in units} == {size // len(units)}


def test_a_plain_file_of_two_units_is_cut_in_two() -> None:
    half = 16 << 20
    assert spans(file("a", 2 * half)) == [[(0, 0, half)], [(0, half, 2 * half)]]


def test_a_file_that_is_cut_shares_no_unit_with_its_neighbours() -> None:
    half = 16 << 20
    cut_in_two = [[(1, 0, half)], [(1, half, 2 * half)]]
    assert spans(file("a", 1), file("b", 2 * half), file("c", 1)) == [[(0, 0, None)], *cut_in_two, [(2, 0, None)]]


def test_a_big_compressed_file_stays_whole_and_alone() -> None:
    small, big = file("a", 10), file("b", 100 << 20, Codec.GZIP)
    assert spans(small, big, small) == [[(0, 0, None)], [(1, 0, None)], [(2, 0, None)]]


def test_a_file_that_could_not_be_read_is_not_cut() -> None:
    """Nobody knows where it could be."""
    unread = InputFile(
        name="a", size=100 << 20, fingerprint="", format=Format.JSONL, codec=Codec.PLAIN, problem="No such file"
    )
    assert spans(unread) == [[(0, 0, None)]]


@pytest.mark.parametrize(
    ("count", "size", "codec", "units"),
    [
        (200, 260 << 20, Codec.PLAIN, 400),  # FinPile: 52 GB in 200 files must keep 64 workers busy to the end
        (200, 80 << 20, Codec.GZIP, 200),
        (16, 20 << 20, Codec.PLAIN, 16),  # 300 MB must keep 4 busy
        (1, 300 << 20, Codec.PLAIN, 16),
        (4000, 100_000, Codec.PLAIN, 12),
    ],
)
def test_there_are_enough_units_to_share(count: int, size: int, codec: Codec, units: int) -> None:
    assert len(cut_all(*(file(f"{n}", size, codec) for n in range(count)))) >= units


def parquet_units(texts: list[str], group_rows: int) -> list[tuple[Part, ...]]:
    held = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), held, row_group_size=group_rows)
    corpus = Corpus(MemoryStorage({"a.parquet": held.getvalue()}))
    found = corpus.inspect("a.parquet").file
    assert found is not None
    assert found.size > 5000
    return [unit.parts for unit in cut_all(found, corpus=corpus)]


def test_a_big_parquet_file_is_cut_by_row_groups(small_units: SmallUnits) -> None:
    small_units(20_000)
    rows = [NOISE[n : n + 50].hex() for n in range(0, 50_000, 50)]
    parts = [part for unit in parquet_units(rows, 100) for part in unit]
    assert len(parts) > 3
    assert [p.start for p in parts] == [0, *(p.end for p in parts[:-1])]
    assert parts[-1].end == 10


def test_a_parquet_file_of_one_row_group_stays_whole_however_big(small_units: SmallUnits) -> None:
    small_units(1000)
    assert parquet_units([str(n) * 50 for n in range(1000)], 1000) == [(Part(0),)]


def test_a_parquet_file_of_two_row_groups_is_cut_in_two(small_units: SmallUnits) -> None:
    small_units(1000)
    assert parquet_units([str(n) * 50 for n in range(1000)], 500) == [(Part(0, 0, 1),), (Part(0, 1, 2),)]
