"""The same text in other formats and other sizes of document: how fast is each, compared with gzipped JSON Lines?

    python benchmarks/shapes.py CORPUS [--engine extreme] [--workers 2] [--repeat 3] [--json FILE]

CORPUS holds .jsonl.gz shards. The shapes are written below a temporary folder: gzip, zstd, plain and Parquet with the
same documents; and the same text, gzipped, cut into documents of 200 bytes and put together into documents of 10 MB.
Runs take turns; the best of the repeats counts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from tokenmill.benchmark.report import machine
from tokenmill.benchmark.runs import Contender, run_engine
from tokenmill.config import DEFAULT_TOKENIZER
from tokenmill.messages import aligned, size

SHORT, LONG = 200, 10_000_000


def read(shard: Path) -> list[str]:
    with gzip.open(shard) as file:
        return [json.loads(line)["text"] for line in file]


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": t}, ensure_ascii=False).encode() + b"\n" for t in texts)


def cut(texts: list[str]) -> list[str]:
    return [t[i : i + SHORT] for t in texts for i in range(0, len(t), SHORT)]


def joined(texts: list[str]) -> Iterator[str]:
    held, length = [], 0
    for text in texts:
        held.append(text)
        length += len(text)
        if length >= LONG:
            yield "\n".join(held)
            held, length = [], 0
    if held:
        yield "\n".join(held)


SHAPES: dict[str, Callable[[Path, list[str]], object]] = {
    "gzip": lambda path, t: path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(lines(t), 6)),
    "zstd": lambda path, t: path.with_suffix(".jsonl.zst").write_bytes(zstd.compress(lines(t), 3)),
    "plain": lambda path, t: path.with_suffix(".jsonl").write_bytes(lines(t)),
    "Parquet": lambda path, t: pq.write_table(pa.table({"text": t}), path.with_suffix(".parquet"), 2000),
    "gzip, documents of 200 bytes": lambda path, t: path.with_suffix(".jsonl.gz").write_bytes(
        gzip.compress(lines(cut(t)), 6)
    ),
    "gzip, documents of 10 MB": lambda path, t: path.with_suffix(".jsonl.gz").write_bytes(
        gzip.compress(lines(list(joined(t))), 6)
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--engine", default="extreme")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tokenmill-shapes-"))
    try:
        for name in SHAPES:
            (work / name).mkdir()
        for shard in sorted(args.corpus.glob("*.gz")):
            texts = read(shard)
            for name, write in SHAPES.items():
                write(work / name / shard.name.split(".")[0], texts)
        found = {name: Contender(name=args.engine, workers=args.workers, seconds=[]) for name in SHAPES}
        for _ in range(args.repeat):
            for name, contender in found.items():
                options = {"inputs": [str(work / name)], "tokenizer": DEFAULT_TOKENIZER, "text_field": "text"}
                run_engine(contender, options, work / "out", work / "log")
    finally:
        shutil.rmtree(work)
    rates = {name: c.text_bytes / c.best / 1e6 for name, c in found.items()}
    rows = [("Shape", "Documents", "Time (s)", "MB/s", "To gzip", "Peak memory")]
    for name, c in found.items():
        ratio = f"{rates[name] / rates['gzip']:.2f}x"
        rows.append((name, f"{c.documents:,}", f"{c.best:.2f}", f"{rates[name]:.1f}", ratio, size(c.peak_memory)))
    print(f"{args.engine} with {args.workers} worker(s), start-up included")
    print("\n".join(aligned(rows)))
    if args.json:
        entries = {name: asdict(contender) for name, contender in found.items()}
        args.json.write_text(json.dumps({"machine": machine(), "shapes": entries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
