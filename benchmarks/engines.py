"""Times every engine on the same shards and takes the peak memory of its whole process tree.

    python benchmarks/engines.py CORPUS... [--ways streaming:1,extreme:2] [--repeat 2] [--max-memory 4GB] [--cgroup]

Each way is a whole `tokenmill run` with start-up, in a process of its own; the best of the repeats counts, ways take
turns, so that a change of the machine's pace hits all of them. Memory is the highest sum of the resident sizes of the
process and its children, sampled every 100 ms. With --cgroup the run is inside a control group (version 1, root) whose
memory limit is --max-memory.
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

WAYS = "enhanced:1,streaming:1,ultra:1,ultra:2,extreme:1,extreme:2"
GROUP = Path("/sys/fs/cgroup/memory/tokenmill-benchmark")
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_memory(root: int) -> int:
    """Resident bytes of a process and all below it."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return total


def measure(corpus: str, engine: str, workers: str, memory: str | None, cgroup: bool) -> dict[str, float]:
    work = Path(tempfile.mkdtemp(prefix="tokenmill-engines-"))
    command = [sys.executable, "-m", "tokenmill", "run", corpus, str(work / "out"), "--quiet"]
    command += ["--engine", engine, "--num-workers", workers, *(["--max-memory", memory] if memory else [])]
    if cgroup:
        command = ["bash", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(GROUP), *command]
    start = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ | {"FASTOKENS_BPE_THREADS": "1"})
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(0.1)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{engine} with {workers} workers ended with exit code {process.returncode}")
    ledger = json.loads((work / "out" / "manifest.json").read_text())["ledger"]
    shutil.rmtree(work)
    return {"seconds": seconds, "peak": peak, **{k: ledger[k] for k in ("documents", "tokens", "text_bytes")}}


def limit_memory(size: str) -> None:
    from tokenmill.config import parse_size

    GROUP.mkdir(exist_ok=True)
    (GROUP / "memory.limit_in_bytes").write_text(str(parse_size(size)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--ways", default=WAYS)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--max-memory")
    parser.add_argument("--cgroup", action="store_true")
    args = parser.parse_args()
    if args.cgroup:
        limit_memory(args.max_memory)
    ways = [tuple(w.split(":")) for w in args.ways.split(",")]
    for corpus in args.corpora:
        best: dict[tuple[str, ...], dict[str, float]] = {}
        for _ in range(args.repeat):
            for way in ways:
                found = measure(corpus, *way, args.max_memory, args.cgroup)  # type: ignore[call-arg]
                if way not in best or found["seconds"] < best[way]["seconds"]:
                    best[way] = found
        base = best.get(("streaming", "1"))
        print(f"\n{Path(corpus).name}: {best[ways[0]]['text_bytes'] / 1e6:,.0f} MB of text")
        print("| engine | workers | seconds | documents/s | tokens/s | MB/s | to streaming | peak memory |")
        print("|---|---|---|---|---|---|---|---|")
        for (engine, workers), r in best.items():
            s = r["seconds"]
            ratio = f"{base['seconds'] / s:.2f} x" if base else ""
            print(
                f"| {engine} | {workers} | {s:.1f} | {r['documents'] / s:,.0f} | {r['tokens'] / s / 1e6:.1f} M "
                f"| {r['text_bytes'] / s / 1e6:.0f} | {ratio} | {r['peak'] / 1e6:,.0f} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
