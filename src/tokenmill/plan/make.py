"""The plan of a job: find the files, look at each once, cut them into units.

A plan depends on the inputs and the configuration only: not on worker count, machine, mount point or time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenmill.errors import ConfigError, InputError
from tokenmill.messages import NAMED_IN_MESSAGE, counted, first_few, near, printable
from tokenmill.output import layout
from tokenmill.output.plan_file import Plan, Skipped
from tokenmill.output.schema import decode, to_line
from tokenmill.output.spool import Spool
from tokenmill.output.store import is_job
from tokenmill.plan.cut import Cutter, cut_units, unit_bytes, weight
from tokenmill.plan.find import find_files
from tokenmill.plan.side_files import is_cache, is_never_data, is_note
from tokenmill.records import AbsentField, InputFile, Inspected
from tokenmill.storage.base import Reading

log = logging.getLogger("tokenmill")

FIELDS_IN_MESSAGE = 12
NOTE = "a description of the data beside it"
SAME_FILE = "another name of a file that is read already"
SIDE_FILE = "written beside data, and none itself"
QUIET = (NOTE, SIDE_FILE)


class Inspector(Cutter, Protocol):
    """Who knows the formats of the inputs."""

    def inspect(self, name: str) -> Inspected: ...


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, where its inputs lie on this machine, and what was skipped there."""

    plan: Plan
    inputs: Reading
    skipped: Skipped


def make_plan(arguments: Sequence[str], output: Path, open_corpus: Callable[[Reading], Inspector]) -> Planned:
    """Find, inspect and cut the inputs of a job; say what was skipped and what is not what its name says."""
    inputs, names = find_files(arguments, output)
    corpus = open_corpus(inputs)
    files, skipped, odd = Spool(), Skipped(), Skipped()
    links: dict[str, str] = {}
    total = 0
    for entry in names:
        name, explicit = os.fsdecode(entry.name), entry.explicit
        found = _inspect(inputs, corpus, name, explicit)
        if found.file is None:
            if explicit:
                raise InputError(f"{inputs.describe(name)}: {found.remark}")
            skipped.append(name, str(found.remark), looks_like_data=found.looks_like_data)
            continue
        if found.absent:
            raise _wrong_field(inputs.describe(name), found.file, found.absent)
        files.append(to_line(found.file))
        total += weight(found.file, corpus)
        if entry.real is not None:
            links[name] = entry.real
        if found.remark:
            odd.append(name, found.remark)
    if links:
        files = _each_once(files, links, os.path.realpath(inputs.location), skipped)
        total = sum(weight(decode(line, InputFile), corpus) for line in files)
    _tell(skipped, odd)
    if not files:
        raise _nothing_found(arguments, skipped)
    inspected = (decode(line, InputFile) for line in files)
    return Planned(Plan.of(cut_units(inspected, unit_bytes(total), corpus)), inputs, skipped)


def _each_once(files: Spool, links: Mapping[str, str], root: str, skipped: Skipped) -> Spool:
    """The files without those that were there before by another name.

    Only now, when it is known which of its names a file can be read by: "letter.txt" is text, but what it links to may
    be called anything.
    """
    linked = set(links.values())
    seen: set[str] = set()
    kept = Spool()
    for line in files:
        name = decode(line, InputFile).name
        real = links.get(name) or os.path.join(root, name)
        if real in seen:
            skipped.append(name, SAME_FILE)
            continue
        if real in linked:
            seen.add(real)
        kept.append(line.decode("ascii"))
    return kept


def _tell(skipped: Skipped, odd: Skipped) -> None:
    """Say what is skipped, loudly what may be missed and not at all what belongs there, and what is not as it seems."""
    data, notes, same, others = Skipped(), Skipped(), Skipped(), Skipped()
    quiet = dict.fromkeys(QUIET, notes) | {SAME_FILE: same}
    for entry in skipped:
        which = data if entry.looks_like_data else quiet.get(entry.why, others)
        which.append(entry.name, entry.why)
    if data:
        what = counted(
            len(data), "file that looks like data but cannot be read", "files that look like data but cannot be read"
        )
        log.warning("skipped %s: %s", what, listed(data))
    if others:
        log.warning("skipped %s: %s", counted(len(others), "file"), listed(others))
    if same:
        log.info("skipped %s: %s", counted(len(same), "duplicate"), listed(same))
    if notes:
        log.debug("skipped %s beside the data: %s", counted(len(notes), "known file"), listed(notes))
    if odd:
        what = counted(len(odd), "file is not what its name says", "files are not what their names say")
        log.warning("%s: %s", what, listed(odd))


def _inspect(inputs: Reading, corpus: Inspector, name: str, explicit: bool) -> Inspected:
    base = os.path.basename(name)
    if is_never_data(name) and not explicit:
        return Inspected(None, SIDE_FILE)
    if base.startswith(".") and not explicit:
        return Inspected(None, "hidden")
    if base == layout.JOB and is_job(inputs, name):
        return Inspected(None, "the output of a job: nothing in that directory is read")
    if is_cache(name) and not explicit:
        return Inspected(None, "made by Hugging Face datasets from other files: to read it, name it")
    found = corpus.inspect(name)
    # The name alone is not enough: somebody may call data so.
    if (found.file is None or found.absent) and not explicit and is_note(inputs, name):
        return Inspected(None, NOTE)
    return found


def _wrong_field(where: str, file: InputFile, absent: AbsentField) -> ConfigError:
    known = ", ".join(map(printable, absent.known[:FIELDS_IN_MESSAGE]))
    if (more := len(absent.known) - FIELDS_IN_MESSAGE) > 0:
        known += f" and {more:,} more"
    field = repr(absent.field)
    if file.format.has_rows:
        what, noun = f"there is no column {field} in {where}", "columns"
    else:
        what, noun = f"no record at the beginning of {where} has the field {field}", "fields"
    if known:
        meant = near(absent.field, absent.known)
        hint = f"Did you mean {printable(meant)!r}? " if meant else ""
        advice = f"{hint}The {noun} are: {known}. Choose one of these, or leave the file out of the inputs"
    else:
        advice = f"There are no {noun} at all: leave the file out of the inputs"
    return ConfigError(f"{what}. {advice}", absent.option)


def _nothing_found(arguments: Iterable[str], skipped: Skipped) -> InputError:
    return InputError(
        f"no input found in {', '.join(map(printable, arguments))}: looked for JSON Lines (plain, .gz, .zst, .bz2, "
        f".xz), Parquet, Arrow and .txt files{'; skipped ' + listed(skipped, 1) if skipped else ''}"
    )


def listed(entries: Skipped, most: int = NAMED_IN_MESSAGE) -> str:
    """The first few of many."""
    return first_few(((entry.name, entry.why) for entry in entries), most)
