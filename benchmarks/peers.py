"""Times tokenmill and two peers on the same files, one after another, and prints documents per second and ratios.

    python benchmarks/peers.py CORPUS --dolma PEERS/bin/dolma --datatrove PEERS/bin/python

CORPUS holds .jsonl.gz shards. The peers live in environments of their own (dolma 1.2.1, datatrove 0.10.1). Each gets
two processes; tokenmill runs its streaming engine, one process, with the native threads of its encoder held to one.
Start-up is included for all. tokenmill runs before and after the peers, so that a change of the machine's pace shows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tokenmill

DATATROVE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer

corpus, out, tokenizer = sys.argv[1:]

if __name__ == "__main__":
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(corpus),
            DocumentTokenizer(out + "/tokens", tokenizer, eos_token="<|endoftext|>", shuffle_documents=False),
        ],
        tasks=2,
        workers=2,
        logging_dir=out + "/logs",
    ).run()
"""


def timed(command: list[str], log: Path) -> float:
    start = time.perf_counter()
    with log.open("w") as file:
        subprocess.run(command, check=True, stdout=file, stderr=file, env=os.environ | {"FASTOKENS_BPE_THREADS": "1"})
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--dolma", required=True)
    parser.add_argument("--datatrove", required=True)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tokenmill-peers-"))
    tokenizer = str(Path(tokenmill.__file__).parent / "data" / "gpt-neox-20b.json")
    (work / "run_datatrove.py").write_text(DATATROVE)
    corpus = str(args.corpus)
    ours = [sys.executable, "-m", "tokenmill", "run", corpus]
    dolma = [args.dolma, "tokens", "--documents", f"{corpus}/*.gz", "--destination", str(work / "dolma")]
    dolma += ["--tokenizer.name_or_path", tokenizer, "--tokenizer.eos_token_id", "0", "--tokenizer.pad_token_id", "1"]
    dolma += ["--processes", "2", "--dtype", "uint16"]
    commands = {
        "tokenmill streaming": [*ours, str(work / "ours-1")],
        "dolma tokens, 2 processes": dolma,
        "datatrove, 2 workers": [
            args.datatrove,
            str(work / "run_datatrove.py"),
            corpus,
            str(work / "trove"),
            tokenizer,
        ],
        "tokenmill streaming, again": [*ours, str(work / "ours-2")],
    }
    seconds = {}
    for name, command in commands.items():
        print(f"running {name} ...", file=sys.stderr)
        seconds[name] = timed(command, work / f"{name}.log")
    documents = json.loads((work / "ours-1" / "manifest.json").read_text())["ledger"]["documents"]
    slower = max(s for n, s in seconds.items() if n.startswith("tokenmill"))
    print(f"{documents:,} documents of {corpus}")
    print(f"{'method':30}{'seconds':>10}{'docs/s':>10}{'tokenmill is':>16}")
    for name, taken in seconds.items():
        ratio = "" if name.startswith("tokenmill") else f"{taken / slower:.1f} x as fast"
        print(f"{name:30}{taken:10.1f}{documents / taken:10,.0f}{ratio:>16}")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
