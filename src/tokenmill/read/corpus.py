"""What planning asks of the inputs: what a file is, how much text it holds, where it can be cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from tokenmill.config import ReadOptions
from tokenmill.read import formats
from tokenmill.read.names import read_name
from tokenmill.read.sniff import inspect_file
from tokenmill.records import Format, InputFile, Inspected
from tokenmill.storage.base import Reading


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files below one root; with options, it says which of them do not have the fields that these name."""

    inputs: Reading
    options: ReadOptions | None = None

    def inspect(self, name: str) -> Inspected:
        """Look at a file once."""
        found = inspect_file(self.inputs, name)
        if found.file is None or found.file.problem:
            return found
        formats.preload(found.file.format)
        absent = formats.absent_field(self.inputs, found.file, found.head, self.options) if self.options else None
        if absent and absent.option == "text_field" and read_name(name).format is Format.TEXT:
            # Objects without text, in a file that is called text: a text about objects.
            return Inspected(msgspec.structs.replace(found.file, format=Format.TEXT))
        return replace(found, absent=absent, head=b"")

    def text_bytes(self, file: InputFile) -> int:
        """About how much text a file holds."""
        return formats.text_bytes(file)

    def cuts(self, file: InputFile, wanted: int) -> list[int]:
        """Where to cut a file into about so many parts; without an inner cut it stays whole."""
        return formats.cuts(self.inputs, file, wanted)
