"""Bytes of a file, decompressed, in pieces of bounded size; all members or frames of it; as much as is whole.

All decompressors here share the interface of `bz2.BZ2Decompressor`: `decompress(data, max_length)`, `eof`,
`needs_input`, `unused_data`. So one loop serves every codec, and `max_length` keeps a decompression bomb from
becoming gigabytes in one call.
"""

from __future__ import annotations

import bz2
import errno
import lzma
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Protocol, cast

from isal import igzip_lib

if sys.version_info >= (3, 14):  # no mutant: one version runs the tests
    from compression import zstd
else:
    from backports import zstd

from tokenmill.messages import size
from tokenmill.records import NO_LOSS, Codec, Loss, Reason
from tokenmill.storage.base import Stat

# Measured: 64 KiB of input and 256 KiB of output are within 3 % of the best for igzip and zstd, and small enough
# to stay in the cache until the pieces are joined.
INPUT_BYTES = 64 << 10  # no mutant: only speed and memory depend on it
OUTPUT_BYTES = 256 << 10  # no mutant: only speed and memory depend on it
MIN_WINDOW_LOG, MAX_WINDOW_LOG = 10, 31


class BrokenStreamError(Exception):
    """The compressed data ends early or makes no sense; raised after everything before the break was given out."""

    def __init__(self, reason: Reason, detail: str, loss: Loss = NO_LOSS) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.loss = loss


class TooLargeWindowError(OSError):
    """The file asks for more memory to decompress it than there is; nothing is wrong with it."""

    def __init__(self, codec: Codec, windows: int) -> None:
        super().__init__(
            errno.ENOMEM,
            f"it was compressed by {codec} with a window larger than the {size(windows)} that the memory budget "
            "leaves for one: raise --max-memory, lower --num-workers, or compress it again with a smaller window",
        )


class Bytes(Protocol):
    """As much of a Source as it takes to decompress it."""

    @property
    def stat(self) -> Stat: ...
    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...
    def tell(self) -> int: ...


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _gunzip(windows: int | None) -> _Decompressor:  # noqa: ARG001 - its window is never more than 32 KiB
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _unzstd(windows: int | None) -> _Decompressor:
    # Public dumps are written with windows of up to 2 GiB (`zstd --long=31`), which the default refuses.
    log = MAX_WINDOW_LOG if windows is None else min(MAX_WINDOW_LOG, max(MIN_WINDOW_LOG, windows.bit_length() - 1))
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: log})


def _bunzip2(windows: int | None) -> _Decompressor:  # noqa: ARG001 - its blocks are never more than 900 kB
    return bz2.BZ2Decompressor()


def _unxz(windows: int | None) -> _Decompressor:
    return lzma.LZMADecompressor(memlimit=windows)


_NEW: dict[Codec, Callable[[int | None], _Decompressor]] = {
    Codec.GZIP: _gunzip,
    Codec.ZSTD: _unzstd,
    Codec.BZIP2: _bunzip2,
    Codec.XZ: _unxz,
}
_OVER_THE_WINDOW = ("Frame requires too much memory", "Memory usage limit exceeded")
"""How the libraries of zstd and xz say it: they have no error of its own for it."""
# The stubs of isal declare its exception class as an instance.
_ISAL_ERROR = cast(type[Exception], igzip_lib.IsalError)
_ERRORS: tuple[type[Exception], ...] = (
    _ISAL_ERROR,
    zstd.ZstdError,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
)


def pieces(file: Bytes, codec: Codec, windows: int | None = None) -> Iterator[bytes]:
    """The decompressed bytes of an open file. Raises BrokenStreamError where they end before they should.

    `windows`: how much of its output a decompressor may keep; a file that needs more is a TooLargeWindowError.
    """
    if codec is Codec.PLAIN:
        while data := file.read(4 * OUTPUT_BYTES):
            yield data
        return
    member, rest = 0, b""
    while True:
        # Tools pad members with zeros to fill a block; the format's own tools skip them too.
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := file.read(INPUT_BYTES)):
                if member == 0:
                    raise BrokenStreamError(Reason.TRUNCATED_FILE, f"the file holds no {codec} data")
                return
        start = file.tell() - len(rest)
        rest = yield from _member(file, codec, start, rest, member, windows)
        member += 1


def _member(
    file: Bytes, codec: Codec, start: int, data: bytes, member: int, windows: int | None
) -> Generator[bytes, None, bytes]:
    """One member or frame; returns the bytes behind it."""
    decompressor = _NEW[codec](windows)
    given, last = 0, start
    while not decompressor.eof:
        try:
            output = decompressor.decompress(data, OUTPUT_BYTES)
        except _ERRORS as error:
            if windows is not None and any(text in str(error) for text in _OVER_THE_WINDOW):
                raise TooLargeWindowError(codec, windows) from error
            broken_at = yield from _salvage(file, codec, start, last, given)
            raise _corrupt(codec, start, member, error, file.stat.size - broken_at) from error
        data = b""
        if output:
            given += len(output)
            yield output
        elif decompressor.needs_input and not decompressor.eof:
            # Only now: igzip and bzip2 ask for input while they still hold output, which may be the last there is.
            last = file.tell()
            if not (data := file.read(INPUT_BYTES)):
                raise BrokenStreamError(
                    Reason.TRUNCATED_FILE, f"the {codec} data ends in the middle of a stream: the file was cut off"
                )
    return decompressor.unused_data


def _corrupt(codec: Codec, start: int, member: int, error: Exception, unread: int) -> BrokenStreamError:
    where = f"the {codec} stream that begins at byte {start} of the file"
    if member and start:
        where += " (behind a complete one; perhaps foreign bytes at the end)"
    return BrokenStreamError(Reason.CORRUPT_FILE, f"{where} is corrupt: {error}", Loss(unread_bytes=unread))


def _salvage(file: Bytes, codec: Codec, start: int, last: int, given: int) -> Generator[bytes, None, int]:
    """What the failed call decompressed before it failed, found by going through the member again to that point.

    Returns up to where the file was of use: what lies behind gave no output.

    A decompressor that raises throws away the output of that call. With input and output a byte at a time nothing is
    lost: the last byte of the data is out before its checksum is in. Only bzip2 checks a block together with its last
    byte, and keeps that to itself.
    """
    decompressor = _NEW[codec](None)
    inputs = _again(file, start, last)
    done, data = 0, b""
    position = useful = start
    saved = bytearray()
    while not decompressor.eof:
        try:
            output = decompressor.decompress(data, min(OUTPUT_BYTES, given - done) if done < given else 1)
        except _ERRORS:
            break
        if done >= given:
            saved += output
            if len(saved) == OUTPUT_BYTES:  # igzip fails ahead of what it is asked for
                yield bytes(saved)
                saved.clear()
        done += len(output)
        data = b""
        if output:
            useful = position
        elif decompressor.needs_input:
            if not (data := next(inputs, b"")):
                break
            position += len(data)
    yield bytes(saved)
    return useful


def _again(file: Bytes, start: int, last: int) -> Iterator[bytes]:
    """The bytes of a file from `start` on, in pieces up to `last` and from there one by one."""
    file.seek(start)
    while (size := min(INPUT_BYTES, last - file.tell())) and (data := file.read(size)):
        yield data
    for byte in file.read(INPUT_BYTES):
        yield bytes([byte])
