"""Encoding alone: what a library, a batch and a thread are worth.

`python -m tokenmill.benchmark.methods METHOD TEXTS TOKENIZER` encodes once and prints JSON. Every measurement is such a
process: caches are cold, as they are when a job starts, and its peak memory is its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xxhash

from tokenmill.engines.machine import peak_memory

BATCHES = (32, 64, 100, 256)
REFERENCE, FASTOKENS = "huggingface", "fastokens"

Encode = Callable[[list[str]], list[Sequence[int]]]


def method_names() -> list[str]:
    """All methods, the guide's first; what a library is missing for is left out."""
    libraries = [REFERENCE, FASTOKENS] + (["gigatoken"] if importlib.util.find_spec("gigatoken") else [])
    return [name for library in libraries for name in (f"{library}_single", *(f"{library}_batch_{n}" for n in BATCHES))]


def library_of(method: str) -> str:
    """As in library_of("huggingface_batch_32"), which is huggingface."""
    return method.split("_")[0]


def _load(library: str, tokenizer: str) -> Encode:
    if library == REFERENCE:
        return _huggingface(tokenizer)
    if library == FASTOKENS:
        return _fastokens(tokenizer)
    return _gigatoken(tokenizer)


def _huggingface(path: str) -> Encode:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    return lambda texts: [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _fastokens(path: str) -> Encode:
    os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")
    import fastokens
    import numpy as np

    tokenizer = fastokens.Tokenizer.from_json_str(Path(path).read_text("utf-8"))

    def encode(texts: list[str]) -> list[Any]:
        ids, offsets = tokenizer.encode_batch_flat(texts, split_special_tokens=True)
        return np.split(np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8")[1:-1].astype(np.int64))

    return encode


def _gigatoken(path: str) -> Encode:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(Path(path).read_text("utf-8"))
    return lambda texts: list(tokenizer.encode_batch(texts))


def run_method(method: str, texts: list[str], tokenizer: str) -> dict[str, Any]:
    """Encode all texts once: seconds, tokens, and a digest of the ids."""
    library, _, size = f"{method}_1".split("_")[:3]  # huggingface_single is a batch of one
    count = int(size)
    encode = _load(library, tokenizer)
    found: list[Sequence[int]] = []
    start = time.perf_counter()
    for i in range(0, len(texts), count):
        found += encode(texts[i : i + count])
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": sum(map(len, found)), "digest": _digest(found)}


def _digest(documents: list[Sequence[int]]) -> str:
    import numpy as np

    state = xxhash.xxh3_128()
    for ids in documents:
        state.update(np.asarray(ids, "<u4").tobytes() + b"|")
    return state.hexdigest()


def main() -> None:
    method, texts, tokenizer = sys.argv[1:]
    documents = json.loads(Path(texts).read_bytes())
    try:
        result = {**run_method(method, documents, tokenizer), "peak_memory": peak_memory()}
    except BaseException as error:  # a library may panic, which is not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        result = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
