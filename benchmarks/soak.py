"""A long run: the same shards under many names, through `ultra` and `extreme`; is memory flat, and is the output good?

    python benchmarks/soak.py CORPUS --gigabytes 20 [--engines ultra,extreme] [--workers 2] [--plot FILE] [--json FILE]

The size counts text, as the first run over CORPUS finds it. Memory is what each run itself noted in
logs/timeline.jsonl, of all its processes, every ten seconds. Each output is verified in full (checksums, ids, ends of
documents) and a hundred of its documents are compared with their source, then it is removed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tokenmill
from tokenmill.check.verify import verify
from tokenmill.messages import aligned, size


def run(source: Path, output: Path, engine: str, workers: int) -> tokenmill.RunResult:
    config = tokenmill.Config(inputs=(str(source),), output=output, engine=engine, num_workers=workers)
    return tokenmill.run(config)


def timeline(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "logs" / "timeline.jsonl").read_text().splitlines()]


def multiply(corpus: Path, folder: Path, times: int) -> None:
    for n in range(times):
        (folder / f"copy-{n:03d}").mkdir()
        for shard in sorted(corpus.iterdir()):
            (folder / f"copy-{n:03d}" / shard.name).symlink_to(shard.resolve())


def draw(curves: dict[str, list[dict[str, Any]]], path: Path, gigabytes: float) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    for engine, points in curves.items():
        minutes = [p["seconds"] / 60 for p in points]
        axes.plot(minutes, [p["memory_bytes"] / 1e6 for p in points], label=engine)
    axes.set_ylim(0, None)
    axes.set_xlabel("minutes")
    axes.set_ylabel("memory of all processes, MB")
    axes.set_title(f"{gigabytes:.0f} GB of text", fontsize=11)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--engines", default="ultra,extreme")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tokenmill-soak-"))
    curves: dict[str, list[dict[str, Any]]] = {}
    rows = [("Engine", "Text", "Time (s)", "MB/s", "First minute", "Last minute", "Peak", "Verified")]
    good = True
    try:
        once = run(args.corpus, work / "once", "extreme", args.workers)
        times = -(-int(args.gigabytes * 1e9) // once.ledger.text_bytes)
        (work / "corpus").mkdir()
        multiply(args.corpus, work / "corpus", times)
        for engine in args.engines.split(","):
            print(f"{engine}: {times} times {size(once.ledger.text_bytes)}", file=sys.stderr, flush=True)
            start = time.perf_counter()
            result = run(work / "corpus", work / "out", engine, args.workers)
            seconds = time.perf_counter() - start
            curves[engine] = timeline(work / "out")
            verdict = verify(work / "out", against_source=100)
            good &= verdict.good
            end = curves[engine][-1]["seconds"]
            first = max(p["memory_bytes"] for p in curves[engine] if p["seconds"] <= 60)
            last = max(p["memory_bytes"] for p in curves[engine] if p["seconds"] >= end - 60)
            rate = f"{result.ledger.text_bytes / seconds / 1e6:.0f}"
            told = f"{verdict.documents:,} documents" if verdict.good else f"{verdict.found} FAULTS"
            peak = size(result.meter.peak_memory)
            rows.append(
                (engine, size(result.ledger.text_bytes), f"{seconds:.0f}", rate, size(first), size(last), peak, told)
            )
            shutil.rmtree(work / "out")
        total = once.ledger.text_bytes * times / 1e9
    finally:
        shutil.rmtree(work)
    print("\n".join(aligned(rows)))
    if args.plot:
        draw(curves, args.plot, total)
    if args.json:
        kept = {e: [{k: p[k] for k in ("seconds", "memory_bytes", "tokens")} for p in c] for e, c in curves.items()}
        args.json.write_text(json.dumps({"gigabytes": total, "curves": kept}, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
