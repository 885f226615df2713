"""Where records went: found by a few sidecars, however many there are, and led back to file and number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.outputs import file, npy, put, stored_job
from tokenmill.errors import OutputError
from tokenmill.output.index import Extent, Index
from tokenmill.output.open import Output
from tokenmill.output.schema import PartEntry, Summary, UnitEntry, manifest_pieces
from tokenmill.records import SIDECAR_DTYPE, ChunkEntry, Ledger
from tokenmill.storage.memory import MemoryStorage

Ends = list[tuple[int, int, int]]
"""Of the documents that end in a chunk: where, the record in its part, the file."""


@dataclass(frozen=True)
class Chunk:
    unit: int
    ends: Ends
    tokens: int = 8


def part(number: int, first_record: int | None, lines: int) -> PartEntry:
    return PartEntry(file=number, start=0, end=None, first_record=first_record, lines=lines)


def output_of(units: list[list[PartEntry]], chunks: list[Chunk]) -> MemoryStorage:
    """A finished output, as far as the index looks at it. Files are named by their numbers."""
    storage = MemoryStorage()
    entries = []
    for number, chunk in enumerate(chunks):
        put(storage, f"chunks/{number}.docs.npy", data=npy(np.array(chunk.ends, SIDECAR_DTYPE)))
        entry = ChunkEntry(
            name=str(number), rows=2, tokens=chunk.tokens, documents=len(chunk.ends), xxh3="", docs_xxh3=""
        )
        entries.append((chunk.unit, entry))
    files = max((p.file + 1 for parts in units for p in parts), default=0)
    pieces = manifest_pieces(
        Summary(run_id="", ledger=Ledger(), missing={}),
        stored_job(),
        inputs=[file(f"{number}.jsonl") for number in range(files)],
        units=[UnitEntry(unit=number, parts=tuple(parts)) for number, parts in enumerate(units)],
        chunks=entries,
        skipped=[],
    )
    put(storage, "manifest.json", data="".join(pieces).encode())
    return storage


def index_of(units: list[list[PartEntry]], chunks: list[Chunk]) -> Index:
    return Index(Output(output_of(units, chunks)))


@pytest.fixture
def index() -> Index:
    """Two units. In the first: aa|bbbbbb bbbbbbbb bb|cc|(d|)(e|): the second document goes over three chunks.

    Record 3 of file 0 is empty, file 1 follows in the same unit. The second unit has file 2, whose last document was
    dropped with the tail.
    """
    return index_of(
        [[part(0, 1, 4), part(1, 1, 2)], [part(2, 1, 3)]],
        [
            Chunk(0, [(2, 0, 0)]),
            Chunk(0, []),
            Chunk(0, [(2, 1, 0), (4, 3, 0), (8, 0, 1)]),
            Chunk(0, [(3, 1, 1)], tokens=3),
            Chunk(1, [(5, 0, 2), (6, 1, 2)]),
            Chunk(1, []),
        ],
    )


@pytest.mark.parametrize(
    ("number", "record", "extent"),
    [
        (0, 1, Extent(0, 0, 0, 2)),
        (0, 2, Extent(0, 2, 2, 2)),
        (0, 4, Extent(2, 2, 2, 4)),
        (1, 1, Extent(2, 4, 2, 8)),
        (1, 2, Extent(3, 0, 3, 3)),
        (2, 1, Extent(4, 0, 4, 5)),
        (2, 2, Extent(4, 5, 4, 6)),
    ],
)
def test_a_record_is_found_where_its_document_lies(index: Index, number: int, record: int, extent: Extent) -> None:
    assert index.find(number, record) == extent


@pytest.mark.parametrize(
    ("number", "record"),
    [(0, 3), (0, 0), (0, 5), (0, -1), (1, 0), (1, 3), (2, 3), (2, 4), (3, 1)],
    ids=[
        "empty",
        "before",
        "behind",
        "negative",
        "of the file before",
        "behind its file",
        "dropped",
        "none",
        "no file",
    ],
)
def test_a_record_that_is_in_no_row_is_not_found(index: Index, number: int, record: int) -> None:
    assert index.find(number, record) is None


def test_a_document_that_begins_with_a_chunk_did_not_begin_before_it() -> None:
    index = index_of([[part(0, 1, 3)]], [Chunk(0, [(8, 0, 0)]), Chunk(0, [(8, 1, 0)]), Chunk(0, [(8, 2, 0)])])
    assert [index.find(0, record) for record in (1, 2, 3)] == [
        Extent(0, 0, 0, 8),
        Extent(1, 0, 1, 8),
        Extent(2, 0, 2, 8),
    ]


def test_a_document_that_fills_a_unit_is_found_from_its_first_chunk_on() -> None:
    """It began in no unit before, though that ends without the end of its own last document."""
    index = index_of(
        [[part(0, 1, 1)], [part(1, 1, 1)]],
        [Chunk(0, []), Chunk(1, []), Chunk(1, []), Chunk(1, [(8, 0, 1)])],
    )
    assert index.find(0, 1) is None
    assert index.find(1, 1) == Extent(1, 0, 3, 8)
    assert [index.goes_on(chunk, 1) for chunk in (-1, 0, 1, 2, 3)] == [False, False, True, True, False]
    assert index.goes_on(0, 0)


def test_what_goes_on_behind_a_chunk_leads_to_its_end(index: Index) -> None:
    assert [index.origin_of_rest(chunk) for chunk in (0, 1, 2)] == [("0.jsonl", 2), ("0.jsonl", 2), ("1.jsonl", 2)]
    assert index.origin_of_rest(4) is None
    assert index.origin_of_rest(5) is None


def test_a_file_in_several_parts_is_numbered_through() -> None:
    """Of file 1 the third part could not be read, so that nobody knows the numbers behind it."""
    index = index_of(
        [
            [part(0, 1, 2)],
            [part(1, 1, 3)],
            [part(1, 4, 2)],
            [part(1, 6, 0)],
            [part(1, None, 2)],
            [part(2, 1, 1)],
        ],
        [
            Chunk(0, [(8, 1, 0)]),
            Chunk(1, [(2, 0, 1), (8, 2, 1)]),
            Chunk(2, [(4, 0, 1), (8, 1, 1)]),
            Chunk(4, [(4, 0, 1), (8, 1, 1)]),
            Chunk(5, [(8, 0, 2)]),
        ],
    )
    found = {record: index.find(1, record) for record in range(1, 10)}
    assert found == {
        1: Extent(1, 0, 1, 2),
        2: None,
        3: Extent(1, 2, 1, 8),
        4: Extent(2, 0, 2, 4),
        5: Extent(2, 4, 2, 8),
        **dict.fromkeys(range(6, 10)),
    }
    assert index.find(2, 1) == Extent(4, 0, 4, 8)
    assert index.origin(1, 1, 2) == ("1.jsonl", 3)
    assert index.origin(2, 1, 1) == ("1.jsonl", 5)
    assert index.origin(3, 1, 1) == ("1.jsonl", None)
    with pytest.raises(OutputError, match=r"docs\.npy is damaged: file 2 is not of its unit\. `tokenmill verify`"):
        index.origin(3, 2, 1)
    assert index.names == ["0.jsonl", "1.jsonl", "2.jsonl"]


def test_a_unit_without_chunks_hides_no_other() -> None:
    index = index_of(
        [[part(0, 1, 1)], [part(1, 1, 1)], [part(2, 1, 1)]], [Chunk(0, [(8, 0, 0)]), Chunk(2, [(8, 0, 2)])]
    )
    assert [index.find(number, 1) for number in range(3)] == [Extent(0, 0, 0, 8), None, Extent(1, 0, 1, 8)]


def test_an_output_without_rows_has_no_documents() -> None:
    assert index_of([[part(0, 1, 5)]], []).find(0, 1) is None


# How much is opened

MANY = 4096


def many_chunks() -> MemoryStorage:
    """A unit of many chunks: in every fourth two documents end, in the others none. The last is one of a thousand."""
    chunks = [Chunk(0, [] if n % 4 else [(3, n // 2, 0), (8, n // 2 + 1, 0)]) for n in range(MANY)]
    chunks += [Chunk(0, []) for _ in range(1000)] + [Chunk(0, [(8, MANY // 2, 0)])]
    return output_of([[part(0, 1, MANY)]], chunks)


def test_few_sidecars_are_opened_however_many_there_are() -> None:
    storage = many_chunks()
    opened: list[str] = []
    storage.watch = lambda operation, name: opened.append(f"{operation} {name}")
    index = Index(Output(storage))
    assert opened == ["map manifest.json"]
    most = 0
    for chunk in (0, 4, MANY // 2, MANY - 4):
        for record in (chunk // 2, chunk // 2 + 1):
            opened.clear()
            extent = index.find(0, record + 1)
            assert extent is not None
            assert extent.last_chunk == chunk
            assert all(step.startswith("map chunks/") for step in opened)
            most = max(most, len(opened))
    # A binary search among 1,025 chunks with documents takes 11; then the chunk itself, and how the one before ends.
    assert most <= 14


def test_a_document_over_a_thousand_chunks_opens_none_of_those_it_only_passes_through() -> None:
    storage = many_chunks()
    index = Index(Output(storage))
    opened: list[str] = []
    storage.watch = lambda _operation, name: opened.append(name)
    assert index.find(0, MANY // 2 + 1) == Extent(MANY - 3, 0, MANY + 1000, 8)
    assert len(opened) <= 14
    opened.clear()
    assert index.origin_of_rest(MANY - 2) == ("0.jsonl", MANY // 2 + 1)
    assert len(opened) == 1


def test_a_sidecar_that_is_not_what_the_manifest_says_is_named() -> None:
    storage = output_of([[part(0, 1, 2)]], [Chunk(0, [(4, 0, 0), (8, 1, 0)])])
    put(storage, "chunks/0.docs.npy", data=npy(np.array([], SIDECAR_DTYPE)))
    with pytest.raises(OutputError, match=r"^memory:chunks/0\.docs\.npy has 0 documents, the manifest says 2$"):
        Index(Output(storage)).find(0, 1)
