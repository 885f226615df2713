"""Compares every document of an output with Hugging Face tokenizers, id by id, in order.

    python benchmarks/parity.py CORPUS OUTPUT

CORPUS holds .jsonl.gz shards whose records have a text. The source is read with gzip and json of the standard library
and encoded by the reference; nothing of tokenmill but `tokenmill.open` takes part. EOS must follow each document.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import tokenizers

import tokenmill

BATCH = 256


def source(corpus: Path) -> Iterator[tuple[str, int, str]]:
    for path in sorted(corpus.glob("*.jsonl.gz"), key=lambda p: p.name.encode()):
        with gzip.open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if text := json.loads(line)["text"]:
                    yield path.name, number, text


def main() -> None:
    corpus, output = Path(sys.argv[1]), sys.argv[2]
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(tokenmill.__file__).parent / "data" / "gpt-neox-20b.json"))
    tokenizer.encode_special_tokens = True
    rows = tokenmill.open(output)
    eos = rows.manifest["tokenizer"]["eos_id"]
    stored, expected = rows.documents(), source(corpus)
    documents = tokens = 0
    while batch := list(islice(expected, BATCH)):
        encodings = tokenizer.encode_batch_fast([text for *_, text in batch], add_special_tokens=False)
        for (file, number, _), encoding, found in zip(batch, encodings, stored, strict=False):
            if (found.file, found.record) != (file, number):
                raise SystemExit(f"document {documents}: from {found.file}:{found.record}, not {file}:{number}")
            if not np.array_equal(found.tokens, [*encoding.ids, eos]):
                raise SystemExit(f"{file}:{number}: other ids than the reference")
            documents += 1
            tokens += len(encoding.ids)
        print(f"\r{documents:,} documents", end="", file=sys.stderr, flush=True)
    if next(stored, None) is not None or documents != rows.manifest["ledger"]["documents"]:
        raise SystemExit("the output has another number of documents than the source")
    print(f"\n{documents:,} documents, {tokens:,} tokens: the same as Hugging Face tokenizers, in the same order")


if __name__ == "__main__":
    main()
