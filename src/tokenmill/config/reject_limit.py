"""How many rejected records are too many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tokenmill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many rejects are tolerated: a count, or a share of the records read.

    RejectLimit.parse("1%") -> share 0.01; RejectLimit.parse(100) -> count 100
    """

    count: int | None = None
    share: float | None = None

    # A share says little about the first few records: it is judged while running only from here on.
    MIN_RECORDS = 10_000

    @classmethod
    def parse(cls, value: object, name: str = "max_rejects") -> Self:
        if isinstance(value, cls):
            return value
        text = str(value).strip()
        try:
            if text.endswith("%"):
                share = float(text[:-1]) / 100
                if 0 <= share <= 1:
                    return cls(share=share)
            elif int(text) >= 0:
                return cls(count=int(text))
        except ValueError:
            pass
        raise ConfigError(f"{value!r} is neither a count (100) nor a percentage (1%)", name)

    def exceeded(self, rejected: int, records: int, *, final: bool) -> bool:
        if self.count is not None:
            return rejected > self.count
        assert self.share is not None
        return (final or records >= self.MIN_RECORDS) and rejected > self.share * records

    def __str__(self) -> str:
        return str(self.count) if self.share is None else f"{self.share * 100:g}%"
