"""What the beginning of a file tells about JSON in it.

Lines that are objects, lines that look like records although they are broken, one JSON value over many lines, or bytes
that are not text at all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tokenmill.read.lines import BOM

# A line that begins like a record and does not go on in the next one as part of a larger value.
_RECORD = re.compile(rb"""\s*\{\s*["'}](?:.*[^\s,\[{(\]])?\s*""", re.DOTALL)
_OPENS = re.compile(rb'\s*\{\s*"')
# What no text holds; of a file that is text but for its first line, the other lines tell.
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_UTF_16 = re.compile(rb"\xff\xfe(?!\0\0)|\xfe\xff|[\[{]\0[\s\"\[{]\0|\0[\[{]\0[\s\"\[{]")
_ARCHIVE = re.compile(rb"PK\x03\x04|.{257}ustar|SEQ[\x04-\x06]|Obj\x01|ORC", re.DOTALL)
# An integer of 5,000 digits is JSON, although Python refuses to make a number of it.
_DECODER = json.JSONDecoder(parse_int=float)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of the lines that are not blank: how many there are, are objects, look like records."""

    text: bytes
    lines: int
    objects: int
    records: int
    begins_with_object: bool
    is_only_objects: bool
    """As far as can be seen: the last line may be cut off."""

    @property
    def is_blank(self) -> bool:
        return not self.lines

    @property
    def is_mostly_objects(self) -> bool:
        return self.lines > 0 and 2 * self.objects >= self.lines

    @property
    def is_mostly_records(self) -> bool:
        return 2 * self.records > self.lines

    @property
    def is_binary(self) -> bool:
        return _CONTROL.search(self.text) is not None

    @property
    def is_archive(self) -> bool:
        """Whether it is something that may hold lines of JSON between other bytes, or data in another format."""
        return _ARCHIVE.match(self.text) is not None

    @property
    def is_utf_16(self) -> bool:
        return _UTF_16.match(self.text) is not None

    @property
    def is_one_value(self) -> bool:
        """Whether it begins with a JSON value that is not an object on a line: over many lines, or no object."""
        text = self.text.decode(errors="replace").strip()
        try:
            value, end = _DECODER.raw_decode(text)
        except RecursionError:
            return False
        except ValueError as error:
            # Cut off where it ends here: all lines before the last are as they should be. An array in one line is cut
            # off anywhere.
            last = text.rfind("\n") + 1
            return text[:1] == "[" if not last else text[:1] in ("[", "{") and getattr(error, "pos", 0) >= last
        return "\n" in text[:end] or (not isinstance(value, dict) and not text[end : end + 1].strip())


def look_at(text: bytes, whole: bool) -> Evidence:
    """Look at the beginning of a file, or at the whole of it."""
    text = text.removeprefix(BOM)
    *lines, last = text.split(b"\n")
    full = [line for line in lines if line.strip()]
    verdicts = [is_object(line) for line in full]
    records = sum(is_good or _RECORD.fullmatch(line) is not None for is_good, line in zip(verdicts, full, strict=True))
    is_only = all(verdicts)
    if last.strip():
        # Of a line that is cut off here only the beginning counts, and only if there is no other.
        opens = _OPENS.match(last) is not None
        verdicts.append((opens and not whole and not full) or is_object(last))
        records += opens or verdicts[-1]
        is_only = is_only and (verdicts[-1] or (opens and not whole))
    first = bool(verdicts) and verdicts[0]
    return Evidence(text, len(verdicts), sum(verdicts), records, first, first and is_only)


def is_object(line: bytes) -> bool:
    """Whether a line is a JSON object. One that is nested too deeply to tell is if it ends like one."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return False
    try:
        return isinstance(_DECODER.decode(line.decode()), dict)
    except RecursionError:
        return True
    except ValueError:
        return False
