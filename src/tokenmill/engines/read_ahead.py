"""Has the kernel read the next files into its cache, so that nobody who encodes need wait for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from itertools import islice

from tokenmill.job.prepare import Job
from tokenmill.records import Format, InputFile, Part

WISH_BYTES = 2 << 20


class ReadAhead:
    """Asks for the files of the units that come next; `--prefetch-files` of them, as far as the budget allows."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._asked: set[Part] = set()

    def read(self, queue: Iterable[int]) -> None:
        most, each = self._job.config.prefetch_files, self._job.budget.read_ahead
        units = (self._job.plan.unit(n) for n in queue)
        ahead = list(islice(((p, f) for u in units for p, f in zip(u.parts, u.files, strict=True)), most))
        for part, file in ahead:
            if part not in self._asked:
                self._advise(part, file, each)
        self._asked = {part for part, _ in ahead}

    def _advise(self, part: Part, file: InputFile, most: int) -> None:
        start, end = part.start, part.end
        if end is None or file.format is Format.PARQUET:  # whose parts are counted in row groups
            start, end = 0, file.size
        end = min(end, start + most)
        with contextlib.suppress(OSError, AttributeError):  # a hint, which not every system takes
            handle = os.open(self._job.plan.root / file.name, os.O_RDONLY)
            try:
                # The kernel takes only a few megabytes of a wish at a time.
                for offset in range(start, end, WISH_BYTES):
                    os.posix_fadvise(handle, offset, min(WISH_BYTES, end - offset), os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)
