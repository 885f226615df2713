"""The kinds of value that options take: each checks what it is given and converts it to what the configuration keeps.

    Size().check("4GB", "max_memory") -> 4000000000
    WholeNumber().check("2048", "seq_len") -> ConfigError: seq_len: must be a whole number of at least 1, not '2048'

Values come from Python or TOML with their types; the command line turns its text into the same types first.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.config.choices import Eos
from tokenmill.config.places import Use, local_path
from tokenmill.config.reject_limit import RejectLimit
from tokenmill.errors import ConfigError
from tokenmill.messages import nearest


class Kind(ABC):
    """What values an option takes. `metavar` stands for one in the help."""

    metavar: str = ""

    @abstractmethod
    def check(self, value: Any, name: str) -> Any:
        """The value as the configuration keeps it, or a ConfigError about the option of that name."""

    def show(self, value: Any) -> str:
        """A value as users write it."""
        return str(value)


class Text(Kind):
    """Any text, but not none at all."""

    metavar = "NAME"

    def check(self, value: Any, name: str) -> Any:
        if not isinstance(value, str) or not value:
            raise ConfigError(f"must be a non-empty string, not {value!r}", name)
        return value


class FieldName(Text):
    """A field of a record, with dots for nested ones: meta.text."""

    metavar = "FIELD"

    def check(self, value: Any, name: str) -> Any:
        if "" in super().check(value, name).split("."):
            raise ConfigError(f"{value!r} has an empty part: write e.g. meta.text", name)
        return value


class TokenizerName(Text):
    """The name of a tokenizer, or a path to one."""

    def check(self, value: Any, name: str) -> Any:
        return local_path(super().check(value, name), Use.TOKENIZER)


class Token(Text):
    """A special token of the tokenizer, which need not be known yet."""

    metavar = "TOKEN"


class EosToken(Token):
    """A special token, or Eos.OFF."""

    def check(self, value: Any, name: str) -> Any:
        return value if isinstance(value, Eos) else super().check(value, name)


@dataclass(frozen=True)
class WholeNumber(Kind):
    """A whole number between two others."""

    metavar = "N"

    least: int = 1
    most: int | None = None

    def check(self, value: Any, name: str) -> Any:
        # To Python, True is 1.
        if isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            raise ConfigError(f"must be a whole number of at least {self.least}, not {value!r}", name)
        if self.most is not None and value > self.most:
            raise ConfigError(f"must be at most {self.most:,}, not {value:,}", name)
        return value


class Size(Kind):
    """A number of bytes, or a text such as 256MiB."""

    metavar = "SIZE"

    def check(self, value: Any, name: str) -> Any:
        size = parse_size(value, name)
        if size < 1:
            raise ConfigError(f"must be at least one byte, not {value!r}", name)
        return size

    def show(self, value: Any) -> str:
        return f"{value >> 20}MiB" if value % (1 << 20) == 0 else str(value)


@dataclass(frozen=True)
class Choice(Kind):
    """One of some names, which may be the members of a StrEnum."""

    values: tuple[str, ...]
    noun: str = "choice"

    def check(self, value: Any, name: str) -> Any:
        for known in self.values:
            if known == str(value):
                return known
        names = list(map(str, self.values))
        raise ConfigError(f"there is no {self.noun} {value!r}{nearest(str(value), names)}", name)


class Flag(Kind):
    """On or off."""

    def check(self, value: Any, name: str) -> Any:
        if not isinstance(value, bool):
            raise ConfigError(f"must be true or false, not {value!r}", name)
        return value

    def show(self, value: Any) -> str:
        return "on" if value else ""


class UnitNumbers(Kind):
    """Numbers of units, as a list or as a text such as 7,12."""

    metavar = "UNITS"

    def check(self, value: Any, name: str) -> Any:
        items = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        try:
            return tuple(sorted({int(str(i)) for i in items}))
        except ValueError:
            raise ConfigError(f"expected unit numbers such as 7,12, got {value!r}", name) from None

    def show(self, value: Any) -> str:
        return ",".join(map(str, value))


class RejectLimitValue(Kind):
    """A count, or a percentage."""

    metavar = "N|P%"

    def check(self, value: Any, name: str) -> Any:
        return RejectLimit.parse(value, name)


class Paths(Kind):
    """Files, directories and globs; one of them need not be in a list."""

    metavar = "PATH"

    def check(self, value: Any, name: str) -> Any:
        try:
            paths = [value] if isinstance(value, str | os.PathLike) else [os.fspath(i) for i in value]
        except TypeError:
            raise ConfigError(f"must be a path or a list of paths, not {value!r}", name) from None
        if not paths:
            raise ConfigError("no input given: name files, directories or globs to read")
        return tuple(local_path(path, Use.INPUT) for path in paths)


class Directory(Kind):
    """A directory, which need not be there yet."""

    metavar = "DIR"

    def check(self, value: Any, name: str) -> Any:
        try:
            return Path(local_path(value, Use.OUTPUT))
        except TypeError:
            raise ConfigError(f"must be a path, not {value!r}", name) from None


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}


def parse_size(value: object, name: str = "size") -> int:
    """Bytes from a number or a text: parse_size("256MiB") -> 268435456, parse_size("4GB") -> 4000000000."""
    match = re.fullmatch(r"(\d{1,99}(?:\.\d{1,99})?)\s*([kmgt]?)(i?)b?", str(value).strip().lower())
    if isinstance(value, bool) or not match or (match[3] and not match[2]):
        raise ConfigError(f"{value!r} is not a size: write 1000000, 256MiB or 4GB", name)
    base = _UNITS[match[2]]
    if match[3]:
        base = 1024 ** (len(str(base)) // 3)
    whole, _, fraction = match[1].partition(".")
    size: int = int(whole + fraction) * base // 10 ** len(fraction)
    return size
