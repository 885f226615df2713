"""Compressed files: every member, every frame; of a broken one, everything before the break."""

from __future__ import annotations

import bz2
import lzma
import random
import struct
import zlib
from functools import cache

import pytest
from backports import zstd

from tests.support.compression import COMPRESS
from tests.support.fuzzing import decompress_plainly
from tests.support.fuzzing import read_pieces as read
from tests.support.sources import opened
from tokenmill.read import decompress
from tokenmill.read.decompress import INPUT_BYTES, OUTPUT_BYTES, TooLargeWindowError, pieces
from tokenmill.records import Codec, Loss, Reason

CODECS = pytest.mark.parametrize("codec", list(COMPRESS))
# Some megabytes that compress, but not to nothing: breaks can fall anywhere.
DATA = b"".join(b"%d %x\n" % (n, random.Random(n).getrandbits(64)) for n in range(60_000))


@cache
def compressed(codec: Codec) -> bytes:
    """DATA, which takes its time with some codecs."""
    return COMPRESS[codec](DATA)


@CODECS
def test_a_whole_file_is_read_in_bounded_pieces(codec: Codec) -> None:
    found = list(pieces(opened(compressed(codec)), codec))
    assert b"".join(found) == DATA
    assert max(map(len, found)) <= OUTPUT_BYTES


@CODECS
@pytest.mark.parametrize("padding", [b"", b"\0" * 512, b"\0" * 2 * INPUT_BYTES], ids=["none", "some", "much"])
def test_all_members_are_read(codec: Codec, padding: bytes) -> None:
    members = [DATA[:100_000], b"", b"one line\n", DATA[100_000:]]
    assert read(padding.join(map(COMPRESS[codec], members)) + padding, codec) == (b"".join(members), None)


@CODECS
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_a_truncated_file_gives_what_came_before_and_says_so(codec: Codec, share: float) -> None:
    whole = compressed(codec)
    found, error = read(whole[: int(len(whole) * share)], codec)
    assert error is not None
    assert error.reason is Reason.TRUNCATED_FILE
    assert error.detail == f"the {codec} data ends in the middle of a stream: the file was cut off"
    assert DATA.startswith(found)
    assert len(found) > len(DATA) * (share - 0.15)  # bzip2 and zstd decode whole blocks only


