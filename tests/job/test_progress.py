"""Counting while a job runs: files, whole or in pieces."""

from __future__ import annotations

from tokenmill.job.progress import Meter
from tokenmill.records import Codec, Format, InputFile, Part, Unit

PIECES = [(Part(0), Part(1)), (Part(2, 0, 50),), (Part(2, 50),), (Part(3),)]


def test_files_count_as_done_when_all_their_pieces_are() -> None:
    whole = InputFile(name="a", size=1, fingerprint="", format=Format.TEXT, codec=Codec.PLAIN)
    units = [Unit(n, parts, (whole,) * len(parts), 1) for n, parts in enumerate(PIECES)]
    meter = Meter(total_bytes=4, total_files=4, done_files=4)
    for unit in units[:3]:
        meter.expect(unit)
    assert meter.done_files == 1
    done = []
    for number in (2, 0, 1):  # the second piece before the first
        meter.finish(units[number])
        done.append(meter.done_files)
    assert done == [1, 3, 4]
