"""Counts over a whole output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import EOS, Run, texts
from tokenmill.errors import InputError, OutputError
from tokenmill.inspect import stats as counting
from tokenmill.inspect.stats import collect_stats


def test_stats_count_documents_tokens_and_lengths(output: Path) -> None:
    told: list[tuple[int, int]] = []
    stats = collect_stats(output, lambda *now: told.append(now))
    assert told[-1] == (2 * 36, 2 * 36)  # bytes of all tokens; padding is not looked at
    assert stats.by_file == {"part-001.jsonl": (2, 3 + 24), "part-002.jsonl": (1, 6)}
    assert {n: c for n, c in enumerate(stats.lengths) if c} == {2: 2, 4: 1}
    assert stats.frequent[0] == (EOS, "<|endoftext|>", 3)
    assert stats.padding_share == pytest.approx(4 / 40)
    assert stats.bytes_per_token == 1.0


def test_stats_count_documents_over_several_chunks(edges: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[int, int]] = []
    for block in (1, 3, 1 << 22):
        monkeypatch.setattr(counting, "BLOCK_TOKENS", block)
        stats = collect_stats(edges, lambda *told: done.append(told))
        assert stats.by_file == {"a.jsonl": (5, 3 + 19 + 1 + 3 + 1)}
        assert {n: c for n, c in enumerate(stats.lengths) if c} == {1: 2, 2: 2, 4: 1}
        assert stats.frequent == [
            (ord("b"), "b", 19),
            (EOS, "<|endoftext|>", 5),
            (ord("d"), "d", 3),
            (ord("a"), "a", 3),
            (ord("e"), "e", 1),
            (ord("c"), "c", 1),
        ]
        assert done[-1] == (64, 64)  # bytes: tokens are of two
        assert stats.padding_share == 0


@pytest.mark.parametrize(
    "options", [{}, {"no_eos": True}, {"bos_token": "<|bos|>"}, {"bos_token": "<|bos|>", "no_eos": True}], ids=str
)
def test_tokens_by_file_add_up_to_those_of_the_ledger(inputs: Path, run: Run, options: dict[str, Any]) -> None:
    for name in "abc":
        (inputs / f"{name}.jsonl").write_bytes(texts(*(name * n for n in range(1, 9))))
    stats = collect_stats(run(sequences_per_chunk=2, **options).output)
    assert stats.by_file == dict.fromkeys(("a.jsonl", "b.jsonl", "c.jsonl"), (8, 36))
    assert sum(tokens for _, tokens in stats.by_file.values()) == stats.ledger.tokens


def test_an_output_without_a_token_has_no_shares(inputs: Path, tmp_path: Path, run: Run) -> None:
    (inputs / "a.jsonl").write_bytes(b"")
    run()
    stats = collect_stats(tmp_path / "out")
    assert (stats.bytes_per_token, stats.padding_share, stats.frequent, stats.by_file) == (0, 0, [], {})


def test_what_is_not_a_complete_output_is_not_counted(output: Path, tmp_path: Path) -> None:
    (output / "manifest.json").unlink()
    with pytest.raises(OutputError, match=r"is not complete: it has no manifest\.json\. Run the job again"):
        collect_stats(output)
    with pytest.raises(InputError, match="there is no directory"):
        collect_stats(tmp_path / "nowhere")
