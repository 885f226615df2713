"""The advice follows from what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from tokenmill.benchmark.report import Method, Report
from tokenmill.benchmark.runs import Contender


def contender(name: str, workers: int, seconds: float, memory: int) -> Contender:
    return Contender(
        name=name,
        workers=workers,
        seconds=[seconds, seconds * 1.2],
        peak_memory=memory,
        documents=100,
        tokens=1000,
        text_bytes=4000,
        cpu_seconds={"encode": seconds / 2},
    )


def report(**changes: Any) -> Report:
    methods = [
        Method(name=f"fastokens_batch_{n}", documents=10, text_bytes=1, seconds=[s, s * 1.01, s * 1.02], tokens=1)
        for n, s in changes.pop("batches", {32: 1.0, 100: 1.01, 256: 0.99}).items()
    ]
    values: dict[str, Any] = {"cores": 2, "inputs": ("shards",), "generated": False, "methods": methods}
    return Report(**values | changes)


def test_the_fastest_is_recommended_and_of_equals_the_one_with_less_memory() -> None:
    engines = [contender("ultra", 2, 10, 900), contender("extreme", 2, 10.3, 500), contender("streaming", 1, 20, 100)]
    advice = report(engines=engines).recommendation()
    assert advice[1].strip() == "tokenmill run shards OUTPUT --engine extreme --num-workers 2 --batch-size 100"
    assert "ties with ultra" in advice[2]
    engines[1] = contender("extreme", 2, 15, 500)
    assert "--engine ultra --num-workers 2" in report(engines=engines).recommendation()[1]


def test_runs_of_a_second_are_too_short_to_recommend_from() -> None:
    advice = report(engines=[contender("ultra", 2, 1.0, 900)]).recommendation()
    assert "--engine auto" in advice[1]
    assert "too short to tell" in advice[2]


def test_another_batch_size_is_recommended_only_if_it_is_clearly_faster() -> None:
    assert "--batch-size 256" in report(batches={32: 1.0, 100: 1.0, 256: 0.5}).recommendation()[1]


def test_the_ratio_to_the_limit_counts_the_cores_in_use() -> None:
    found = report(limit={"encode": 3.0, "parse": 1.0})
    assert found.to_limit(contender("streaming", 1, 5.0, 1)) == pytest.approx(1.25)
    assert found.to_limit(contender("ultra", 2, 5.0, 1)) == pytest.approx(2.5)
    assert found.to_limit(contender("ultra", 8, 5.0, 1)) == pytest.approx(2.5)  # there are but two


def test_columns_say_what_their_figures_are() -> None:
    engines = [contender("ultra", 2, 4.0, 900), contender("streaming", 1, 2.0, 100)]
    said = list(report(engines=engines, limit={"encode": 4.0}).lines())
    head = next(line for line in said if line.startswith("Engine"))
    assert head.endswith("x limit       Spread")
    rows = {line.split()[0]: line for line in said if line.startswith(("ultra", "streaming"))}
    first = next(line for line in said if line.startswith("ultra"))
    assert first.endswith("   2.00  4.00-4.80 s"), rows


@pytest.mark.parametrize("wide", [60, 80])
def test_a_report_fits_the_terminal_and_its_command_can_be_copied(wide: int) -> None:
    engines = [contender("streaming", 1, 3.0, 333_000_000), contender("extreme", 2, 2.5, 444_000_000)]
    methods = [
        Method(name=name, documents=1000, text_bytes=9_999_999, seconds=[s, 2 * s, 3 * s], tokens=2_999_999)
        for name, s in (("huggingface_single", 5.0), ("fastokens_batch_100", 0.1), ("huggingface_batch_256", 2.0))
    ]
    limit = dict.fromkeys(("read", "parse", "encode", "pack", "write"), 1.5)
    found = report(engines=engines, limit=limit, inputs=("corpus/one", "corpus/two"))
    found.methods = methods
    lines = [line for text in found.lines(wide) for line in text.split("\n")]
    assert max(map(len, lines)) <= wide
    assert "Docs/sec" not in next(line for line in lines if line.startswith("Engine"))
    advice = "\n".join(lines).partition("  tokenmill run")[2].partition("\n  (")[0]
    assert advice.replace(" \\\n", " ").split() == found.recommendation()[1].split()[2:]
    assert max(map(len, found.lines())) > 80  # of which nothing is lost in a file


def test_short_runs_are_warned_of() -> None:
    engines, limit = [contender("ultra", 2, 1.0, 900)], {"encode": 1.0}
    said = "start-up takes most of the time of runs as short as these: give it more text"
    assert said in list(report(engines=engines, limit=limit).lines())


def test_peers_that_are_absent_or_fail_are_named() -> None:
    failed = Contender(name="dolma tokens", workers=2, seconds=[], problem="it ended with exit code 1")
    engines, limit = [contender("ultra", 2, 1.0, 900)], {"encode": 1.0}
    said = "\n".join(report(engines=engines, limit=limit, peers=[failed], absent=["datasets.map"]).lines())
    assert "datasets.map: not installed; `make peers`" in said
    assert "dolma tokens: it ended with exit code 1" in said
