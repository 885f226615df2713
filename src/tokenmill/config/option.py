"""An option is declared once, as a field of a group: its checks, help, TOML key and documentation come from that.

seq_len: int = option(2048, WholeNumber(), Heading.CONTENT, "tokens per row")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from tokenmill.config.kinds import Kind

T = TypeVar("T")


class Heading(StrEnum):
    """The parts of `tokenmill run --help` and of docs/options.md, in their order."""

    PLACES = "input and output"
    CONTENT = "content (changes the output)"
    RUN = "how to run (does not change the output)"
    ACTIONS = "one-off actions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """All that is known of an option."""

    name: str
    default: Any
    kind: Kind
    heading: Heading
    help: str
    flag: str
    keys: tuple[str, ...] = ()
    """What it may also be called in a TOML file."""
    default_text: str = ""
    """In place of a default that only the tokenizer or the machine knows."""

    @property
    def shown_default(self) -> str:
        """The default as users write it; "" where there is none to speak of."""
        known = self.default is not None and self.default is not MISSING
        return self.kind.show(self.default) if known else self.default_text

    def check(self, value: Any) -> Any:
        """The value as the configuration keeps it. None is a value only where it is the default."""
        return None if value is None and self.default is None else self.kind.check(value, self.name)


def option(default: T, kind: Kind, heading: Heading, help: str, **more: Any) -> T:
    """A field of a group that is an option; more: default_text, flag, keys."""
    return field(default=default, metadata=described(kind, heading, help, **more))


def described(kind: Kind, heading: Heading, help: str, **more: Any) -> Mapping[str, Any]:
    """The metadata of a field that is an option; by itself for one that has no default."""
    return {"kind": kind, "heading": heading, "help": help, **more}


@dataclass(frozen=True, kw_only=True)
class OptionGroup:
    """Options that are checked when the group is built."""

    def __post_init__(self) -> None:
        for declared in options_of(type(self)):
            self._set(declared.name, declared.check(getattr(self, declared.name)))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def options_of(group: type[OptionGroup]) -> tuple[Option, ...]:
    """The options that a group declares, in the order of the headings."""
    options = [_option(f.name, f.default, f.metadata) for f in fields(group)]
    return tuple(sorted(options, key=lambda o: list(Heading).index(o.heading)))


def _option(name: str, default: Any, metadata: Mapping[str, Any]) -> Option:
    return Option(**{"name": name, "default": default, "flag": f"--{name.replace('_', '-')}"} | dict(metadata))
