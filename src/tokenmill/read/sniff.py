"""What a file is: its first bytes decide, its name where they leave it open.

What is plausibly data is read, and its bad lines are rejected. What is skipped although it looks like data is marked as
that: somebody must hear of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokenmill.read.decompress import BrokenStreamError, Bytes, pieces
from tokenmill.read.evidence import Evidence, look_at
from tokenmill.read.names import Hint, Named, read_name
from tokenmill.read.source import EDGE_BYTES, fingerprint_of
from tokenmill.records import Codec, Format, InputFile, Inspected
from tokenmill.storage.base import Reading, Source

_MAGIC = (
    (b"\x1f\x8b", Codec.GZIP),
    (b"\x28\xb5\x2f\xfd", Codec.ZSTD),
    (b"\xfd7zXZ\x00", Codec.XZ),
)
# A letter may begin with "BZh"; behind it comes the mark of a block or of the end.
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")
_JSON = re.compile(rb"\s*(\{\s*\"|\[\s*[\[{\"])")
MAX_SCHEMA_BYTES = 64 << 20
# Where the first 64 KiB leave open what a file is, this much is looked at: blank lines, broken ones, empty members.
MOST_TEXT_BYTES = 1 << 20
# A member may be empty, and a skippable frame of zstd has up to 4 GiB.
MOST_COMPRESSED_BYTES = 2 << 20


class _NotAnInputError(Exception):
    """The file is none of the formats that tokenmill reads."""

    def __init__(self, why: str, *, looks_like_data: bool = False) -> None:
        super().__init__(why)
        self.looks_like_data = looks_like_data


def inspect_file(inputs: Reading, name: str) -> Inspected:
    """Look at a file once: its format, codec and fingerprint, and a remark if the name says something else."""
    try:
        return _inspect(inputs, name)
    except _NotAnInputError as error:
        return Inspected(None, str(error), looks_like_data=error.looks_like_data)


def _inspect(inputs: Reading, name: str) -> Inspected:
    named = read_name(name)
    try:
        if not inputs.stat(name).is_file:
            raise _NotAnInputError("not a regular file")  # opening a pipe would wait for ever
        with inputs.open(name) as source:
            size = source.stat.size
            head = source.read(EDGE_BYTES)
            codec = _codec(head, named) if head else named.codec
            source.seek(0)
            format_, text = _format(head, _Content(source, codec), named)
            fingerprint = fingerprint_of(source, head)
    except OSError as error:
        if named.format is None and not named.hint.is_data and named.codec is Codec.PLAIN:
            raise _NotAnInputError(f"cannot be read, and it is not named like an input: {error.strerror}") from error
        problem = error.strerror or str(error)
        format_ = named.format or Format.JSONL
        unread = InputFile(name=name, size=0, fingerprint="", format=format_, codec=named.codec, problem=problem)
        return Inspected(unread)
    remark = None
    if codec is not named.codec:
        remark = f"the name says {named.codec}, the content is {codec}"
    elif named.format not in (None, format_):
        remark = f"the name says {named.format}, the content is {format_}"
    file = InputFile(name=name, size=size, fingerprint=fingerprint, format=format_, codec=codec)
    return Inspected(file, remark, head=text)


def _codec(head: bytes, named: Named) -> Codec:
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return Codec.ZSTD  # a skippable frame, which some writers put first
    if _BZIP2.match(head) or (named.codec is Codec.BZIP2 and head.startswith(b"BZh")):
        return Codec.BZIP2
    return next((codec for magic, codec in _MAGIC if head.startswith(magic)), Codec.PLAIN)


def _format(head: bytes, content: _Content, named: Named) -> tuple[Format, bytes]:
    """The format, and as much of the content as it took to tell."""
    is_text = named.format is Format.TEXT and not look_at(head, whole=False).is_binary  # which may begin with any word
    if head.startswith(b"PAR1") and not is_text:
        return Format.PARQUET, b""
    if (head.startswith(b"ARROW1") and not is_text) or _begins_arrow_stream(head):
        return Format.ARROW, b""
    text, whole = content.beginning(EDGE_BYTES)
    seen = look_at(text, whole)
    if seen.is_utf_16 and (named.hint is not Hint.OTHER or named.format in (Format.JSONL, Format.TEXT)):
        raise _NotAnInputError("in UTF-16: convert it to UTF-8, e.g. by iconv -f UTF-16 -t UTF-8", looks_like_data=True)
    format_ = _by_content(seen, named)
    is_open = named.hint is not Hint.OTHER or seen.is_blank if format_ is None else _is_odd_text(format_, named)
    if is_open and not whole:
        text, whole = content.beginning(MOST_TEXT_BYTES)
        seen = look_at(text, whole)
        format_ = _by_content(seen, named)
    return format_ or _by_name(seen, content, named), text


def _begins_arrow_stream(head: bytes) -> bool:
    """A marker and the size of the schema, which comes in eights. No text in UTF-8 begins so."""
    size = int.from_bytes(head[4:8], "little")
    return head.startswith(b"\xff\xff\xff\xff") and 0 < size <= MAX_SCHEMA_BYTES and size % 8 == 0


def _is_odd_text(format_: Format, named: Named) -> bool:
    return named.format is Format.TEXT is not format_


def _by_content(seen: Evidence, named: Named) -> Format | None:
    """What a file is by its lines alone, or by what its name leaves no doubt of."""
    if named.format is Format.TEXT:  # which may quote a record, or begin with one
        return Format.JSONL if seen.is_only_objects else Format.TEXT
    if seen.begins_with_object:
        return Format.JSONL
    # A shard may begin with a broken line; a JSON document of many lines may hold an object on one of them.
    if named.format is None and seen.is_mostly_objects and not seen.is_archive:
        return Format.JSONL
    return named.format


def _by_name(seen: Evidence, content: _Content, named: Named) -> Format:
    """What a file is, or why it is not an input, by its name and whatever its lines tell."""
    hint = named.hint
    if hint is Hint.OTHER:
        if named.is_out_of_reach:
            raise _NotAnInputError("compressed in a way that is not supported", looks_like_data=True)
        raise _NotAnInputError(_is_not(seen), looks_like_data=seen.is_mostly_objects)  # which an archive may be
    if hint is Hint.TABLE and not content.is_empty:
        raise _NotAnInputError("CSV: convert it to JSON Lines or Parquet", looks_like_data=True)
    is_called_data = hint.is_data or named.codec is not Codec.PLAIN
    looks_like_data = is_called_data or seen.objects > 0
    if content.is_empty and not is_called_data:
        raise _NotAnInputError("empty")
    if seen.is_archive:
        raise _NotAnInputError(_is_not(seen), looks_like_data=looks_like_data)
    if seen.is_mostly_records and not (seen.is_binary and hint is Hint.NOTHING):
        return Format.JSONL
    if seen.is_blank or content.is_broken:
        return Format.JSONL  # cut off before it can be told what it is: that is damage, and the reader's to report
    if seen.is_one_value and (hint is Hint.JSON or seen.text.lstrip()[:1] in (b"{", b"[")):
        raise _NotAnInputError("JSON, but not one object per line", looks_like_data=True)
    if seen.is_binary and not (seen.records and hint.is_data):
        raise _NotAnInputError("binary, in no format that is supported", looks_like_data=looks_like_data)
    if seen.records or hint.is_data:
        return Format.JSONL
    is_odd = content.codec is not named.codec  # not what its suffix says either
    raise _NotAnInputError(_is_not(seen), looks_like_data=is_odd or _JSON.match(seen.text) is not None)


def _is_not(seen: Evidence) -> str:
    if seen.text.lstrip()[:1] in (b"{", b"["):
        return "JSON, but not one object per line"
    return "not JSON Lines, Parquet, Arrow or .txt"


class _Content:
    """The beginning of what is in a file, decompressed as far as it is asked for."""

    def __init__(self, source: Source, codec: Codec) -> None:
        self.is_empty = source.stat.size == 0
        self.is_broken = False
        self.codec = codec
        self._text = b""
        self._is_whole = False
        self._pieces = _plain(source) if codec is Codec.PLAIN else pieces(_Beginning(source), codec)

    def beginning(self, size: int) -> tuple[bytes, bool]:
        """So many bytes, or all there are; and whether that is all. A stream that breaks off might have had more.

        A block of bzip2 gives nothing before all of its up to 900 kB are read, so it is the output that is bounded.
        """
        held, count = [self._text], len(self._text)
        try:
            while count < size and not self._is_whole and not self.is_broken:
                piece = next(self._pieces, None)
                self._is_whole = piece is None
                held.append(piece or b"")
                count += len(held[-1])
        except BrokenStreamError:
            self.is_broken = True
        self._text = b"".join(held)
        return self._text[:size], self._is_whole and len(self._text) <= size


def _plain(source: Source) -> Iterator[bytes]:
    while data := source.read(EDGE_BYTES):
        yield data


class _Beginning:
    """A file that ends early."""

    def __init__(self, source: Bytes) -> None:
        self._source = source
        self.seek, self.tell, self.stat = source.seek, source.tell, source.stat

    def read(self, size: int, /) -> bytes:
        return self._source.read(max(0, min(size, MOST_COMPRESSED_BYTES - self._source.tell())))
