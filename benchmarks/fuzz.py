"""Tries the readers on mutated inputs for a while, and says how many.

    python benchmarks/fuzz.py [--seconds 60] [--seed 1]

Run it in a checkout: what must hold is in tests/support/fuzzing.py. An input that breaks a promise is printed and
ends the run.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import lzma
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.fuzzing import (
    check_arrow,
    check_compressed,
    check_jsonl,
    check_lines,
    check_parquet,
    check_text,
)
from tests.support.sources import arrow_bytes

from tokenmill.records import Codec

LINES = [
    b'{"text": "a"}',
    b'{"text": ""}',
    b'{"id": 1, "text": "b", "meta": {"x": [1, 2, {"y": null}]}}',
    b'{"text": "\\u00e9\\ud83d\\ude00"}',
    b'{"text": "\xc3\xa9"}',
    b'{"text": "\\ud800"}',
    b'{"text": 1}',
    b"[]",
    b"{}",
    b" \t",
    b'{"text": "a"}{"text": "b"}',
    b'{"text": NaN}',
    b'{"text": "a", "text": "b"}',
    b"\xef\xbb\xbf" + b'{"text": "a"}',
    b'{"a": ' * 50 + b"1" + b"}" * 50,
]
CODECS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.compress,
    Codec.ZSTD: zstd.compress,
    Codec.BZIP2: bz2.compress,
    Codec.XZ: lzma.compress,
    Codec.PLAIN: lambda data: data,
}


class Fuzzer:
    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.tried: Counter[str] = Counter()
        self.parquet = list(_parquet_files())
        self.arrow = list(_arrow_files())

    def mutate(self, data: bytes) -> bytes:
        """A few bytes changed, removed, doubled or moved."""
        held = bytearray(data)
        for _ in range(self.random.randrange(4)):
            place = self.random.randrange(len(held) + 1)
            match self.random.randrange(5):
                case 0 if held:
                    held[place % len(held)] = self.random.randrange(256)
                case 1:
                    del held[place : place + self.random.randrange(1, 9)]
                case 2:
                    held[place:place] = held[place : place + self.random.randrange(1, 30)]
                case 3:
                    held[place:place] = self.random.randbytes(self.random.randrange(1, 5))
                case _:
                    del held[place:]
        return bytes(held)

    def lines(self) -> list[bytes]:
        chosen = self.random.choices(LINES, k=self.random.randrange(1, 8))
        return [self.mutate(line).replace(b"\n", b"") for line in chosen]

    def once(self) -> None:
        r = self.random.random()
        if r < 0.5:
            self.tried["blocks of lines"] += 1
            self.attempt(check_lines, self.lines())
        elif r < 0.65:
            codec = self.random.choice(list(CODECS))
            self.tried["compressed streams"] += 1
            self.attempt(check_compressed, self.mutate(CODECS[codec](b"\n".join(self.lines()))), codec)
        elif r < 0.75:
            codec = self.random.choice(list(CODECS))
            data = CODECS[codec](b"\n".join(self.lines()))
            self.tried["JSON Lines files"] += 1
            self.attempt(check_jsonl, self.folder / "a.jsonl", self.mutate(data), codec)
        elif r < 0.78:
            self.tried["text files"] += 1
            self.attempt(check_text, self.folder / "a.txt", self.mutate(b"\n".join(self.lines())))
        elif r < 0.88:
            self.tried["Arrow files"] += 1
            self.attempt(check_arrow, self.folder / "a.arrow", self.mutate(self.random.choice(self.arrow)))
        else:
            self.tried["Parquet files"] += 1
            self.attempt(check_parquet, self.folder / "a.parquet", self.mutate(self.random.choice(self.parquet)))

    def attempt(self, check: Callable[..., None], *arguments: object) -> None:
        try:
            check(*arguments)
        except BaseException:
            print(f"{check.__name__}{arguments!r}", file=sys.stderr)
            raise


def _parquet_files() -> Iterator[bytes]:
    """One of each kind of column, encoding and codec that a text may come in."""
    words = [f"row {n} " + "word " * (n % 7) for n in range(40)]
    columns: list[tuple[pa.Array, dict[str, Any]]] = [
        (pa.array(words), {}),
        (pa.array(words), {"compression": "zstd", "write_page_index": True}),
        (pa.array(words), {"compression": "gzip", "data_page_version": "2.0", "use_dictionary": False}),
        (pa.array(words, pa.large_string()), {"compression": "none", "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}),
        (pa.array(words).dictionary_encode(), {"store_schema": True}),
        (pa.array([None if n % 3 else w for n, w in enumerate(words)]), {"write_statistics": False}),
        (pa.array(range(40)), {}),
        (pa.array(range(40), pa.timestamp("ns")), {}),
        (pa.array([words[:n] for n in range(40)]), {}),
    ]
    for column, options in columns:
        options = {"use_dictionary": "column_encoding" not in options} | options
        buffer = io.BytesIO()
        pq.write_table(
            pa.table({"id": [f"id {n}" for n in range(40)], "text": column}), buffer, row_group_size=10, **options
        )
        yield buffer.getvalue()


def _arrow_files() -> Iterator[bytes]:
    """Each format and codec with one of each kind of column that a text may come in, or not."""
    words = [f"row {n} " + "word " * (n % 7) for n in range(20)]
    columns: list[Any] = [
        pa.array([None if n % 5 == 4 else w for n, w in enumerate(words)]),
        pa.array(words, pa.large_string()),
        pa.array(words).cast(pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array(range(20)), pa.array(words)),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(words)),
        pa.RunEndEncodedArray.from_arrays(pa.array([5, 20]), pa.array(words[:2])),
        pa.array([words[:n] for n in range(20)]),
        pa.array(range(20), pa.timestamp("ns")),
    ]
    for column in columns:
        batch = pa.RecordBatch.from_pydict({"id": [{"n": [w]} for w in words], "text": column})
        for kind in ("file", "stream"):
            for compression in (None, "lz4", "zstd"):
                yield arrow_bytes([batch] * 3, kind, compression)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    print(f"should a library end the process, its last input is in {folder}", flush=True)
    fuzzer = Fuzzer(args.seed, folder)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        for _ in range(100):
            fuzzer.once()
    shutil.rmtree(folder)
    for name, count in fuzzer.tried.most_common():
        print(f"{count:>12,}  {name}")
    print(f"{fuzzer.tried.total():>12,}  inputs in all, seed {args.seed}: every promise held")


if __name__ == "__main__":
    main()
