"""Read-ahead: which ranges of which files are asked for, each once."""

from __future__ import annotations

import pytest

from tokenmill.engines.read_ahead import ReadAhead
from tokenmill.records import Codec, Format, InputFile, Part, Unit
from tokenmill.storage.memory import MemoryStorage


class Requests(MemoryStorage):
    """Whoever is asked to read ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[str, int, int]] = []

    def prefetch(self, name: str, start: int, end: int) -> None:
        self.all.append((name, start, end))


def unit(index: int, *parts: Part, kind: Format = Format.JSONL) -> Unit:
    names = (f"{part.file}.{kind}" for part in parts)
    files = tuple(InputFile(name=n, size=1000, fingerprint="", format=kind, codec=Codec.PLAIN) for n in names)
    return Unit(index, parts, files, 1000)


def test_the_next_files_are_asked_for_each_once() -> None:
    requests = Requests()
    ahead = ReadAhead(requests, files=2, file_bytes=5000)
    units = [unit(n, Part(n)) for n in range(4)]
    ahead.read(units)
    assert requests.all == [("0.jsonl", 0, 1000), ("1.jsonl", 0, 1000)]
    ahead.read(units[1:])
    ahead.read(units[3:])
    assert requests.all[2:] == [("2.jsonl", 0, 1000), ("3.jsonl", 0, 1000)]


def test_no_more_is_asked_for_than_there_is_memory_for() -> None:
    requests = Requests()
    ReadAhead(requests, files=3, file_bytes=100).read([unit(0, Part(0), Part(1, 300, 900), Part(2, 300, 350))])
    assert requests.all == [("0.jsonl", 0, 100), ("1.jsonl", 300, 400), ("2.jsonl", 300, 350)]


@pytest.mark.parametrize("kind", [Format.PARQUET, Format.ARROW])
def test_a_part_of_a_table_is_not_counted_in_bytes_so_the_file_is_asked_for(kind: Format) -> None:
    requests = Requests()
    ReadAhead(requests, files=1, file_bytes=5000).read([unit(0, Part(0, 2, 4), kind=kind)])
    assert requests.all == [(f"0.{kind}", 0, 1000)]


def test_units_beyond_the_next_files_are_not_even_looked_at() -> None:
    upcoming = iter([unit(n, Part(n)) for n in range(3)])
    ReadAhead(Requests(), files=1, file_bytes=1).read(upcoming)
    assert next(upcoming).index == 1
