"""Makes the golden corpus.

    python -m tests.golden.make_corpus

The corpus is committed. Run this only to add a case; other versions of the compressors and of pyarrow write other bytes
for the same content, and then every digest changes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
TOO_LARGE = 2000
LONG = ("before", "over three chunks " * 50, "after")


def lines(*records: Any) -> bytes:
    return b"".join(r + b"\n" if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in records)


def texts(*values: str) -> bytes:
    return lines(*({"text": v, "id": f"id of {v[:8]}"} for v in values))


def every_reason() -> tuple[bytes, list[str]]:
    """A BOM, every reason to reject a record, ids of every kind, blank lines, CRLF, no newline at the end."""
    records: list[Any] = [
        {"text": "the first", "id": "a"},
        b'{"text": "cut off',
        b"[1, 2]",
        {"body": "no text here"},
        {"text": 3},
        {"text": None, "id": 1},
        b'{"text": "not \xff UTF-8"}',
        b'{"text": "half \\ud83d a pair"}',
        {"text": "x" * TOO_LARGE},
        b"",
        b"  \r",
        {"text": "", "id": "empty"},
        b'{"text": "CRLF", "id": 7}\r',
        {"text": "no id"},
        {"id": {"nested": [1, None]}, "text": "ünïcödé 漢字 😀 e\u0301"},
        b'{"text": "NaN is what Python writes", "id": NaN}',
        {"text": "a literal <|endoftext|> and <|padding|> in a text", "id": None},
        {"text": "<|endoftext|>"},
        {"text": " white space \t\n\n kept "},
        {"text": "\x00 control \x1b[31m"},
        {"id": "last", "text": "the last, without a newline"},
    ]
    kept = [
        "the first",
        "CRLF",
        "no id",
        "ünïcödé 漢字 😀 e\u0301",
        "NaN is what Python writes",
        "a literal <|endoftext|> and <|padding|> in a text",
        "<|endoftext|>",
        " white space \t\n\n kept ",
        "\x00 control \x1b[31m",
        "the last, without a newline",
    ]
    return b"\xef\xbb\xbf" + lines(*records).rstrip(b"\n"), kept


def gunzip_members() -> tuple[bytes, list[str]]:
    """Several members, one of them empty, a line over two members, zeros between and behind."""
    whole = texts("member one", "over two members", "member three")
    cut = whole.index(b"two members")
    members = [gzip.compress(whole[:cut], mtime=0), gzip.compress(b"", mtime=0), gzip.compress(whole[cut:], mtime=0)]
    return (b"\0" * 512).join(members) + b"\0" * 512, ["member one", "over two members", "member three"]


def zstd_frames() -> tuple[bytes, list[str]]:
    """Skippable frames first, between and last."""
    skippable = b"\x52\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    frames = [zstd.compress(texts("frame one")), zstd.compress(texts("frame two", "frame two again"))]
    return skippable + skippable.join(frames) + skippable, ["frame one", "frame two", "frame two again"]


def table() -> tuple[bytes, list[str]]:
    """Several row groups, null, empty, bytes that are no UTF-8, special tokens, ids that may be null."""
    values = [f"row {n}" for n in range(7)]
    column: list[bytes | None] = [v.encode() for v in values]
    column[2], column[4], column[5] = None, b"", b"\xff\xfe"
    ids = pa.array([10, 11, None, 13, 14, 15, 16])
    buffer = io.BytesIO()
    pq.write_table(pa.table({"n": ids, "id": ids, "text": pa.array(column, pa.binary())}), buffer, row_group_size=3)
    return buffer.getvalue(), ["row 0", "row 1", "row 3", "row 6"]


def truncated() -> tuple[bytes, list[str]]:
    """Cut off in the middle of a deflate block that holds nothing compressible: the lines before it are whole."""
    rng = random.Random(1)
    values = [rng.randbytes(300).hex() for _ in range(12)]
    whole = gzip.compress(texts(*values), 1, mtime=0)
    data = whole[: len(whole) // 2]
    complete = zlib.decompressobj(31).decompress(data).split(b"\n")[:-1]
    return data, [json.loads(line)["text"] for line in complete]


def wrong_checksum() -> tuple[bytes, list[str]]:
    values = ["before the wrong checksum", "and this"]
    data = bytearray(zstd.compress(texts(*values), options={zstd.CompressionParameter.checksum_flag: 1}))
    data[-1] ^= 1
    return bytes(data), values


def many() -> tuple[bytes, list[str]]:
    """Enough for several units: short and long documents, bad lines among them."""
    rng = random.Random(2)
    values = ["".join(rng.choices("abcde fghij\n", k=rng.randrange(1, 160))) for _ in range(150)]
    records: list[Any] = []
    for n, value in enumerate(values):
        records.append({"text": value, "id": n})
        if n % 40 == 39:
            records.append(b"broken, number %d" % n)
    return lines(*records), values


def arrow(values: list[Any], kind: Any, *, is_file: bool, compression: Any = None) -> bytes:
    """Record batches of 20 rows each."""
    ids = [f"id of {n}" for n in range(len(values))]
    column: Any = pa.array(values, pa.binary()).view(pa.string()).cast(kind, safe=False)
    batches = pa.table({"n": range(len(values)), "id": ids, "text": column}).to_batches(20)
    buffer = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_file if is_file else pa.ipc.new_stream)(buffer, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return buffer.getvalue()


def arrow_files() -> dict[str, tuple[bytes, list[str]]]:
    """Both formats of Arrow, a saved dataset with its notes, every layout of text, bad rows, a file of many units."""
    rng = random.Random(3)
    values = ["".join(rng.choices("abcde fghij\nü", k=rng.randrange(1, 160))) for _ in range(90)]
    good = [v.encode() for v in values]
    bad: list[bytes | None] = [
        *good[:30],
        None,
        b"",
        b"\xff\xfe",
        b"x" * (TOO_LARGE + 1),
        b"<|endoftext|>",
        *good[30:40],
    ]
    kept = [*values[:30], "<|endoftext|>", *values[30:40]]
    views, words = pa.string_view(), pa.dictionary(pa.int8(), pa.string())
    return {
        "01-file.arrow": (arrow(good, pa.large_string(), is_file=True, compression="lz4"), values),
        "02-views.arrow": (arrow(good[:25], views, is_file=True, compression="zstd"), values[:25]),
        "03-words.arrow": (arrow(good[:3] * 10, words, is_file=False), values[:3] * 10),
        "saved/data-00000-of-00002.arrow": (arrow(bad, pa.string(), is_file=False), kept),
        "saved/data-00001-of-00002.arrow": (arrow(good[40:], pa.string(), is_file=False), values[40:]),
        "saved/dataset_info.json": (b'{\n  "features": {}\n}', []),
        "saved/state.json": (b'{\n  "_data_files": []\n}', []),
    }


def write_arrow() -> None:
    for name, (data, _) in arrow_files().items():
        path = FOLDER / "corpus-arrow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def main() -> None:
    write_arrow()
    files: dict[str, tuple[bytes, list[str]]] = {
        "01-every-reason.jsonl": every_reason(),
        "02-members.jsonl.gz": gunzip_members(),
        "03-frames.jsonl.zst": zstd_frames(),
        "04-streams.jsonl.bz2": (bz2.compress(texts("stream one")) + bz2.compress(texts("two")), ["stream one", "two"]),
        "05-streams.jsonl.xz": (lzma.compress(texts("stream 1")) + lzma.compress(texts("2")), ["stream 1", "2"]),
        "06-table.parquet": table(),
        "07-letter.txt": ("\ufeffOne file,\r\none document.\n".encode(), ["One file,\r\none document.\n"]),
        "08-letter.txt.gz": (gzip.compress(b"compressed", mtime=0), ["compressed"]),
        "09-not-text.txt": (b"latin \xe9", []),
        "10-truncated.jsonl.gz": truncated(),
        "11-checksum.jsonl.zst": wrong_checksum(),
        "12-long.jsonl": (texts(*LONG), list(LONG)),
        "13-many.jsonl": many(),
        "14-empty.jsonl": (b"", []),
        "15-no-footer.parquet": (b"PAR1" + b"\0" * 40, []),
        "dataset.md": (b"# not an input\n", []),
    }
    CORPUS.mkdir(exist_ok=True)
    for name, (data, _) in files.items():
        (CORPUS / name).write_bytes(data)
    expected = {name: kept for name, (_, kept) in files.items()}
    (FOLDER / "texts.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
