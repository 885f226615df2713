"""tokenmill turns large text corpora into packed, fixed-length token sequences on disk.

import tokenmill
result = tokenmill.run(tokenmill.Config(inputs=["corpus/"], output="tokenized/"))
rows = tokenmill.open("tokenized/")
"""

from importlib.metadata import version as _version

from tokenmill.config import Config
from tokenmill.dataset import Rows, open
from tokenmill.errors import (
    ConfigError,
    DifferentJobError,
    InputError,
    Interrupted,
    OutputBusyError,
    OutputError,
    RejectLimitError,
    TokenizerError,
    TokenmillError,
)
from tokenmill.run import RunResult, run

__version__ = _version("tokenmill")

__all__ = [
    "Config",
    "ConfigError",
    "DifferentJobError",
    "InputError",
    "Interrupted",
    "OutputBusyError",
    "OutputError",
    "RejectLimitError",
    "Rows",
    "RunResult",
    "TokenizerError",
    "TokenmillError",
    "__version__",
    "open",
    "run",
]
