"""What planning asks of the inputs: what a file is, how much text it holds, where it can be cut."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.read import formats
from tokenmill.read.sniff import inspect_file
from tokenmill.records import InputFile, Inspected
from tokenmill.storage.base import Reading


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files below one root."""

    inputs: Reading

    def inspect(self, name: str) -> Inspected:
        """Look at a file once."""
        found = inspect_file(self.inputs, name)
        if found.file is not None:
            formats.preload(found.file.format)
        return found

    def text_bytes(self, file: InputFile) -> int:
        """About how much text a file holds."""
        return formats.text_bytes(file)

    def cuts(self, file: InputFile, wanted: int) -> list[int]:
        """Where to cut a file into about so many parts; without an inner cut it stays whole."""
        return formats.cuts(self.inputs, file, wanted)
