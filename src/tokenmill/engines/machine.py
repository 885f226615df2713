"""What this machine has, and what this process uses of it."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from tokenmill.storage.local import open_files_error


def current_memory() -> int:
    """Resident bytes of this process now, or at its peak where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_memory()


def peak_memory() -> int:
    """The most that this process has ever had in memory."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass
    # Where there is no better figure: it is inherited from the process that started this one, if that was larger.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def allow_open_files(count: int) -> None:
    """See to it that so many more files can be opened, as far as the system lets us; OpenFilesError if it does not.

    A library that runs out of them in the middle of something may say so in its own words, or not at all.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _open_files() + count
    if limit in (wanted, resource.RLIM_INFINITY) or wanted < limit:
        return
    if most in (wanted, resource.RLIM_INFINITY) or wanted < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    else:
        raise open_files_error()


def _open_files() -> int:
    """How many this process has open; about as many as it has at first where the system does not say."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 16


def default_workers() -> int:
    """80 % of the cores that this process may use, at least one."""
    return max(1, round(0.8 * available_cores()))


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory(proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int:
    """What the machine has, or the control group that this process is in, if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *_cgroup_limits(proc, mount)])


def _cgroup_limits(proc: Path, mount: Path) -> list[int]:
    """The limits of this process's control group and of all above it, in either version of control groups."""
    found = []
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        top, name = (mount, "memory.max") if not controllers else (mount / "memory", "memory.limit_in_bytes")
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder == top.parent:
                break
            try:
                found.append(int((folder / name).read_text()))
            except (OSError, ValueError):
                continue  # no limit here, which version 2 writes as "max"
    return found
