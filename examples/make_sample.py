"""Makes examples/sample: short finance-flavoured documents in every input format, with bad records among them.

    python examples/make_sample.py examples/sample

The sample is committed; run this only to change it. The same bytes come out every time.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

COMPANIES = ["Harbour Steel", "Nordlicht Energie", "Banco del Sol", "Mizuho Kōgyō", "Ostrov Minerals", "Café & Fils"]
TICKERS = ["HBST", "NLE.DE", "BSOL", "7013.T", "OSTM", "CFF.PA"]
SUBJECTS = ["revenue", "operating income", "free cash flow", "the order backlog", "net interest margin", "EBITDA"]
CAUSES = [
    "stronger demand in the freight business",
    "a weaker euro (EUR/USD 1.07)",
    "higher input costs — mainly copper and energy",
    "the sale of its leasing arm",
    "seasonal effects that management called “transitory”",
    "new tariffs on finished goods",
]
CLOSINGS = [
    "The board proposed an unchanged dividend of {a:.2f} per share.",
    "Guidance for the full year was raised to {b:,} million.",
    "Shares closed {a:.1f} % lower at {c:,.2f}.",
    "Analysts had expected {b:,} million on average.",
    "Der Vorstand bestätigte die Prognose für das laufende Jahr.",
    "Le titre a gagné {a:.1f} % à l'ouverture.",
    "同社は通期の業績予想を据え置いた。",
    "Net debt fell to {b:,} million, {a:.1f} times EBITDA.",
]


def documents(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Reports of a few sentences each."""
    rng = random.Random(seed)
    for number in range(count):
        which = rng.randrange(len(COMPANIES))
        sentences = []
        for _ in range(rng.randint(1, 6)):
            values = {"a": rng.uniform(0.1, 9), "b": rng.randint(20, 9000), "c": rng.uniform(3, 700)}
            sentences.append(
                f"{COMPANIES[which]} ({TICKERS[which]}) said {rng.choice(SUBJECTS)} "
                f"{rng.choice(['rose', 'fell', 'was flat, against a rise of'])} {values['a']:.1f}% "
                f"in Q{rng.randint(1, 4)} {rng.randint(2009, 2025)}, citing {rng.choice(CAUSES)}. "
                + rng.choice(CLOSINGS).format(**values)
            )
        yield {
            "id": f"{seed}-{number}",
            "text": rng.choice(["\n", " ", "\n\n"]).join(sentences),
            "source": rng.choice(["filing", "news", "transcript"]),
            "metadata": {"ticker": TICKERS[which], "score": rng.random()},
        }


BAD_LINES = [
    b'{"id": "bad-1", "text": "this line was cut o',
    b'["not", "an", "object"]',
    b'{"id": "bad-3", "body": "the text is in another field"}',
    b'{"id": "bad-4", "text": 42}',
    b'{"id": "bad-5", "text": "caf\xe9 in Latin-1"}',
    b'{"id": "bad-6", "text": "half a pair: \\ud83d"}',
]
ODD_LINES = [
    b'{"id": "odd-1", "text": ""}',
    b'{"id": "odd-2", "text": "NaN in the metadata is common and no reason to lose a document.", "score": NaN}',
    b'{"id": "odd-3", "text": "A scraped page may say <|endoftext|> and must not end a document by it."}',
    b"",
]


def lines(seed: int, count: int) -> bytes:
    return b"".join(json.dumps(d, ensure_ascii=False).encode() + b"\n" for d in documents(seed, count))


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    plain = lines(1, 100).splitlines(keepends=True)
    for place, line in enumerate(BAD_LINES + ODD_LINES):
        plain.insert(7 + 9 * place, line + b"\n")
    (out / "news-plain.jsonl").write_bytes(b"".join(plain))
    # Several members, several frames: as tools write them that compress in parallel or append.
    (out / "news-gzip.jsonl.gz").write_bytes(b"".join(gzip.compress(lines(s, 40), mtime=0) for s in (2, 3)))
    (out / "news-zstd.jsonl.zst").write_bytes(b"".join(zstd.compress(lines(s, 40)) for s in (4, 5)))
    (out / "news-bzip2.jsonl.bz2").write_bytes(bz2.compress(lines(6, 60)))
    (out / "news-xz.jsonl.xz").write_bytes(lzma.compress(lines(7, 60)))
    pq.write_table(pa.Table.from_pylist(list(documents(8, 120))), out / "filings.parquet", row_group_size=50)
    (out / "letter.txt").write_text("To our shareholders,\n\n" + next(documents(9, 1))["text"] + "\n", "utf-8")
    (out / "NOTES.md").write_text("Made by make_sample.py. Not an input: tokenmill says that it left it out.\n")


if __name__ == "__main__":
    main()
