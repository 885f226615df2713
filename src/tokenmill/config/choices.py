"""The values that some options choose from."""

from __future__ import annotations

from enum import Enum, StrEnum

DEFAULT_TOKENIZER = "gpt-neox-20b"
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


class InputAccess(StrEnum):
    """How the bytes of plain files come into memory."""

    BUFFERED = "buffered"
    MMAP = "mmap"


class Eos(Enum):
    """What `eos_token` can be apart from a token, and None for the tokenizer's own: no token at all."""

    OFF = "off"
