"""Stage 1, plan: what the user named becomes a list of files, and the files become units.

    arguments ─find─> names below one root ─sniff─> InputFile (format, codec, fingerprint) ─cut─> Unit…

A plan depends on the inputs and the configuration only: not on worker count, machine, mount point or time. It lives in
a file, one unit per line, and only as many bytes of it are in memory as there are units under way: a corpus may have
millions of files.
"""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from importlib import import_module

from tokenmill.config import Config
from tokenmill.errors import InputError
from tokenmill.messages import printable
from tokenmill.output.plan_file import Plan, write_plan
from tokenmill.output.spool import Spool
from tokenmill.plan.cut import cut_units, unit_bytes, weight
from tokenmill.plan.find import JOB_FILE, find_files, is_job
from tokenmill.read.sniff import NotAnInputError, inspect
from tokenmill.records import Format, InputFile

log = logging.getLogger("tokenmill")

NAMED_IN_MESSAGE = 5


def make_plan(config: Config) -> Plan:
    """Find, inspect and cut the inputs of a job; say what was left out and what is not what its name says."""
    root, found = find_files(config.inputs, config.output)
    inputs, left_out, odd = Spool(), Spool(), Spool()
    total = 0
    for name, explicit in found:
        try:
            if os.path.basename(name).startswith(".") and not explicit:
                raise NotAnInputError("hidden")
            if os.path.basename(name) == JOB_FILE and is_job(root / name):
                raise NotAnInputError("the output of a job: nothing in that directory is read")
            file, note = inspect(root / name, name)
        except NotAnInputError as error:
            if explicit:
                raise InputError(f"{printable(root / name)}: {error}") from error
            left_out.append((name, str(error)))
            continue
        if file.format is Format.PARQUET:  # no mutant: only speed depends on it
            # 0.2 s that are free here: the tokenizer is being loaded meanwhile.
            import_module("tokenmill.read.parquet")  # no mutant: only speed depends on it
        inputs.append(asdict(file))
        total += weight(file)
        if note:
            odd.append((name, note))
    _warn("left out %d file(s) that are no input: %s", left_out)
    _warn("%d file(s) are not what their name says: %s", odd)
    if not inputs:
        raise InputError(
            f"no input found in {', '.join(map(printable, config.inputs))}: looked for JSON Lines (plain, .gz, .zst, "
            f".bz2, .xz), Parquet and .txt files{'; left out ' + listed(left_out, 1) if left_out else ''}"
        )
    return write_plan(root, cut_units(map(InputFile.from_json, inputs), unit_bytes(total), root), left_out)


def _warn(message: str, entries: Spool) -> None:
    if entries:
        log.warning(message, len(entries), listed(entries))


def listed(entries: Spool, most: int = NAMED_IN_MESSAGE) -> str:
    """The first few of many: "a.md (not JSON Lines); b.md (hidden); and 7 more"."""
    shown = [f"{printable(name)} ({why})" for (name, why), _ in zip(entries, range(most), strict=False)]
    more = len(entries) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
