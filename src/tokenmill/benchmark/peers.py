"""What people use otherwise, on the same files with the same cores, and whether it gives the same ids.

Peers live in environments of their own (`make peers` makes them below .peers/), since their requirements contradict
each other. A peer whose environment is not there is left out, and named.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tokenmill.benchmark.runs import Contender, measure
from tokenmill.encode import Encoder, Tokenizer
from tokenmill.errors import BenchmarkError
from tokenmill.load.rows import open as open_rows

BATCH = 256

PeerDocuments = Iterator[Any]
"""Arrays of ids, one per document."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A program to compare with: its package, how it is called, and how its output is read."""

    name: str
    package: str
    command: Callable[[Path, Shards, Path, Tokenizer, int], list[str]]
    read: Callable[[Path, np.dtype[Any]], PeerDocuments]
    strips: bool = False
    """Whether it takes white space off both ends of every document, so that its ids are those of other texts."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The inputs as peers want them named: a folder and a pattern."""

    folder: str
    pattern: str
    text_field: str


def find_shards(inputs: Sequence[str], text_field: str) -> Shards:
    """Peers take a folder of shards of one kind, so that is what the comparison is made on."""
    if len(inputs) != 1 or not Path(inputs[0]).is_dir():
        raise BenchmarkError("--peers needs --input to be one folder of shards")
    suffixes = {
        "".join(p.suffixes[-2:]) if p.suffix in (".gz", ".zst") else p.suffix for p in Path(inputs[0]).iterdir()
    }
    if len(suffixes) != 1:
        raise BenchmarkError(f"--peers needs shards of one kind in {inputs[0]}, not {', '.join(sorted(suffixes))}")
    return Shards(str(Path(inputs[0]).absolute()), f"*{suffixes.pop()}", text_field)


def _driver(name: str) -> Callable[[Path, Shards, Path, Tokenizer, int], list[str]]:
    def command(python: Path, shards: Shards, out: Path, tokenizer: Tokenizer, workers: int) -> list[str]:
        script = str(files("tokenmill.benchmark").joinpath(f"drivers/{name}.py"))
        path = str(out / "tokenizer.json")
        eos = tokenizer.eos_token or ""
        return [
            str(python),
            script,
            shards.folder,
            shards.pattern,
            str(out),
            path,
            shards.text_field,
            str(workers),
            eos,
        ]

    return command


def _dolma(python: Path, shards: Shards, out: Path, tokenizer: Tokenizer, workers: int) -> list[str]:
    if shards.text_field != "text":
        raise BenchmarkError("dolma reads the field `text` only")
    command = [str(python.parent / "dolma"), "tokens", "--documents", f"{shards.folder}/{shards.pattern}"]
    command += ["--destination", str(out / "tokens"), "--processes", str(workers), "--dtype", tokenizer.dtype.name]
    command += ["--tokenizer.name_or_path", str(out / "tokenizer.json")]
    command += ["--tokenizer.eos_token_id", str(tokenizer.eos_id), "--tokenizer.pad_token_id", str(tokenizer.pad_id)]
    return command


def _read_dolma(out: Path, dtype: np.dtype[Any]) -> PeerDocuments:
    for table in sorted((out / "tokens").glob("*.csv.gz")):
        ids = np.fromfile(str(table).replace(".csv.gz", ".npy"), dtype)
        with gzip.open(table) as file:
            for start, end, *_ in csv.reader(io.TextIOWrapper(file, encoding="utf-8")):
                yield ids[int(start) : int(end)]


def _read_datatrove(out: Path, dtype: np.dtype[Any]) -> PeerDocuments:
    for path in sorted((out / "tokens").glob("*.ds")):
        ids = np.fromfile(path, dtype)
        ends = np.fromfile(f"{path}.index", np.uint64).astype(np.int64)
        yield from np.split(ids, ends[:-1])


def _read_gigatoken(out: Path, dtype: np.dtype[Any]) -> PeerDocuments:
    yield from np.split(np.fromfile(out / "tokens.bin", dtype), np.load(out / "ends.npy")[:-1])


def _read_datasets(out: Path, dtype: np.dtype[Any]) -> PeerDocuments:
    import pyarrow as pa

    for path in sorted((out / "tokens").glob("*.arrow")):
        with pa.OSFile(str(path), "rb") as file:
            for batch in pa.ipc.open_stream(file):
                for ids in batch.column("input_ids"):
                    yield ids.values.to_numpy().astype(dtype)


PEERS = (
    Peer("dolma tokens", "dolma", _dolma, _read_dolma, strips=True),
    Peer("datatrove DocumentTokenizer", "datatrove", _driver("datatrove_tokens"), _read_datatrove),
    Peer("gigatoken encode_files", "gigatoken", _driver("gigatoken_files"), _read_gigatoken),
    Peer("datasets.map", "datasets", _driver("datasets_map"), _read_datasets),
)


def find_python(peer: Peer, folder: Path) -> Path | None:
    """The Python below the folder that has this peer."""
    for python in sorted(folder.glob("*/bin/python")):
        if any(python.parent.parent.glob(f"lib/python*/site-packages/{peer.package}/__init__.py")):
            return python
    return None


def run_peer(peer: Peer, python: Path, contender: Contender, shards: Shards, tokenizer: Tokenizer, out: Path) -> None:
    """One run of a peer, added to what is known of it."""
    out.mkdir()
    (out / "tokenizer.json").write_text(tokenizer.json, "utf-8")
    command = peer.command(python, shards, out, tokenizer, contender.workers)
    found = measure(command, out / "messages.log", {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"})
    contender.seconds.append(found.seconds)
    contender.peak_memory = max(contender.peak_memory, found.peak_memory)


def compare(documents: PeerDocuments, ours: Counter[bytes], eos: int | None) -> str:
    """How many documents are the same, id by id, wherever they stand; peers may shuffle them."""
    theirs = Counter(_digests(documents, eos))
    same = (theirs & ours).total()
    total = max(ours.total(), theirs.total())
    return "same ids" if same == total else f"{total - same:,} of {total:,} documents differ"


def digests_of(output: Path, eos: int | None) -> Counter[bytes]:
    """The documents of one of our own outputs."""
    return Counter(_digests((d.tokens for d in open_rows(output).documents()), eos))


def digests_of_stripped(texts: Iterable[str], encoder: Encoder) -> Counter[bytes]:
    """What a peer that strips documents should give."""
    found: Counter[bytes] = Counter()
    while batch := [text.strip() for text in islice(texts, BATCH)]:
        tokens = encoder.encode(batch)
        found.update(_digests(iter(np.split(tokens.token_ids, tokens.offsets[1:-1])), None))
    return found


def _digests(documents: PeerDocuments, eos: int | None) -> Iterator[bytes]:
    for ids in documents:
        text = ids[:-1] if eos is not None and len(ids) and ids[-1] == eos else ids
        yield xxhash.xxh3_128_digest(np.ascontiguousarray(text, "<u4").tobytes())
