"""What can be found wrong."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong; `unit` is the one to do again, if that fixes it."""

    what: str
    unit: int | None = None


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was checked, and what was found. The first problems are kept, and all are counted."""

    MOST = 1000

    faults: list[Fault] = field(default_factory=list)
    found: int = 0
    units: int = 0
    chunks: int = 0
    rows: int = 0
    tokens: int = 0
    """In the rows, separators included."""
    separators: int | None = 0
    """None if some were dropped with the end of a unit: how many is not written down."""
    documents: int = 0
    compared: int = 0
    """Documents that were compared with their source."""
    uncompared: int = 0
    """Documents that were to be compared, but their source is not there."""
    absent: list[str] = field(default_factory=list)
    """The sources that are not there."""
    source: str = ""
    """Where they were looked for."""

    @property
    def good(self) -> bool:
        """Whether everything that was looked at is right; not if all of the sources that were asked for are absent."""
        return not self.found and not (self.uncompared and not self.compared)

    def add(self, fault: Fault) -> None:
        self.found += 1
        if len(self.faults) < self.MOST:
            self.faults.append(fault)

    def units_to_redo(self) -> list[int]:
        return sorted({f.unit for f in self.faults if f.unit is not None})
