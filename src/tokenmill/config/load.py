"""From what the user typed to a Config: options of the command line over a TOML file.

Errors name what the user typed: `--seq-len: must be …`, or `seq-len in job.toml: must be …`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.config.groups import Config
from tokenmill.config.option import Heading, options_of
from tokenmill.errors import ConfigError
from tokenmill.messages import near, printable

OPTIONS = {o.name: o for o in options_of(Config)}
_NAME_OF_KEY = {key: o.name for o in OPTIONS.values() for key in (o.name, *o.keys)}
# Of how the program talks, not of a job.
ONLY_TYPED = ("quiet", "log_format", "debug", "config")
# Two spellings of one option: what the command line says of either wins over both in the file.
_EOS = {"eos_token", "no_eos"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of options, and what the user typed for each, or would have to type."""

    values: Mapping[str, Any]
    names: Mapping[str, str]

    def config(self) -> Config:
        with self.naming():
            return Config(**self.values)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors about options name what the user typed, here and in whatever is done with the Config."""
        try:
            yield
        except ConfigError as error:
            raise error.renamed(self.names) from error.__cause__


def load_settings(typed: Mapping[str, Any], toml: Path | None = None, lone_path: str | None = None) -> Settings:
    """The options of the command line, by name, over those of a TOML file.

    `lone_path` is the only path by position: the output if the file has the inputs, else an input.

    load_settings({"seq_len": 1024}, Path("job.toml")).config() -> the file's job with rows of 1,024 tokens
    """
    values: dict[str, Any] = dict(typed)
    names = {o.name: o.flag for o in OPTIONS.values()}
    in_file = _options_in(toml) if toml else []
    if lone_path is not None:
        values[_use_of(lone_path, toml, {name for _, name, _ in in_file})] = lone_path
    decided = values.keys() | (_EOS if _EOS & values.keys() else set())
    for key, name, value in in_file:
        if name not in decided:
            values[name], names[name] = value, f"{key} in {printable(toml)}"
    for name in ("inputs", "output"):
        if not values.get(name):
            raise ConfigError(f"no {name} given: tokenmill run INPUT... OUTPUT, or {OPTIONS[name].flag}")
    return Settings(values, names)


def _use_of(path: str, toml: Path | None, in_file: set[str]) -> str:
    """Whether the only path by position is what to read or where to write."""
    if {"inputs", "output"} <= in_file:
        path = printable(path)
        raise ConfigError(
            f"{printable(toml)} has inputs and an output, so {path} might replace either: write --output-dir {path} or "
            f"--input-dir {path}"
        )
    return "output" if "inputs" in in_file else "inputs"


def _options_in(path: Path) -> list[tuple[str, str, Any]]:
    """The options of a file: key, name and value."""
    found = [(key, _option_name(key, path), value) for key, value in _read_toml(path).items()]
    keys: dict[str, str] = {}
    for key, name, _ in found:
        if name in keys:
            raise ConfigError(f"{printable(path)}: {_dashed(name)} is set twice, as {keys[name]} and as {key}")
        keys[name] = key
    return found


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # most runs have no file, and `--help` is to be quick

    try:
        if path.exists() and not path.is_file():  # a pipe would have us wait
            raise ConfigError(f"{printable(path)} is not a file: name a TOML file")
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {printable(path)}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{printable(path)} is not valid TOML: {error}") from error


def _option_name(key: str, path: Path) -> str:
    """The option that a key of the file means: dashes are as good as underscores."""
    name = _NAME_OF_KEY.get(key.replace("-", "_"))
    if key.replace("-", "_") in ONLY_TYPED:
        raise _only_typed(path, key, f"--{_dashed(key)}")
    if name is None:
        meant = near(_dashed(key), map(_dashed, OPTIONS))
        hint = f"did you mean {meant!r}?" if meant else "`tokenmill run --help` lists them, without their dashes here"
        raise ConfigError(f"{printable(path)}: unknown option {key!r}; {hint}")
    if OPTIONS[name].heading is Heading.ACTIONS:  # every run would start over
        raise _only_typed(path, key, OPTIONS[name].flag)
    return name


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _only_typed(path: Path, key: str, flag: str) -> ConfigError:
    return ConfigError(f"{printable(path)}: {key!r} can only be given on the command line ({flag})")
