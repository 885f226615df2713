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
        is_share = text.endswith("%")
        try:
            number = float(text[:-1]) if is_share else int(text)
        except ValueError:
            # A fraction without quotes can only come from TOML or Python.
            hint = f': write "{value * 100:g}%", in quotes' if isinstance(value, float) and 0 <= value <= 1 else ""
            raise ConfigError(f"{value!r} is neither a count (100) nor a percentage (1%){hint}", name) from None
        if is_share and not 0 <= number <= 100:
            raise ConfigError(f"a percentage must be between 0% and 100%, not {value!r}", name)
        if number < 0:
            raise ConfigError(f"a count must be 0 or more, not {value!r}", name)
        return cls(share=number / 100) if is_share else cls(count=int(number))

    def exceeded(self, rejected: int, records: int, *, final: bool) -> bool:
        if self.count is not None:
            return rejected > self.count
        assert self.share is not None
        return (final or records >= self.MIN_RECORDS) and rejected > self.share * records

    def __str__(self) -> str:
        return str(self.count) if self.share is None else f"{self.share * 100:g}%"
