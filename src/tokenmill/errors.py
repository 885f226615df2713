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
    ├── WorkerError            (RuntimeError)     units failed again and again             exit 1
    ├── BenchmarkError         (RuntimeError)     something that is measured failed        exit 1
    ├── LedgerError            (AssertionError)   the books do not balance: a bug          exit 1
    ├── RejectLimitError       (ValueError)       more rejects than --max-rejects          exit 3
    └── Interrupted            (Exception)        stopped on request, resumable            exit 130

Each takes one message that says what happened, where, and what to do about it, so each pickles.
"""


class TokenmillError(Exception):
    """Base of all errors of this package."""

    exit_code = 1


class ConfigError(TokenmillError, ValueError):
    """An option has a value that cannot be used."""

    exit_code = 2


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
