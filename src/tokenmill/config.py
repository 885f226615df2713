"""The one configuration object: frozen, validated when built, passed whole.

It comes from keyword arguments (`Config(inputs=["corpus"], output="tokens")`) or from a TOML file under overrides
(`load_config`), which is what the command line uses.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar

from tokenmill.errors import ConfigError
from tokenmill.messages import nearest

DEFAULT_TOKENIZER = "gpt-neox-20b"
MAX_SEQ_LEN = 1 << 24
ENGINES = ("enhanced", "streaming", "ultra", "extreme")
AUTO = "auto"


class Tail(StrEnum):
    """What becomes of the last, partial row of a unit."""

    PAD = "pad"
    DROP = "drop"


class SpecialTokens(StrEnum):
    """What a special token written literally in a text is: text, the token, or a reason to reject the record."""

    PLAIN = "plain"
    MATCH = "match"
    REJECT = "reject"


class EncoderChoice(StrEnum):
    """Which library encodes."""

    AUTO = "auto"
    FASTOKENS = "fastokens"
    HUGGINGFACE = "huggingface"


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
    def parse(cls, value: object) -> Self:
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
        raise ConfigError(f"max_rejects: {value!r} is neither a count (100) nor a percentage (1%)")

    def exceeded(self, rejected: int, records: int, *, final: bool) -> bool:
        if self.count is not None:
            return rejected > self.count
        assert self.share is not None
        return (final or records >= self.MIN_RECORDS) and rejected > self.share * records

    def __str__(self) -> str:
        return str(self.count) if self.share is None else f"{self.share * 100:g}%"


@dataclass(frozen=True, kw_only=True)
class Config:
    """A job: what to read, how to tokenize and pack it, where to write."""

    inputs: tuple[str, ...]
    output: Path
    text_field: str = "text"
    id_field: str | None = None
    tokenizer: str = DEFAULT_TOKENIZER
    encoder: EncoderChoice = EncoderChoice.AUTO
    special_tokens_in_text: SpecialTokens = SpecialTokens.PLAIN
    eos_token: str | None = None
    bos_token: str | None = None
    no_eos: bool = False
    seq_len: int = 2048
    sequences_per_chunk: int = 50_000
    tail: Tail = Tail.PAD
    max_document_bytes: int = 256 << 20
    max_rejects: RejectLimit = RejectLimit(share=0.01)
    engine: str = AUTO
    num_workers: int | None = None
    batch_size: int = 100
    prefetch_files: int = 4
    max_memory: int | None = None
    redo: tuple[int, ...] = ()
    overwrite: bool = False

    def __post_init__(self) -> None:
        inputs = [self.inputs] if isinstance(self.inputs, str | os.PathLike) else self.inputs
        try:
            self._set("inputs", tuple(os.fspath(i) for i in inputs))
            self._set("output", Path(self.output))
        except TypeError:
            raise ConfigError(f"inputs and output must be paths, not {self.inputs!r} and {self.output!r}") from None
        self._set("encoder", _choice(EncoderChoice, "encoder", self.encoder))
        self._set("tail", _choice(Tail, "tail", self.tail))
        self._set(
            "special_tokens_in_text",
            _choice(SpecialTokens, "special_tokens_in_text", self.special_tokens_in_text),
        )
        self._set("max_rejects", RejectLimit.parse(self.max_rejects))
        self._set("max_document_bytes", parse_size(self.max_document_bytes, "max_document_bytes"))
        self._set("redo", _numbers("redo", self.redo))
        if self.max_memory is not None:
            self._set("max_memory", parse_size(self.max_memory, "max_memory"))
        self._check()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check(self) -> None:
        if not self.inputs:
            raise ConfigError("no input given: name files, directories or globs to read")
        ahead = self.prefetch_files
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise ConfigError(f"prefetch_files: must be a whole number, 0 or more, not {ahead!r}")
        for name in ("seq_len", "sequences_per_chunk", "batch_size", "num_workers", "max_document_bytes", "max_memory"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name}: must be a whole number of at least 1, not {value!r}")
        if self.seq_len > MAX_SEQ_LEN:
            raise ConfigError(f"seq_len: {self.seq_len:,} is more than {MAX_SEQ_LEN:,}, the longest row supported")
        for name in ("text_field", "id_field", "tokenizer", "eos_token", "bos_token", "engine"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigError(f"{name}: must be a non-empty string, not {value!r}")
        for name in ("no_eos", "overwrite"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}: must be true or false, not {getattr(self, name)!r}")
        for name in ("text_field", "id_field"):
            if "" in (getattr(self, name) or "x").split("."):
                raise ConfigError(f"{name}: {getattr(self, name)!r} has an empty part: write e.g. meta.text")
        fields_ = [f"{self.text_field}.", f"{self.id_field}."]
        if fields_[0].startswith(fields_[1]) or fields_[1].startswith(fields_[0]):
            raise ConfigError(f"text_field {self.text_field!r} and id_field {self.id_field!r}: one holds the other")
        if self.engine not in (*ENGINES, AUTO):
            raise ConfigError(f"engine: there is no engine {self.engine!r}{nearest(self.engine, (*ENGINES, AUTO))}")
        if self.no_eos and self.eos_token:
            raise ConfigError("eos_token and no_eos contradict each other: give one of them")


E = TypeVar("E", bound=StrEnum)


def resume_hint(config: Config) -> str:
    """How to go on after an interruption or an error."""
    options = " and ".join(
        name for name, given in (("--overwrite", config.overwrite), ("--redo", config.redo)) if given
    )
    return "run the same command again" + (f", without {options}," if options else "")


OPTION_NAMES = tuple(f.name for f in fields(Config))


def load_config(overrides: Mapping[str, Any], toml: Path | None = None) -> Config:
    """Build a Config from a TOML file, if any, under the given overrides.

    load_config({"seq_len": 1024}, Path("job.toml")) -> the file's job with rows of 1,024 tokens
    """
    values = _read_toml(toml) if toml else {}
    for chosen, other in (("eos_token", "no_eos"), ("no_eos", "eos_token")):
        if chosen in overrides:
            values.pop(other, None)  # the command line wins over what contradicts it, too
    values.update(overrides)
    for name, option in (("inputs", "--input-dir"), ("output", "--output-dir")):
        if not values.get(name):
            raise ConfigError(f"no {name} given: tokenmill run INPUT... OUTPUT, or {option}")
    return Config(**values)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    values = {}
    for key, value in table.items():
        name = {"input_dir": "inputs", "output_dir": "output", "input": "inputs"}.get(k := key.replace("-", "_"), k)
        if name not in OPTION_NAMES:
            raise ConfigError(f"{path}: unknown option {key!r}{nearest(name, OPTION_NAMES)}")
        values[name] = value
    return values


def _choice(kind: type[E], name: str, value: object) -> E:
    try:
        return kind(str(value))
    except ValueError:
        raise ConfigError(f"{name}: {value!r}{nearest(str(value), [str(k) for k in kind])}") from None


def _numbers(name: str, value: object) -> tuple[int, ...]:
    """Unit numbers, as a list or as a text such as "7,12"."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        return tuple(sorted({int(str(i)) for i in items}))
    except ValueError:
        raise ConfigError(f"{name}: {value!r} is no list of unit numbers such as 7,12") from None


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}


def parse_size(value: object, name: str = "size") -> int:
    """Bytes from a number or a text: parse_size("256MiB") -> 268435456, parse_size("4GB") -> 4000000000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", str(value).strip().lower())
    if isinstance(value, bool) or not match or (match[3] and not match[2]):
        raise ConfigError(f"{name}: {value!r} is not a size: write 1000000, 256MiB or 4GB")
    base = _UNITS[match[2]]
    if match[3]:
        base = 1024 ** (len(str(base)) // 3)
    return int(float(match[1]) * base)
