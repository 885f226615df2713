"""Where the time goes: the stages of `streaming` on one core, and how busy `extreme` keeps two.

    python benchmarks/stages.py CORPUS

For `streaming` the profiler's own time per native call is summed by stage. For `extreme` every call of the processor
(parse and encode, on a tokenizer thread) is timed, and the share of the run is shown in which none, one or two ran.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import tokenmill
from tokenmill.process import Encoded, Processor, Source

STAGES = {
    "encode_batch_flat": "encode",
    "decompress": "decompress",
    "decode_lines": "parse",
    "_aligned_lines": "parse",
    "nonzero": "parse",
    "count": "look for special tokens",
    "insert": "pack",
    "astype": "pack",
    "write": "write",
    "fsync": "flush to disk",
    "from_json_str": "load the tokenizer",
    "from_str": "load the tokenizer",
}


def run(corpus: str, engine: str, workers: int) -> float:
    with tempfile.TemporaryDirectory() as work:
        config = tokenmill.Config(inputs=(corpus,), output=Path(work) / "out", engine=engine, num_workers=workers)
        start = time.perf_counter()
        tokenmill.run(config)
        return time.perf_counter() - start


def streaming_stages(corpus: str) -> None:
    profile = cProfile.Profile()
    profile.enable()
    run(corpus, "streaming", 1)
    profile.disable()
    stages: dict[str, float] = defaultdict(float)
    for (_, _, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        stages[next((s for key, s in STAGES.items() if key in name), "everything else")] += own
    total = sum(stages.values())
    print(f"streaming, one thread: {total:.1f} s under the profiler")
    for stage, seconds in sorted(stages.items(), key=lambda item: -item[1]):
        print(f"| {stage} | {100 * seconds / total:.0f} % |")


def extreme_overlap(corpus: str) -> None:
    spans: list[tuple[float, float]] = []
    original = Processor.__call__

    def timed(self: Processor, source: Source) -> Encoded:
        start = time.perf_counter()
        result = original(self, source)
        spans.append((start, time.perf_counter()))
        return result

    Processor.__call__ = timed  # type: ignore[method-assign]
    cpu = time.process_time()
    seconds = run(corpus, "extreme", 2)
    cpu = time.process_time() - cpu
    changes = sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans])
    shares: dict[int, float] = defaultdict(float)
    running, last = 0, changes[0][0]
    for moment, change in changes:
        shares[running] += moment - last
        running, last = running + change, moment
    print(f"extreme, two tokenizer threads: {seconds:.1f} s, {cpu:.1f} s of CPU")
    for count in sorted(shares):
        share = 100 * shares[count] / sum(shares.values())
        print(f"| {count} blocks being parsed and encoded | {share:.0f} % of the run |")


if __name__ == "__main__":
    streaming_stages(sys.argv[1])
    extreme_overlap(sys.argv[1])
