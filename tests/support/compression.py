"""Compressors for every codec, as the usual programs write."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

from backports import zstd

from tokenmill.records import Codec

COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.compress,
    # With a checksum, as the zstd program writes it: without one, damage goes unseen by any reader.
    Codec.ZSTD: lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
    Codec.BZIP2: lambda data: bz2.compress(data, 1),
    Codec.XZ: lzma.compress,
}
SUFFIX = {Codec.GZIP: ".gz", Codec.ZSTD: ".zst", Codec.BZIP2: ".bz2", Codec.XZ: ".xz"}
