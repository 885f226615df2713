"""tokenmill turns large text corpora into packed, fixed-length token sequences on disk.

import tokenmill
result = tokenmill.run(tokenmill.Config(inputs=("corpus/",), output=Path("tokenized/")))
rows = tokenmill.open("tokenized/")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.check.verdict import Verdict
    from tokenmill.check.verify import verify
    from tokenmill.config import Config
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
    from tokenmill.job.execute import RunResult, run
    from tokenmill.load.rows import Rows, open

__version__ = "0.1.0"

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
    "Verdict",
    "__version__",
    "open",
    "run",
    "verify",
]

_HOME = {
    "Config": "config",
    "Rows": "load.rows",
    "RunResult": "job.execute",
    "Verdict": "check.verdict",
    "open": "load.rows",
    "run": "job.execute",
    "verify": "check.verify",
}


def __dir__() -> list[str]:
    """With the names that are not imported yet, for whoever explores."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `tokenmill --help` needs none of the libraries behind them."""
    if name not in __all__:
        raise AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    return getattr(import_module(f"tokenmill.{_HOME.get(name, 'errors')}"), name)
