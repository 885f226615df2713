"""Compressed files: every member, every frame; of a broken one, everything before the break."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable

import pytest
from backports import zstd

from tokenmill.read.decompress import OUTPUT_BYTES, BrokenStreamError, pieces
from tokenmill.records import Codec, Reason

COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.compress,
    # With a checksum, as the zstd program writes it: without one, damage goes unseen by any reader.
    Codec.ZSTD: lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
    Codec.BZIP2: lambda data: bz2.compress(data, 1),
    Codec.XZ: lzma.compress,
}
CODECS = pytest.mark.parametrize("codec", list(COMPRESS))
# Some megabytes that compress, but not to nothing: breaks can fall anywhere.
DATA = b"".join(b"%d %x\n" % (n, random.Random(n).getrandbits(64)) for n in range(60_000))


def read(data: bytes, codec: Codec) -> tuple[bytes, BrokenStreamError | None]:
    found = []
    try:
        for piece in pieces(io.BytesIO(data), codec):
            found.append(piece)
    except BrokenStreamError as error:
        return b"".join(found), error
    return b"".join(found), None


@CODECS
def test_a_whole_file_is_read_in_bounded_pieces(codec: Codec) -> None:
    found = list(pieces(io.BytesIO(COMPRESS[codec](DATA)), codec))
    assert b"".join(found) == DATA
    assert max(map(len, found)) <= OUTPUT_BYTES


@CODECS
@pytest.mark.parametrize("padding", [b"", b"\0" * 512])
def test_all_members_are_read(codec: Codec, padding: bytes) -> None:
    members = [DATA[:100_000], b"", b"one line\n", DATA[100_000:]]
    assert read(padding.join(map(COMPRESS[codec], members)) + padding, codec) == (b"".join(members), None)


@CODECS
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_truncated_file_gives_what_came_before_and_says_so(codec: Codec, share: float) -> None:
    whole = COMPRESS[codec](DATA)
    found, error = read(whole[: int(len(whole) * share)], codec)
    assert error is not None
    assert error.reason is Reason.TRUNCATED_FILE
    assert DATA.startswith(found)
    assert len(found) > len(DATA) * (share - 0.15)  # bzip2 and zstd decode whole blocks only


@CODECS
def test_a_file_cut_in_a_later_member_keeps_the_members_before(codec: Codec) -> None:
    first, second = COMPRESS[codec](DATA), COMPRESS[codec](b"x" * 1000)
    found, error = read(first + second[:-3], codec)
    assert error is not None
    assert error.reason is Reason.TRUNCATED_FILE
    assert found.startswith(DATA)


@CODECS
def test_a_corrupt_file_gives_what_came_before_and_says_so(codec: Codec) -> None:
    whole = bytearray(COMPRESS[codec](DATA))
    middle = len(whole) // 2
    whole[middle : middle + 64] = bytes(b ^ 0x5A for b in whole[middle : middle + 64])
    found, error = read(bytes(whole), codec)
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE
    common = next((i for i, (a, b) in enumerate(zip(found, DATA, strict=False)) if a != b), len(found))
    assert common > len(DATA) * 0.4


@CODECS
def test_a_wrong_checksum_at_the_end_loses_no_data(codec: Codec) -> None:
    whole = bytearray(COMPRESS[codec](DATA))
    place = {Codec.GZIP: -8, Codec.ZSTD: -2, Codec.BZIP2: -3, Codec.XZ: -30}[codec]
    whole[place] ^= 0x01
    found, error = read(bytes(whole), codec)
    assert error is not None
    assert DATA.startswith(found)
    assert len(found) >= len(DATA) - 1  # the last byte is asked for together with the checksum


@CODECS
def test_foreign_bytes_behind_the_stream_are_reported(codec: Codec) -> None:
    found, error = read(COMPRESS[codec](DATA) + b"<html>404</html>" * 10, codec)
    assert found == DATA
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE
    assert "behind a complete one" in error.detail


@CODECS
def test_an_empty_file_is_a_truncated_one(codec: Codec) -> None:
    found, error = read(b"", codec)
    assert found == b""
    assert error is not None
    assert error.reason is Reason.TRUNCATED_FILE


@CODECS
def test_a_bomb_expands_in_bounded_pieces(codec: Codec) -> None:
    bomb = COMPRESS[codec](b"\0" * (64 << 20))
    assert len(bomb) < 100_000
    sizes = [len(p) for p in pieces(io.BytesIO(bomb), codec)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= OUTPUT_BYTES


def test_zstd_with_the_longest_window_is_read() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 31,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    assert read(compressor.compress(DATA) + compressor.flush(), Codec.ZSTD) == (DATA, None)


def test_bytes_that_are_not_compressed_are_corrupt() -> None:
    found, error = read(b'{"text": "plain"}\n', Codec.GZIP)
    assert found == b""
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE
