"""What running a unit takes: the one record that every worker gets, in this process or another."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.config import ContentOptions
from tokenmill.encode import Tokenizer
from tokenmill.output.receipts import Receipts
from tokenmill.storage.base import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSetup:
    """Everything but the unit itself and the encoder. It pickles as it is: nothing is dropped, nothing shared."""

    options: ContentOptions
    batch_size: int
    tokenizer: Tokenizer
    inputs: Reading
    receipts: Receipts
    mapped: bool = False
    """Whether plain files are mapped into memory, not read."""
    resume_hint: str
    """What to do after an error that is not the unit's fault."""