@CODECS
def test_a_truncated_file_gives_every_byte_that_its_library_can_decode(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut anywhere, and with buffers so small that decompressors hold back output when the input ends."""
    monkeypatch.setattr(decompress, "INPUT_BYTES", 16)
    monkeypatch.setattr(decompress, "OUTPUT_BYTES", 8)
    data = b"so many words, so many words, so many words\n" * 9 + bytes(range(64))
    whole = COMPRESS[codec](data)
    for size in range(1, len(whole)):
        found, error = read(whole[:size], codec)
        assert data.startswith(found)
        assert (found, bool(error)) == (decompress_plainly(whole[:size], codec)[0], True)


def test_a_truncated_gzip_file_gives_all_but_its_last_symbols() -> None:
    """Its decoder takes up to three symbols in one step, and waits for the bits of all. Here most are a byte."""
    whole = compressed(Codec.GZIP)
    for size in range(50_000, len(whole), 20_011):
        found, wanted = read(whole[:size], Codec.GZIP)[0], zlib.decompressobj(31).decompress(whole[:size])
        assert wanted.startswith(found)
        assert len(wanted) - len(found) <= 2


@CODECS
def test_a_file_cut_in_a_later_member_keeps_the_members_before_and_what_there_is_of_it(codec: Codec) -> None:
    """The last three bytes hold checksums and sizes only, so that all of the data is there."""
    found, error = read(compressed(codec) + COMPRESS[codec](b"x" * 1000)[:-3], codec)
    assert error is not None
    assert error.reason is Reason.TRUNCATED_FILE
    assert found == DATA + b"x" * 1000


@CODECS
def test_a_corrupt_file_gives_what_came_before_and_says_so(codec: Codec) -> None:
    whole = bytearray(compressed(codec))
    middle = len(whole) // 2
    whole[middle : middle + 64] = bytes(b ^ 0x5A for b in whole[middle : middle + 64])
    found, error = read(bytes(whole), codec)
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE
    common = next((i for i, (a, b) in enumerate(zip(found, DATA, strict=False)) if a != b), len(found))
    assert common > len(DATA) * 0.4


def checksum_place(whole: bytes, codec: Codec) -> int:
    """Where the checksum of all the data stands."""
    if codec is Codec.XZ:  # before the index, whose size stands in the footer
        words = int.from_bytes(whole[-8:-4], "little")
        return len(whole) - 12 - 4 * (words + 1) - 1
    return len(whole) - {Codec.GZIP: 8, Codec.ZSTD: 2, Codec.BZIP2: 3}[codec]


def with_wrong_checksum(data: bytes, codec: Codec) -> bytes:
    whole = COMPRESS[codec](data)
    damaged = bytearray(whole)
    damaged[checksum_place(whole, codec)] ^= 0x01
    return bytes(damaged)


@CODECS
def test_a_wrong_checksum_at_the_end_loses_no_data(codec: Codec) -> None:
    found, error = read(with_wrong_checksum(DATA, codec), codec)
    assert found == DATA
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE


@CODECS
def test_a_wrong_checksum_loses_no_data_wherever_the_pieces_end(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompress, "INPUT_BYTES", 16)
    monkeypatch.setattr(decompress, "OUTPUT_BYTES", 8)
    for size in range(1, 70):
        data = DATA[:size]
        found, error = read(with_wrong_checksum(data, codec), codec)
        assert (found, bool(error)) == (data, True)


def test_a_wrong_checksum_of_a_bzip2_block_costs_one_byte() -> None:
    """The library checks a block in the call that gives its last byte, and that call fails."""
    data = b"all in one block\n"
    whole = bytearray(bz2.compress(data))
    whole[10] ^= 0x01  # behind "BZh9" and the magic of the block
    found, error = read(bytes(whole), Codec.BZIP2)
    assert (found, bool(error)) == (data[:-1], True)


@CODECS
def test_damage_in_a_later_member_gives_every_byte_once(codec: Codec) -> None:
    """What is found before the damage is found by reading that member again, not the ones before."""
    first, second = DATA[:1000], DATA[:50_000]
    found, error = read(COMPRESS[codec](first) + with_wrong_checksum(second, codec), codec)
    assert found == first + second
    assert error is not None
    assert f"begins at byte {len(COMPRESS[codec](first))} of the file (behind a complete one" in error.detail


@CODECS
def test_foreign_bytes_behind_the_stream_are_reported(codec: Codec) -> None:
    found, error = read(compressed(codec) + b"<html>404</html>" * 10, codec)
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
    sizes = []
    for piece in pieces(opened(bomb), codec):
        assert not piece.strip(b"\0")
        sizes.append(len(piece))
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= OUTPUT_BYTES


def test_zstd_with_the_longest_window_is_read() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 31,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    assert read(compressor.compress(DATA) + compressor.flush(), Codec.ZSTD) == (DATA, None)


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.XZ])
def test_a_window_larger_than_there_is_memory_for_is_told_and_is_not_damage(codec: Codec) -> None:
    with_window: dict[int, int] = {zstd.CompressionParameter.window_log: 22}
    compressor = zstd.ZstdCompressor(options=with_window)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4 << 20}]
    packed = (
        compressor.compress(DATA) + compressor.flush() if codec is Codec.ZSTD else lzma.compress(DATA, filters=filters)
    )
    assert b"".join(pieces(opened(packed), codec, 5 << 20)) == DATA
    with pytest.raises(TooLargeWindowError, match=r"larger than the 4\.0 MB .*raise --max-memory"):
        next(pieces(opened(packed), codec, 4_000_000))
    assert b"".join(pieces(opened(packed), codec)) == DATA


def skippable(size: int, kind: int = 0) -> bytes:
    """A frame of zstd that holds anything but data, as tools for seeking and signing write it."""
    return struct.pack("<II", 0x184D2A50 + kind, size) + b"?" * size


@pytest.mark.parametrize("size", [0, 5, 2 * INPUT_BYTES])
@pytest.mark.parametrize("kind", [0, 15])
def test_skippable_frames_of_zstd_are_passed_over_wherever_they_stand(size: int, kind: int) -> None:
    one, two, other = zstd.compress(b"one\n"), zstd.compress(b"two\n"), skippable(size, kind)
    assert read(other + one + other + other + two + other, Codec.ZSTD) == (b"one\ntwo\n", None)


def test_a_skippable_frame_that_is_cut_off_is_reported() -> None:
    found, error = read(zstd.compress(b"one\n") + skippable(5)[:-1], Codec.ZSTD)
    assert found == b"one\n"
    assert error is not None
    assert error.reason is Reason.TRUNCATED_FILE


def test_bytes_that_are_not_compressed_are_corrupt() -> None:
    found, error = read(b'{"text": "plain"}\n', Codec.GZIP)
    assert found == b""
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE


@CODECS
def test_how_much_of_a_corrupt_file_gave_nothing_is_told(codec: Codec) -> None:
    """About: a codec decodes whole blocks, of up to 900 kB with bzip2, and some find the damage later."""
    whole = compressed(codec)
    data = bytearray(whole + whole)
    place = len(whole) + len(whole) // 2
    data[place : place + 64] = b"\xa5" * 64
    found, error = read(bytes(data), codec)
    assert error is not None
    assert error.reason is Reason.CORRUPT_FILE
    assert error.loss.unread_bytes is not None
    assert 0 < error.loss.unread_bytes < len(whole) + 64
    assert len(data) - error.loss.unread_bytes >= len(whole)
    assert found.startswith(DATA)


def test_nobody_knows_what_lay_behind_the_end_of_a_truncated_file() -> None:
    _, error = read(compressed(Codec.GZIP)[:1000], Codec.GZIP)
    assert error is not None
    assert error.loss == Loss()
