"""Proof of the memory budget: every engine inside a control group whose limit is its --max-memory.

    python benchmarks/budget.py CORPUS [--max-memory 592MB] [--engines extreme:2,ultra:2,streaming:1,enhanced:1]

Needs root and control groups of version 1. An engine that took more than its budget would be killed by the kernel.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from tokenmill.benchmark.runs import measure, python
from tokenmill.config import parse_size
from tokenmill.messages import aligned, size

GROUP = Path("/sys/fs/cgroup/memory/tokenmill-benchmark")
ENTER = 'echo $$ > "$0/cgroup.procs"; exec "$@"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--max-memory", default="592MB")
    parser.add_argument("--engines", default="extreme:2,ultra:2,streaming:1,enhanced:1")
    args = parser.parse_args()
    GROUP.mkdir(exist_ok=True)
    (GROUP / "memory.limit_in_bytes").write_text(str(parse_size(args.max_memory)))
    rows = [("Engine", "Workers", "Time (s)", "Docs/sec", "MB/s", "Peak memory")]
    for way in args.engines.split(","):
        engine, workers = way.split(":")
        work = Path(tempfile.mkdtemp(prefix="tokenmill-budget-"))
        command = python("-m", "tokenmill", "run", args.corpus, str(work / "out"), "--quiet", "--engine", engine)
        command += ["--num-workers", workers, "--max-memory", args.max_memory]
        found = measure(["bash", "-c", ENTER, str(GROUP), *command], work / "log")
        ledger = json.loads((work / "out" / "manifest.json").read_text())["ledger"]
        shutil.rmtree(work)
        rates = (f"{ledger['documents'] / found.seconds:,.0f}", f"{ledger['text_bytes'] / found.seconds / 1e6:.0f}")
        rows.append((engine, workers, f"{found.seconds:.1f}", *rates, size(found.peak_memory)))
        print(f"{engine}: {size(ledger['text_bytes'])} of text in {size(parse_size(args.max_memory))}", flush=True)
    GROUP.rmdir()
    print("\n".join(aligned(rows)))


if __name__ == "__main__":
    main()
