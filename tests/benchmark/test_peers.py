"""Other programs: found where they are installed, compared document by document."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import Run, texts
from tokenmill.benchmark.peers import PEERS, compare, digests_of, find_python, find_shards
from tokenmill.errors import BenchmarkError


def test_peers_are_found_by_their_environments(tmp_path: Path) -> None:
    peer = PEERS[1]
    assert find_python(peer, tmp_path) is None
    (tmp_path / "others" / "bin").mkdir(parents=True)
    (tmp_path / "others" / "bin" / "python").touch()
    assert find_python(peer, tmp_path) is None
    package = tmp_path / "others" / "lib" / "python3.11" / "site-packages" / peer.package
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    assert find_python(peer, tmp_path) == tmp_path / "others" / "bin" / "python"


def test_shards_of_one_kind_are_needed(inputs: Path) -> None:
    (inputs / "a.jsonl.gz").touch()
    assert find_shards([str(inputs)], "text").pattern == "*.jsonl.gz"
    (inputs / "b.jsonl").touch()
    with pytest.raises(BenchmarkError, match="shards of one kind"):
        find_shards([str(inputs)], "text")


def test_the_outputs_of_peers_are_compared_document_by_document(inputs: Path, tmp_path: Path, run: Run) -> None:
    """In the format of each peer; one of them shuffles, one writes no EOS."""
    (inputs / "a.jsonl").write_bytes(texts("one", "two", "two", "three"))
    run()
    ours = digests_of(tmp_path / "out", 256)
    documents = [np.frombuffer(t.encode(), np.uint8).astype(np.uint16) for t in ("three", "two", "one", "two")]
    with_eos = [np.append(d, np.uint16(256)) for d in documents]
    ends = np.cumsum([len(d) for d in with_eos])
    out = tmp_path / "peer"
    (out / "tokens").mkdir(parents=True)
    np.concatenate(with_eos).tofile(out / "tokens" / "part-0.npy")
    rows = "".join(f"{e - len(d)},{e},id,file,1\n" for d, e in zip(with_eos, ends, strict=True))
    (out / "tokens" / "part-0.csv.gz").write_bytes(gzip.compress(rows.encode()))
    np.concatenate(with_eos).tofile(out / "tokens" / "0.ds")
    ends.astype(np.uint64).tofile(out / "tokens" / "0.ds.index")
    np.concatenate(documents).tofile(out / "tokens.bin")
    np.save(out / "ends.npy", np.cumsum([len(d) for d in documents]))
    table = pa.table({"input_ids": [d.tolist() for d in documents]})
    with pa.OSFile(str(out / "tokens" / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    assert len(PEERS) == 4
    for peer in PEERS:
        assert compare(peer.read(out, np.dtype("<u2")), ours, 256) == "same ids", peer.name
    assert compare(iter(documents[1:]), ours, 256) == "1 of 4 documents differ"
    assert compare(iter([*documents[1:], np.array([1], np.uint16)]), ours, 256) == "1 of 4 documents differ"
