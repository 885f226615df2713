"""Inputs that break tokenizers: is each finished inside its memory budget, with everything accounted for?

    python benchmarks/extremes.py [--engines streaming,ultra,extreme] [--budget 4GB] [--cases all]
                                  [--words-mb 2000] [--words-times 1]

Endless unique words, one document of 200 MB, a million empty documents, 100,000 tiny files, one line of 1 GB. The peak
is that of the whole process tree.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tokenmill.benchmark.generate import Generator
from tokenmill.benchmark.runs import measure, python
from tokenmill.config import parse_size
from tokenmill.messages import aligned, size


def unique_words(folder: Path, megabytes: int, times: int) -> None:
    """No word twice: the worst for a tokenizer that remembers words.

    `times`: all of it so often, under other names. 2 GB are 125 million words; a bounded cache holds some millions.
    """
    rng = random.Random(1)
    words = folder / "words-00.jsonl"
    with words.open("w") as out:
        for _ in range(megabytes * 20):
            signs = rng.randbytes(8 * 3100).hex()
            text = " ".join(signs[i : i + 15] for i in range(0, len(signs), 16))
            out.write(json.dumps({"text": text}) + "\n")
    for n in range(1, times):
        (folder / f"words-{n:02d}.jsonl").symlink_to(words)


def one_document(folder: Path) -> None:
    texts, length = [], 0
    for text in Generator(7):
        texts.append(text)
        length += len(text)
        if length > 200_000_000:
            break
    (folder / "one.jsonl").write_text(json.dumps({"text": " ".join(texts)}, ensure_ascii=False) + "\n")


def empty_documents(folder: Path) -> None:
    (folder / "empty.jsonl").write_text('{"text": ""}\n' * 1_000_000)


def tiny_files(folder: Path) -> None:
    for n in range(100_000):
        if n % 1000 == 0:
            (folder / f"{n // 1000:03d}").mkdir()
        (folder / f"{n // 1000:03d}" / f"{n:06d}.jsonl").write_text(json.dumps({"text": f"tiny document {n}"}))


def one_line(folder: Path) -> None:
    with (folder / "line.jsonl").open("w") as out:
        out.write('{"text": "before"}\n{"text": "')
        for _ in range(1000):
            out.write("many words " * 90_909)
        out.write('"}\n{"text": "after"}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="streaming,ultra,extreme")
    parser.add_argument("--budget", default="4GB")
    parser.add_argument("--cases", default="all")
    parser.add_argument("--words-mb", type=int, default=2000)
    parser.add_argument("--words-times", type=int, default=1)
    args = parser.parse_args()
    cases: dict[str, Callable[[Path], None]] = {
        "unique words": lambda folder: unique_words(folder, args.words_mb, args.words_times),
        "one document of 200 MB": one_document,
        "a million empty documents": empty_documents,
        "100,000 tiny files": tiny_files,
        "one line of 1 GB": one_line,
    }
    rows = [("Case", "Engine", "Time (s)", "Documents", "Empty", "Rejected", "Peak memory", "Of its budget")]
    budget = parse_size(args.budget)
    for name, make in cases.items():
        if args.cases != "all" and args.cases not in name:
            continue
        work = Path(tempfile.mkdtemp(prefix="tokenmill-extremes-"))
        (work / "in").mkdir()
        make(work / "in")
        for engine in args.engines.split(","):
            command = python("-m", "tokenmill", "run", str(work / "in"), str(work / "out"), "--overwrite", "--quiet")
            command += ["--engine", engine, "--num-workers", "2", "--max-memory", args.budget, "--max-rejects", "100%"]
            found = measure(command, work / "log")
            ledger = json.loads((work / "out" / "manifest.json").read_text())["ledger"]
            counts = (f"{ledger[k]:,}" for k in ("documents", "empty", "rejected"))
            share = f"{100 * found.peak_memory / budget:.0f} %"
            rows.append((name, engine, f"{found.seconds:.1f}", *counts, size(found.peak_memory), share))
            print(f"{name}, {engine}: done", flush=True)
        shutil.rmtree(work)
    print("\n".join(aligned(rows)))


if __name__ == "__main__":
    main()
