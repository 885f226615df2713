"""Stage 1, plan: what the user named becomes a list of files, and the files become units.

    arguments ─find─> paths below one root ─sniff─> InputFile (format, codec, fingerprint) ─cut─> Unit…

A plan depends on the inputs and the configuration only: not on worker count, machine, mount point or time.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenmill.config import Config
from tokenmill.errors import InputError
from tokenmill.plan.cut import cut_units
from tokenmill.plan.find import find_files
from tokenmill.plan.sniff import NotAnInputError, inspect
from tokenmill.records import Codec, Format, InputFile, Part, Unit, printable

log = logging.getLogger("tokenmill")

_NAMED_IN_MESSAGE = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """The inputs and the units. `root` is where the inputs lie on this machine and is never written down."""

    root: Path
    inputs: tuple[InputFile, ...]
    units: tuple[Unit, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    """Files below the inputs that are none, and why. Not part of the job: it may change between two runs."""
    first: int = 0
    """The number of the first input: 0, unless this is the excerpt of a plan."""

    def file(self, number: int) -> InputFile:
        return self.inputs[number - self.first]

    def path(self, number: int) -> Path:
        return self.root / self.file(number).name

    def excerpt(self, *units: Unit) -> Plan:
        """What a worker must know to run these units, which may be little of a plan of 100,000 files."""
        numbers = [p.file for u in units for p in u.parts] or [0]
        first, last = min(numbers), max(numbers)
        return Plan(self.root, self.inputs[first : last + 1] if units else (), units, first=first)

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": [asdict(i) for i in self.inputs],
            "units": [{"size": u.size, "parts": [[p.file, p.start, p.end] for p in u.parts]} for u in self.units],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], root: Path) -> Plan:
        inputs = (InputFile(**{**i, "format": Format(i["format"]), "codec": Codec(i["codec"])}) for i in data["inputs"])
        units = (Unit(n, tuple(Part(*p) for p in u["parts"]), u["size"]) for n, u in enumerate(data["units"]))
        return cls(root, tuple(inputs), tuple(units))

    def with_input(self, file: int, found: InputFile) -> Plan:
        """The same units over an input that could not be read before."""
        inputs = tuple(found if n == file else i for n, i in enumerate(self.inputs))
        holds = (any(p.file == file for p in u.parts) for u in self.units)
        units = (replace(u, size=u.size + found.size) if h else u for u, h in zip(self.units, holds, strict=True))
        return replace(self, inputs=inputs, units=tuple(units))


def make_plan(config: Config) -> Plan:
    """Find, inspect and cut the inputs of a job; say what was left out and what is not what its name says."""
    root, found = find_files(config.inputs, config.output)
    inputs: list[InputFile] = []
    left_out: dict[str, str] = {}
    odd: list[str] = []
    for name, explicit in found:
        try:
            if Path(name).name.startswith(".") and not explicit:
                raise NotAnInputError("hidden")
            file, note = inspect(root / name, name)
        except NotAnInputError as error:
            if explicit:
                raise InputError(f"{printable(root / name)}: {error}") from error
            left_out[name] = str(error)
            continue
        inputs.append(file)
        if note:
            odd.append(f"{printable(name)}: {note}")
    refused = [f"{printable(name)} ({why})" for name, why in left_out.items()]
    _warn("left out %d file(s) that are no input: %s", refused)
    _warn("%d file(s) are not what their name says: %s", odd)
    if not inputs:
        raise InputError(
            f"no input found in {', '.join(map(printable, config.inputs))}: looked for JSON Lines (plain, .gz, .zst, "
            f".bz2, .xz), Parquet and .txt files{'; left out ' + refused[0] if refused else ''}"
        )
    return Plan(root, tuple(inputs), cut_units(inputs, root), left_out)


def _warn(message: str, entries: list[str]) -> None:
    if entries:
        more = len(entries) - _NAMED_IN_MESSAGE
        names = "; ".join(entries[:_NAMED_IN_MESSAGE]) + (f"; and {more} more" if more > 0 else "")
        log.warning(message, len(entries), names)
