"""What an output holds: documents and tokens by file, lengths, padding, the most frequent tokens, rejects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.encode.decoder import Decoder
from tokenmill.output import layout
from tokenmill.output.finish import committed
from tokenmill.output.open import open_output
from tokenmill.output.schema import DamagedFile
from tokenmill.records import Ledger

BLOCK_TOKENS = 1 << 22
MOST_FREQUENT = 20
BUCKETS = 40  # powers of two


@dataclass(slots=True, kw_only=True)
class Stats:
    """Counts over a whole output."""

    ledger: Ledger
    by_file: dict[str, tuple[int, int]] = field(default_factory=dict)
    """File -> documents, tokens without separators."""
    lengths: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    """How many documents have 2^n to 2^(n+1) - 1 tokens, separators included."""
    frequent: list[tuple[int, str, int]] = field(default_factory=list)
    """Id, token, count; the most frequent first."""
    missing: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, DamagedFile] = field(default_factory=dict)
    skipped_data: dict[str, str] = field(default_factory=dict)
    """Files of which something is not in the output, and why."""

    @property
    def bytes_per_token(self) -> float:
        return self.ledger.text_bytes / max(1, self.ledger.tokens)

    @property
    def padding_share(self) -> float:
        filled = self.ledger.tokens + self.ledger.separators + self.ledger.padding
        return self.ledger.padding / max(1, filled)


def collect_stats(output: str | Path, progress: Callable[[int, int], None] = lambda _done, _total: None) -> Stats:
    """Read every chunk once."""
    found = open_output(output)
    job = found.job
    stats = Stats(
        ledger=found.summary.ledger,
        missing=found.summary.missing,
        damaged=found.summary.damaged,
        skipped_data={entry.name: entry.why for entry in found.skipped_data},
    )
    counts = np.zeros(job.tokenizer.vocab_size, np.int64)
    width = found.dtype.itemsize
    total = (stats.ledger.rows * job.options.seq_len - stats.ledger.padding) * width
    done = 0
    for committed_unit in committed(found.receipts, found.plan):
        carried = 0
        for chunk in committed_unit.receipt.chunks:
            tokens = found.rows(chunk.name, (chunk.rows, job.options.seq_len)).reshape(-1)[: chunk.tokens]
            for start in range(0, len(tokens), BLOCK_TOKENS):
                block = tokens[start : start + BLOCK_TOKENS]
                counts += np.bincount(block, minlength=len(counts))[: len(counts)]
                done += len(block) * width
                progress(done, total)
            sidecar, names = found.sidecar(chunk.name, len(tokens)), committed_unit.unit.names
            for foreign in set(sidecar["file"].tolist()) - names.keys():
                raise found.foreign_file(chunk.name, foreign)
            carried = _count_documents(stats, sidecar, names, carried, len(tokens))
    separators = sum(token is not None for token in (job.tokenizer.bos_id, job.tokenizer.eos_id))
    for name, (documents, with_separators) in stats.by_file.items():
        stats.by_file[name] = (documents, with_separators - documents * separators)
    stats.frequent = _frequent(counts, Decoder(found.tokenizer(), found.storage.describe(layout.TOKENIZER)))
    return stats


def _count_documents(stats: Stats, docs: Any, names: dict[int, str], carried: int, tokens: int) -> int:
    """Add the documents that end in a chunk; `carried` tokens of the first stand in chunks before. Returns the next."""
    if not len(docs):
        return carried + tokens
    lengths = np.diff(docs["end"], prepend=0)
    lengths[0] += carried
    buckets = np.bincount(np.log2(lengths).astype(int), minlength=BUCKETS)
    stats.lengths = [a + b for a, b in zip(stats.lengths, buckets.tolist(), strict=True)]
    for file in np.unique(docs["file"]).tolist():
        of_file = docs["file"] == file
        documents, held = stats.by_file.get(names[file], (0, 0))
        more = (documents + int(of_file.sum()), held + int(lengths[of_file].sum()))
        stats.by_file[names[file]] = more
    return tokens - int(docs["end"][-1])


def _frequent(counts: Any, decoder: Decoder) -> list[tuple[int, str, int]]:
    order = np.argsort(counts, kind="stable")[::-1][:MOST_FREQUENT].tolist()
    return [(i, decoder.token(i), int(counts[i])) for i in order if counts[i]]
