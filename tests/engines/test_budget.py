"""The memory budget: what it is by default, what follows from it for each engine, and when it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd

from tests.conftest import Run, documents, texts
from tests.engines.conftest import EVERY
from tokenmill.config import ENGINES, Config
from tokenmill.engines import budget
from tokenmill.engines.budget import READ_AHEAD_BYTES, WINDOW_BYTES, derive_budget, limit_to_machine
from tokenmill.engines.cost import MB, Cost
from tokenmill.engines.extreme import ExtremeEngine
from tokenmill.engines.registry import engine_class
from tokenmill.engines.streaming import StreamingEngine
from tokenmill.engines.ultra import UltraEngine
from tokenmill.errors import ConfigError
from tokenmill.messages import size

PARALLEL = pytest.mark.parametrize(("engine", "few"), [("ultra", 3), ("extreme", 6)])


def config(memory: str | None = None, workers: int | None = None) -> Config:
    return Config(inputs=("in",), output=Path("out"), max_memory=memory, num_workers=workers)  # type: ignore[arg-type]


def test_the_default_is_half_of_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "machine_memory", lambda: 8 << 30)
    found = derive_budget(StreamingEngine, config())
    assert found.total == 4 << 30
    assert "requested" not in str(found)
    assert f"memory budget {size(4 << 30)} (half of the machine's)" in str(found)
    assert derive_budget(StreamingEngine, config("3GB")).total == 3000 * MB


def test_workers_are_by_default_as_many_as_suit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "default_workers", lambda: 13)
    found = derive_budget(ExtremeEngine, config("64GB"))
    assert found.workers == 13
    assert "requested" not in str(found)


def test_more_memory_than_there_is_is_refused_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "machine_memory", lambda: 8 * 1000 * MB)
    with pytest.raises(ConfigError, match=r"^max_memory: 8\.0 GB is more than there is: .* has 8\.0 GB$"):
        limit_to_machine(config("8000000001"))
    for memory in (None, "8GB"):
        assert limit_to_machine(config(memory)) == config(memory)


def test_workers_beyond_what_the_cores_can_do_are_not_started_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(budget, "available_cores", lambda: 2)
    for workers in (None, 8):
        assert limit_to_machine(config(workers=workers)).num_workers == workers
    assert caplog.text == ""
    assert limit_to_machine(config(workers=1000)).num_workers == 8
    assert "1,000 workers were requested, and 8 are used at most: more than 4 per core would" in caplog.text
    assert "there are 2 cores" in caplog.text


def test_a_run_is_limited_to_the_machine(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (inputs / "a.jsonl").write_bytes(texts("a"))
    monkeypatch.setattr(budget, "available_cores", lambda: 1)
    with caplog.at_level("INFO"):
        run(engine="extreme", num_workers=1000)
    assert "there is 1 core\n" in caplog.text
    assert "engine: extreme, 4 threads" in caplog.text


@pytest.mark.parametrize(("engine", "least"), [("enhanced", 390), ("streaming", 390), ("ultra", 590), ("extreme", 390)])
def test_a_budget_too_small_names_the_minimum_which_is_enough(engine: str, least: int) -> None:
    message = f"100.0 MB is too little for the engine {engine}; the minimum is {least} MB"
    with pytest.raises(ConfigError, match=message):
        derive_budget(engine_class(engine), config("100MB"))
    assert derive_budget(engine_class(engine), config(f"{least} MB")).workers == 1


def test_the_minimum_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamingEngine, "cost", Cost(per_worker=5 * MB + 1))
    with pytest.raises(ConfigError, match="the minimum is 6 MB"):
        derive_budget(StreamingEngine, config("5MB"))


@PARALLEL
def test_workers_are_as_many_as_the_budget_allows(engine: str, few: int) -> None:
    assert derive_budget(engine_class(engine), config("64GB", 16)).workers == 16
    found = derive_budget(engine_class(engine), config("1500MB", 16))
    assert found.workers == few
    assert f"(16 workers were requested; the budget, the engine and the number of units allow {few})" in str(found)


def test_a_worker_of_ultra_may_use_its_share_and_there_are_no_more_workers_than_units() -> None:
    found = derive_budget(UltraEngine, config("1500MB", 16), units=2)
    assert found.workers == 2
    # The parent and what is read ahead are not theirs.
    assert 2 * found.worker_bytes == 1500 * MB - 200 * MB - 4 * found.read_ahead


@EVERY
@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_agrees_with_its_noun(engine: str, workers: int) -> None:
    expected = {
        "ultra": ["1 worker process of up to ", "2 worker processes of up to "],
        "extreme": ["1 tokenizer thread, 3 blocks in flight", "2 tokenizer threads, 6 blocks in flight"],
    }.get(engine, ["one thread", "one thread"])
    assert f": {expected[workers - 1]}" in str(derive_budget(engine_class(engine), config("8GB", workers)))


def test_read_ahead_is_taken_from_what_the_workers_do_not_need() -> None:
    small, large = (derive_budget(UltraEngine, config(total, 2)) for total in ("1100MB", "8GB"))
    # Beside the parent and two workers there are 120 MB: half of them for four files.
    assert small.read_ahead == 15 * MB < large.read_ahead == READ_AHEAD_BYTES
    for found in (small, large):
        assert found.worker_bytes * found.workers + 4 * found.read_ahead <= found.total
        assert f"up to {size(found.read_ahead)} of each next file read ahead" in str(found)


@pytest.mark.parametrize("files", [0, 1])
def test_one_file_may_have_all_the_memory_for_read_ahead_and_none_needs_none(files: int) -> None:
    few = replace(config("1080MB", 2), prefetch_files=files)
    found = derive_budget(UltraEngine, few)
    assert found.read_ahead == 50 * MB
    assert found.worker_bytes == (1080 * MB - 200 * MB - files * 50 * MB) // 2


def test_only_engines_that_read_ahead_have_memory_for_it() -> None:
    found = {name: derive_budget(engine_class(name), config("8GB", 2)).read_ahead for name in ("streaming", "extreme")}
    assert found == {"streaming": 0, "extreme": READ_AHEAD_BYTES}


def test_a_run_over_its_budget_says_so(
    inputs: Path, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(StreamingEngine, "cost", Cost(per_worker=1))
    (inputs / "a.jsonl").write_bytes(texts("a"))
    run(engine="streaming", max_memory="1MB")
    assert "over the budget of 1.0 MB" in caplog.text


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_workers_do_not_need_is_for_windows_and_large_documents(engine: str) -> None:
    least = derive_budget(engine_class(engine), config("600MB", 1))
    more = derive_budget(engine_class(engine), config("3GB", 1))
    assert least.windows is not None and more.windows is not None
    assert least.windows >= WINDOW_BYTES
    assert more.windows > least.windows
    spare = more.worker_bytes - engine_class(engine).cost.per_worker
    assert more.windows + more.worker_room == spare
    none = derive_budget(engine_class(engine), config(f"{engine_class(engine).cost.minimum // MB} MB", 1))
    assert (none.windows, none.worker_room) == (WINDOW_BYTES, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_with_a_window_over_the_budget_is_missing_until_there_is_more_memory(
    inputs: Path, tmp_path: Path, run: Run, engine: str
) -> None:
    window: dict[int, int] = {zstd.CompressionParameter.window_log: 29}
    compressor = zstd.ZstdCompressor(options=window)
    (inputs / "a.jsonl.zst").write_bytes(compressor.compress(texts("long")) + compressor.flush())
    (inputs / "b.jsonl").write_bytes(texts("plain"))
    result = run(engine=engine, max_memory="600MB", num_workers=1)
    assert list(result.missing) == ["a.jsonl.zst"]
    assert "raise --max-memory" in result.missing["a.jsonl.zst"]
    assert documents(tmp_path / "out") == [b"plain"]
    assert run(engine=engine, max_memory="3GB", num_workers=1).complete
    assert documents(tmp_path / "out") == [b"long", b"plain"]
