"""Paths as users write them: `~` is expanded, and what is not a path of this machine is refused with a way out."""

from __future__ import annotations

import os
import re
from enum import StrEnum

from tokenmill.errors import ConfigError
from tokenmill.messages import printable

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# As pathlib writes it: Path("s3://bucket/x") is "s3:/bucket/x".
_SHORTENED = re.compile(
    r"(s3|s3a|s3n|gs|gcs|az|abfss?|adl|wasbs?|r2|oss|cos|hdfs|hf|https?|ftps?|file):/", re.IGNORECASE
)
_WEB = {"http", "https", "ftp", "ftps"}
_STREAM = re.compile(r"-|/dev/(stdin|stdout|stderr|fd/\d+)|/proc/self/fd/\d+")


class Use(StrEnum):
    """What a path is for, and what to do where it cannot serve."""

    INPUT = "Copy the files to a disk of this machine, and name them there"
    OUTPUT = "Write to a directory of this machine, and copy it from there"
    FINISHED_OUTPUT = "Copy the output to a disk of this machine, and name it there"
    TOKENIZER = "Name a tokenizer.json on a disk of this machine, or a hub id such as EleutherAI/gpt-neox-20b"
    FILE = "Name a file on a disk of this machine"


def local_path(path: str | os.PathLike[str], use: Use) -> str:
    """The path with `~` expanded. Raises ConfigError for addresses and streams."""
    text = os.fspath(path)
    if found := _URL.match(text) or _SHORTENED.match(text):
        raise _not_local(text, found[1].lower(), text[found.end() :], use)
    if _STREAM.fullmatch(text):
        raise _stream(text, use)
    if not text.startswith("~") or os.path.lexists(text):
        return text
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        user = printable(text[1:].partition("/")[0])
        raise ConfigError(f"{printable(text)}: there is no user {user} here. A file of that name is ./~{user}")
    return expanded


def _not_local(text: str, scheme: str, rest: str, use: Use) -> ConfigError:
    where = printable(text)
    if scheme == "file":
        return ConfigError(f"{where}: write the path alone, /{printable(rest).lstrip('/')}")
    what = "web addresses and object stores" if scheme in _WEB else "object stores"
    return ConfigError(f"{where}: {what} are not supported yet. {use}")


def _stream(text: str, use: Use) -> ConfigError:
    if use in (Use.OUTPUT, Use.FINISHED_OUTPUT):
        return ConfigError(f"{text}: an output is a directory of files, not a stream. Name a directory")
    what = "standard input" if text in ("-", "/dev/stdin") else "a stream"
    if use is not Use.INPUT:
        return ConfigError(f"{text}: {what} is not supported here. {use}")
    return ConfigError(
        f"{text}: {what} cannot be read again to resume or verify a job, so it is not supported. Write it to "
        "a file first, and name that: zcat dump.gz > corpus.jsonl && tokenmill run corpus.jsonl OUTPUT"
    )
