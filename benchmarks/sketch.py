"""The least that could be done, to know what all else costs: decompress, decode, encode, write; a thread per file.

    python benchmarks/sketch.py SHARDS TOKENIZER.json OUT [--threads 2]

SHARDS is a folder of gzipped JSON Lines with a field `text`. No EOS, rows, sidecar or checksums; a bad line ends it.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["FASTOKENS_BPE_THREADS"] = "1"

import fastokens
import msgspec
import numpy as np
from isal import igzip_lib

BLOCK_BYTES = 1 << 20


class Record(msgspec.Struct, gc=False):
    text: str


def tokenize(shard: Path, out: Path, tokenizer: Any) -> int:
    """How many documents there were."""
    decode = msgspec.json.Decoder(Record).decode_lines
    stream = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    tail, documents = b"", 0
    with shard.open("rb") as source, out.open("wb") as target:
        while not stream.eof:
            data = source.read(BLOCK_BYTES // 4) if stream.needs_input else b""
            block = tail + stream.decompress(data, BLOCK_BYTES)
            cut = block.rfind(b"\n") + 1
            tail = block[cut:]
            texts = [record.text for record in decode(block[:cut])] if cut else []
            ids, _ = tokenizer.encode_batch_flat(texts, split_special_tokens=True)
            target.write(np.frombuffer(ids, "<u4").astype("<u2"))
            documents += len(texts)
    return documents


def main() -> None:
    begun = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    tokenizer = fastokens.Tokenizer.from_json_str(args.tokenizer.read_text("utf-8"))
    args.out.mkdir(parents=True, exist_ok=True)
    loaded = time.perf_counter() - begun
    with ThreadPoolExecutor(args.threads) as threads:
        shards = sorted(args.shards.glob("*.gz"))
        counts = threads.map(lambda shard: tokenize(shard, args.out / f"{shard.stem}.bin", tokenizer), shards)
    total = time.perf_counter() - begun
    print(f"{sum(counts):,} documents, {total:.2f} s, of which loading {loaded:.2f} s; imports are not counted")


if __name__ == "__main__":
    main()
