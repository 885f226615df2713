"""Python processes that tests start."""

from __future__ import annotations

import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]

# Not ru_maxrss, which a process inherits from the one that started it.
PEAK_MEMORY = 'next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmHWM"))'
"""An expression: the most bytes of memory that the process has had."""


def python(*arguments: object) -> list[str]:
    """The command for the Python of these tests."""
    return [sys.executable, *map(str, arguments)]
