"""What a name says."""

from __future__ import annotations

import pytest

from tokenmill.read.names import Hint, Named, read_name
from tokenmill.records import Codec, Format


@pytest.mark.parametrize(
    ("name", "codec", "format_", "hint"),
    [
        ("a/b.JSONL.GZ", Codec.GZIP, Format.JSONL, Hint.JSON),
        ("a.json.zst", Codec.ZSTD, None, Hint.JSON),
        ("a.txt", Codec.PLAIN, Format.TEXT, Hint.OTHER),
        ("a.jsonl.00012", Codec.PLAIN, None, Hint.JSON),
        ("c4-train.00012-of-01024.json.gz", Codec.GZIP, None, Hint.JSON),
        ("part-00000", Codec.PLAIN, None, Hint.SHARD),
        ("part-r-00000.bz2", Codec.BZIP2, None, Hint.SHARD),
        ("part-00000-1f3a-44.c000", Codec.PLAIN, None, Hint.SHARD),
        ("part-00000-1f3a-44.c000.snappy.orc", Codec.PLAIN, None, Hint.OTHER),
        ("000000_0", Codec.PLAIN, None, Hint.SHARD),
        ("000000_0_copy_1.xz", Codec.XZ, None, Hint.SHARD),
        ("data-00000-of-00002", Codec.PLAIN, None, Hint.SHARD),
        ("data.7", Codec.PLAIN, None, Hint.SHARD),
        ("a.b/data", Codec.PLAIN, None, Hint.NOTHING),
        ("data.gz", Codec.GZIP, None, Hint.NOTHING),
        ("app.log.1", Codec.PLAIN, None, Hint.OTHER),
        ("notes.md", Codec.PLAIN, None, Hint.OTHER),
        ("shards.tar.gz", Codec.GZIP, None, Hint.OTHER),
    ],
)
def test_a_name_says_how_a_file_is_compressed_and_what_it_may_be(
    name: str, codec: Codec, format_: Format | None, hint: Hint
) -> None:
    assert read_name(name) == Named(codec, format_, hint)


@pytest.mark.parametrize(
    ("name", "is_data"),
    [("a.jsonl.lz4", True), ("a.json.7.br", True), ("part-00000.snappy", True), ("photos.zip", False), ("a.7z", False)],
)
def test_data_that_is_compressed_in_another_way_is_known_by_its_name(name: str, is_data: bool) -> None:
    assert read_name(name) == Named(Codec.PLAIN, None, Hint.OTHER, is_out_of_reach=is_data)
