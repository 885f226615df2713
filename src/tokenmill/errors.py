"""Every error that tokenmill raises on purpose.

    TokenmillError
    ├── ConfigError            (ValueError)       an option is wrong                       exit 2
    ├── InputError             (ValueError)       nothing to read, or not what it must be  exit 2
    │   ├── UnreadableInputError (OSError)        one file cannot be read: others go on
    │   └── InputChangedError                     one file is not what was planned: others go on
    ├── TokenizerError         (ValueError)       not found, broken, or unsafe to use      exit 2
    ├── OutputError            (OSError)          the output cannot be written             exit 1
    │   ├── DifferentJobError                     the directory holds another job          exit 1
    │   └── OutputBusyError                       another run is writing there             exit 1
    ├── OpenFilesError         (RuntimeError)     the system allows too few open files     exit 1
    ├── WorkerError            (RuntimeError)     units failed again and again             exit 1
    ├── BenchmarkError         (RuntimeError)     something that is measured failed        exit 1
    ├── LedgerError            (AssertionError)   records or tokens do not add up: a bug    exit 1
    ├── RejectLimitError       (ValueError)       more rejects than --max-rejects          exit 3
    └── Interrupted            (Exception)        stopped on request, resumable            exit 130

Each takes one message that says what happened, where, and what to do about it, so each pickles. A ConfigError also
takes the names of the options it is about.
"""

from __future__ import annotations

from collections.abc import Mapping


class TokenmillError(Exception):
    """Base of all errors of this package."""

    exit_code = 1


class ConfigError(TokenmillError, ValueError):
    """An option has a value that cannot be used.

    str(ConfigError("must be at least 1, not 0", "seq_len")) -> "seq_len: must be at least 1, not 0"
    """

    exit_code = 2

    def __init__(self, what: str, *options: str) -> None:
        super().__init__(what, *options)

    def __str__(self) -> str:
        what, *options = self.args
        return f"{' and '.join(options)}: {what}" if options else str(what)

    def renamed(self, names: Mapping[str, str]) -> ConfigError:
        """The same error, with the options under the names that the user knows them by: seq_len -> --seq-len."""
        what, *options = self.args
        return ConfigError(what, *(names.get(o, o) for o in options)).with_traceback(self.__traceback__)


class InputError(TokenmillError, ValueError):
    """The inputs named by the user cannot be used."""

    exit_code = 2


class UnreadableInputError(InputError, OSError):
    """One input file cannot be read; the rest of the job goes on without it."""

    exit_code = 3


class InputChangedError(InputError):
    """One input file is not the file that was planned."""

    exit_code = 3


class TokenizerError(TokenmillError, ValueError):
    """The tokenizer cannot be found, loaded or used safely."""

    exit_code = 2


class OutputError(TokenmillError, OSError):
    """The output directory cannot be used or written."""


class DifferentJobError(OutputError):
    """The output directory belongs to a different job."""


class OutputBusyError(OutputError):
    """Another run holds the output directory."""


class OpenFilesError(TokenmillError, RuntimeError):
    """Too many files are open. Not an OSError: no file is at fault, so nobody may go on without one."""


class WorkerError(TokenmillError, RuntimeError):
    """Units kept failing in their workers and were set aside; the others are committed."""


class BenchmarkError(TokenmillError, RuntimeError):
    """Something that was to be measured failed, or gave another result."""


class LedgerError(TokenmillError, AssertionError):
    """Records or tokens are unaccounted for: a defect of tokenmill, never of the input."""


class RejectLimitError(TokenmillError, ValueError):
    """More records were rejected than the user allows."""

    exit_code = 3


class Interrupted(TokenmillError):  # noqa: N818 - an event, not an error
    """The run was asked to stop; everything committed so far is kept."""

    exit_code = 130
