"""The options of a job, in groups: who needs some of them is given their group, not the whole configuration.

    ReadOptions ─> ContentOptions ┐   what changes a byte of the output: the run id is a hash of it
                   RunOptions     ├─> Config, which adds inputs and output
                   Actions        ┘   what a command is to do once

Each is frozen and is checked when it is built. A Config is all of them, so it can be passed as any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tokenmill.config.choices import (
    AUTO,
    DEFAULT_TOKENIZER,
    ENGINES,
    EncoderChoice,
    Eos,
    InputAccess,
    SpecialTokens,
    Tail,
)
from tokenmill.config.kinds import (
    Choice,
    Directory,
    EosToken,
    FieldName,
    Flag,
    Paths,
    RejectLimitValue,
    Size,
    Token,
    TokenizerName,
    UnitNumbers,
    WholeNumber,
)
from tokenmill.config.option import Heading, OptionGroup, described, option, options_of
from tokenmill.config.reject_limit import RejectLimit
from tokenmill.errors import ConfigError

MAX_SEQ_LEN = 1 << 24
_MAX_DOCUMENT_BYTES = 256 << 20

_PLACES, _CONTENT, _RUN, _ACTIONS = Heading


@dataclass(frozen=True, kw_only=True)
class ReadOptions(OptionGroup):
    """How a record becomes a document."""

    text_field: str = option(
        "text",
        FieldName(),
        _CONTENT,
        "field or column of the text; dots for nested fields",
    )
    id_field: str | None = option(
        None, FieldName(), _CONTENT, "field or column of a document's own id, kept in `.ids.jsonl` beside each chunk"
    )
    max_document_bytes: int = option(_MAX_DOCUMENT_BYTES, Size(), _CONTENT, "reject larger records")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id_field is not None and _overlap(self.text_field, self.id_field):
            what = f"{self.text_field!r} and {self.id_field!r} overlap: name two separate fields"
            raise ConfigError(what, "text_field", "id_field")


def _overlap(one: str, other: str) -> bool:
    """Whether one field is the other or is inside it: a.b is inside a."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


@dataclass(frozen=True, kw_only=True)
class ContentOptions(ReadOptions):
    """What changes a byte of the output. Jobs that differ in it are different jobs."""

    tokenizer: str = option(
        DEFAULT_TOKENIZER,
        TokenizerName(),
        _CONTENT,
        "a bundled name, a tokenizer.json, a directory with one, or a hub id",
    )
    special_tokens_in_text: SpecialTokens = option(
        SpecialTokens.PLAIN,
        Choice(tuple(SpecialTokens)),
        _CONTENT,
        "special tokens in texts are plain text, match the token or reject the record",
    )
    seq_len: int = option(2048, WholeNumber(most=MAX_SEQ_LEN), _CONTENT, "tokens per row")
    sequences_per_chunk: int = option(50_000, WholeNumber(), _CONTENT, "maximum number of rows per file")
    tail: Tail = option(Tail.PAD, Choice(tuple(Tail)), _CONTENT, "pad or drop the last, partial row of a unit")
    bos_token: str | None = option(None, Token(), _CONTENT, "token before each document", default_text="none")
    eos_token: str | Eos | None = option(
        None, EosToken(), _CONTENT, "token after each document", default_text="the tokenizer's own"
    )

    def stored(self, eos_token: str | None) -> dict[str, Any]:
        """The options in job.json, which the run id is a hash of; `eos_token` is the one that the tokenizer resolved.

        The tokenizer is stored beside them, by its content.
        """
        values = {o.name: getattr(self, o.name) for o in options_of(ContentOptions) if o.name != "tokenizer"}
        values["eos_token"] = eos_token
        return {name: str(value) if isinstance(value, StrEnum) else value for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class RunOptions(OptionGroup):
    """How a job is run. The same output comes of it whatever they are, and they may change from run to run."""

    max_rejects: RejectLimit = option(
        RejectLimit(share=0.01),
        RejectLimitValue(),
        _RUN,
        f"stop when more is rejected; a percentage is checked from {RejectLimit.MIN_RECORDS:,} records on, and at the "
        "end",
    )
    encoder: EncoderChoice = option(
        EncoderChoice.AUTO,
        Choice(tuple(EncoderChoice), "encoder"),
        _RUN,
        "auto: fastokens if it gives the same ids as huggingface, else huggingface",
    )
    engine: str = option(
        AUTO, Choice((AUTO, *ENGINES), "engine"), _RUN, f"how units are scheduled: {', '.join(ENGINES)}, or auto"
    )
    num_workers: int | None = option(
        None,
        WholeNumber(),
        _RUN,
        "processes of ultra, threads of extreme; at most 4 per core",
        default_text="80% of the cores",
    )
    batch_size: int = option(100, WholeNumber(), _RUN, "documents per encode call")
    read: InputAccess = option(
        InputAccess.BUFFERED,
        Choice(tuple(InputAccess)),
        _RUN,
        "mmap copies nothing, but a file cut short meanwhile kills the run, which can be continued",
    )
    prefetch_files: int = option(4, WholeNumber(least=0, most=100_000), _RUN, "files that ultra and extreme read ahead")
    max_memory: int | None = option(
        None,
        Size(),
        _RUN,
        "memory for the whole run, e.g. 4GB; workers and queues follow from it",
        default_text="half of the machine's",
    )


@dataclass(frozen=True, kw_only=True)
class Actions(OptionGroup):
    """What one command is to do, and the next is not."""

    redo: tuple[int, ...] = option(
        (), UnitNumbers(), _ACTIONS, "do these units of the job again, e.g. 7,12: `tokenmill verify` names them"
    )
    overwrite: bool = option(False, Flag(), _ACTIONS, "remove the job in the output directory first")


@dataclass(frozen=True, kw_only=True)
class Config(ContentOptions, RunOptions, Actions):
    """A job: what to read, how to tokenize and pack it, where to write.

    `no_eos=True` is the older way to write `eos_token=Eos.OFF`, and reading it tells whether that is so.
    """

    inputs: tuple[str, ...] = field(
        metadata=described(
            Paths(),
            _PLACES,
            "an input, instead of INPUT by position; repeatable",
            flag="--input-dir",
            keys=("input", "input_dir"),
        )
    )
    output: Path = field(
        metadata=described(
            Directory(),
            _PLACES,
            "the output, instead of OUTPUT by position",
            flag="--output-dir",
            keys=("output_dir",),
        )
    )
    no_eos: bool | None = option(None, Flag(), _CONTENT, "no token after documents")

    def content(self) -> ContentOptions:
        """These options alone."""
        return ContentOptions(**{o.name: getattr(self, o.name) for o in options_of(ContentOptions)})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.no_eos and isinstance(self.eos_token, str):
            raise ConfigError("they contradict each other: give one of them", "eos_token", "no_eos")
        if self.no_eos:
            self._set("eos_token", Eos.OFF)
        elif self.no_eos is False and self.eos_token is Eos.OFF:
            self._set("eos_token", None)
        # Never False: a copy with another `eos_token` would take that for a wish.
        self._set("no_eos", True if self.eos_token is Eos.OFF else None)


def resume_hint(actions: Actions) -> str:
    """How to go on after an interruption or an error."""
    given = [o.flag for o in options_of(Actions) if getattr(actions, o.name)]
    return "run the same command again" + (f", without {' and '.join(given)}," if given else "")
