"""A finished output, opened: typed, lazy, and clear about what cannot be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.outputs import chunk_entry, npy, plan_of, put, receipt_of, stored_job
from tests.support.units import unit_job
from tokenmill.errors import InputError, OutputError
from tokenmill.output.finish import finish, summarize
from tokenmill.output.open import Output, last_inputs, open_output, output_storage
from tokenmill.output.schema import to_text
from tokenmill.output.store import Store
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Ledger, Part
from tokenmill.storage.memory import MemoryStorage

SIDECAR = np.array([(3, 0, 0), (8, 2, 0)], SIDECAR_DTYPE)
ROWS = np.arange(8, dtype="<u2").reshape(2, 4)


@pytest.fixture
def complete(storage: MemoryStorage) -> MemoryStorage:
    """An output of one unit and one chunk."""
    store, plan = Store(storage), plan_of([Part(0)])
    store.prepare(stored_job(), plan, b"tokenizer", b"in")
    put(storage, "chunks/00000-0000.npy", data=npy(ROWS))
    put(storage, "chunks/00000-0000.docs.npy", data=npy(SIDECAR))
    receipts = Output(storage).receipts
    ledger = Ledger(records=2, documents=2, tokens=6, separators=2, rows=2)
    chunk = chunk_entry(0, plan.unit(0), documents=2)
    receipts.commit(plan.unit(0), receipt_of(0, (3,), ledger=ledger, chunks=(chunk,)))
    finish(receipts, plan, stored_job(), summarize(receipts, plan, "an id"), [])
    store.conclude()
    return storage


def test_an_output_tells_what_it_is(complete: MemoryStorage) -> None:
    output = Output(complete)
    assert output.is_complete
    assert output.job == stored_job()
    assert output.plan.digest == plan_of([Part(0)]).digest
    assert output.tokenizer() == b"tokenizer"
    assert output.dtype == np.dtype("<u2")
    assert (output.receipts.seq_len, output.receipts.dtype) == (4, np.dtype("<u2"))
    assert (output.summary.run_id, output.summary.ledger.documents) == ("an id", 2)
    assert [(c.name, c.rows) for c in output.row_index.chunks] == [("00000-0000", 2)]
    assert [(c.unit, c.tokens, c.documents) for c in output.catalog.chunks] == [(0, 8, 2)]
    assert output.rows("00000-0000", (2, 4)).tolist() == ROWS.tolist()
    assert output.sidecar("00000-0000", 8).tolist() == SIDECAR.tolist()
    assert last_inputs(complete) == b"in"


def test_ids_of_a_large_vocabulary_take_four_bytes(storage: MemoryStorage) -> None:
    data = to_text(stored_job()).replace('"uint16"', '"uint32"').encode()
    put(storage, "job.json", data=data)
    put(storage, "plan.jsonl")
    assert Output(storage).dtype == np.dtype("<u4")


def test_nothing_is_read_before_it_is_asked_for_and_then_once(complete: MemoryStorage) -> None:
    seen: list[tuple[str, str]] = []
    complete.watch = lambda operation, name: seen.append((operation, name))
    output = Output(complete)
    assert seen == []
    for _ in range(2):
        assert output.summary
    assert seen == [("map", "manifest.json")]
    seen.clear()
    for _ in range(2):
        assert output.job
        assert output.plan
    assert [step for step in seen if step[0] in ("read", "open")] == [("read", "job.json"), ("open", "plan.jsonl")]


@pytest.mark.parametrize("names", [[], ["plan.jsonl"], ["job.json"], ["notes.txt"]], ids=str)
def test_what_is_not_an_output_is_named(storage: MemoryStorage, names: list[str]) -> None:
    put(storage, *names, data=to_text(stored_job()).encode())
    with pytest.raises(InputError, match=r"^memory: is not a tokenmill output: it has no job\.json and plan\.jsonl$"):
        _ = Output(storage).job


def test_a_directory_that_is_not_there_or_is_a_file_is_not_an_output(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    missing, file = tmp_path / "missing", tmp_path / "file"
    for path, said in ((missing, f"^there is no directory {missing}$"), (file, f"^{file} is not a tokenmill output")):
        with pytest.raises(InputError, match=said):
            _ = open_output(path).job
        with pytest.raises(InputError, match=said):
            _ = open_output(str(path)).summary


VIEWS: list[Callable[[Output], object]] = [
    lambda output: output.summary,
    lambda output: output.row_index,
    lambda output: output.catalog,
]


@pytest.mark.parametrize("view", VIEWS)
def test_without_a_manifest_there_is_a_way_out(complete: MemoryStorage, view: Callable[[Output], object]) -> None:
    complete.remove(["manifest.json"])
    assert not Output(complete).is_complete
    said = r"^memory: is not complete: it has no manifest\.json\. Run the job again to continue it$"
    with pytest.raises(OutputError, match=said):
        view(Output(complete))
    with pytest.raises(InputError, match=r"^memory: is not a tokenmill output: it has no job\.json and plan\.jsonl$"):
        view(Output(MemoryStorage()))


@pytest.mark.parametrize("view", VIEWS)
def test_a_manifest_on_a_disk_that_may_be_back_is_not_to_be_removed(
    complete: MemoryStorage, view: Callable[[Output], object]
) -> None:
    def watch(_operation: str, _name: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    complete.watch = watch
    said = r"^memory:manifest\.json cannot be read: Input/output error\. Fix this and run the command again$"
    with pytest.raises(OutputError, match=said):
        view(Output(complete))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run_id": 3}', b'{"run_id": "\\udce9"}', b"\xff"])
def test_what_is_no_manifest_is_refused(
    storage: MemoryStorage, view: Callable[[Output], object], content: bytes
) -> None:
    put(storage, "manifest.json", data=content)
    with pytest.raises(OutputError, match=r"^memory:manifest\.json cannot be read: "):
        view(Output(storage))


COLUMNS_FIRST = npy(ROWS).replace(b"'fortran_order': False", b"'fortran_order': True ")


@pytest.mark.parametrize(
    "data",
    [b"", b"no array", npy(ROWS)[:-1], npy(ROWS) + b"x", COLUMNS_FIRST],
    ids=["empty", "text", "short", "long", "columns first"],
)
def test_an_array_that_cannot_be_read_is_named(complete: MemoryStorage, data: bytes) -> None:
    put(complete, "chunks/00000-0000.npy", "chunks/00000-0000.docs.npy", data=data)
    output = Output(complete)
    with pytest.raises(OutputError, match=r"^memory:chunks/00000-0000\.npy cannot be read: "):
        output.rows("00000-0000", (2, 4))
    with pytest.raises(OutputError, match=r"^memory:chunks/00000-0000\.docs\.npy cannot be read: "):
        output.sidecar("00000-0000", 8)
    with pytest.raises(OutputError, match=r"00000-0001\.npy cannot be read: .*No such file"):
        output.rows("00000-0001", (2, 4))


def test_another_array_in_the_place_of_a_sidecar_is_refused(complete: MemoryStorage) -> None:
    put(complete, "chunks/00000-0000.docs.npy", data=npy(ROWS))
    with pytest.raises(OutputError, match=r"^memory:chunks/00000-0000\.docs\.npy is damaged: it is not a sidecar\."):
        Output(complete).sidecar("00000-0000", 8)


@pytest.mark.parametrize("data", [ROWS[:1], ROWS.reshape(4, 2), ROWS.ravel(), ROWS.astype("<f4"), ROWS.astype("<i4")])
def test_rows_of_another_shape_or_type_are_refused(complete: MemoryStorage, data: Any) -> None:
    put(complete, "chunks/00000-0000.npy", data=npy(data))
    with pytest.raises(
        OutputError, match=r"00000-0000\.npy is damaged: .* and not 2 rows of 4 ids\. `tokenmill verify`"
    ):
        Output(complete).rows("00000-0000", (2, 4))


@pytest.mark.parametrize("ends", [[0], [-1], [9], [3, 3], [3, 2], [2**62], [-(2**63), 2**63 - 1], [5, 8, 9]])
def test_ends_of_documents_that_cannot_be_are_refused(complete: MemoryStorage, ends: list[int]) -> None:
    put(complete, "chunks/00000-0000.docs.npy", data=npy(np.array([(e, 0, 0) for e in ends], SIDECAR_DTYPE)))
    with pytest.raises(OutputError, match=r"docs\.npy is damaged: the ends of documents do not increase"):
        Output(complete).sidecar("00000-0000", 8)


def test_rows_are_mapped_and_cannot_be_written_to(tmp_path: Path) -> None:
    job = unit_job({"a.jsonl": b'{"text": "abc"}\n{"text": "d"}\n'}, folder=tmp_path)
    job.run()
    rows = open_output(tmp_path / "out").rows("00000-0000", (2, 4))
    assert rows.tolist() == [[*b"abc", 256], [*b"d", 256, 257, 257]]
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


def chunk(name: str, tokens: int) -> ChunkEntry:
    return chunk_entry(name=name, rows=2, tokens=tokens)


def documents(output: Output, chunks: list[tuple[str, int]]) -> list[tuple[int, int, list[int]]]:
    found = output.documents([chunk(*c) for c in chunks], 2)
    return [(file, record, tokens.tolist()) for file, record, tokens in found]


def test_documents_are_put_together_across_chunks(storage: MemoryStorage) -> None:
    """aa|bbb bbbb cc: one ends in the first chunk, none in the second, two in the third, behind which is padding."""
    chunks: list[tuple[str, list[int], list[tuple[int, int, int]]]] = [
        ("0", [1, 1, 2, 2], [(2, 0, 0)]),
        ("1", [2, 2, 2, 2], []),
        ("2", [2, 3, 3, 0], [(1, 4, 0), (3, 0, 1)]),
    ]
    for name, tokens, ends in chunks:
        put(storage, f"chunks/{name}.npy", data=npy(np.array(tokens, "<u2").reshape(-1, 2)))
        put(storage, f"chunks/{name}.docs.npy", data=npy(np.array(ends, SIDECAR_DTYPE)))
    output = Output(storage)
    assert documents(output, [("0", 4), ("1", 4), ("2", 3)]) == [(0, 0, [1, 1]), (0, 4, [2] * 7), (1, 0, [3, 3])]
    # A document of one chunk is not copied, whatever ended before it.
    assert [tokens.flags.owndata for _, _, tokens in output.documents([chunk("2", 3)] * 2, 2)] == [False] * 4
    # What goes on behind the last chunk was dropped.
    assert documents(output, [("0", 4), ("1", 4)]) == [(0, 0, [1, 1])]
    assert documents(output, []) == []


def test_where_the_inputs_were_may_be_unknown(storage: MemoryStorage) -> None:
    assert last_inputs(storage) is None
    put(storage, "logs/inputs", data=os.fsencode("/some/where"))
    assert last_inputs(storage) == b"/some/where"


def test_drafts_of_an_output_are_in_its_own_folder(tmp_path: Path) -> None:
    storage: Any = output_storage(tmp_path)
    assert (storage.root, storage.draft_folder) == (tmp_path, tmp_path / "tmp")
