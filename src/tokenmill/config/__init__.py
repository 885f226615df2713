"""Configuration: options declared once, checked when built, passed in groups.

    choices, places, reject_limit <- kinds <- option <- groups <- load
    (values)                 (checks)  (declared) (Config)  (command line and TOML)

In Python, a job is Config(inputs=["corpus"], output="tokens", seq_len=4096).
"""

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
from tokenmill.config.groups import Actions, Config, ContentOptions, ReadOptions, RunOptions, resume_hint
from tokenmill.config.kinds import parse_size
from tokenmill.config.load import Settings, load_settings
from tokenmill.config.option import Heading, Option, options_of
from tokenmill.config.places import Use, local_path
from tokenmill.config.reject_limit import RejectLimit

__all__ = [
    "AUTO",
    "DEFAULT_TOKENIZER",
    "ENGINES",
    "Actions",
    "Config",
    "ContentOptions",
    "EncoderChoice",
    "Eos",
    "Heading",
    "InputAccess",
    "Option",
    "ReadOptions",
    "RejectLimit",
    "RunOptions",
    "Settings",
    "SpecialTokens",
    "Tail",
    "Use",
    "load_settings",
    "local_path",
    "options_of",
    "parse_size",
    "resume_hint",
]
