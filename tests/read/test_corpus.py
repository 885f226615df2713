"""What planning asks of the inputs is answered from the files below one root."""

from __future__ import annotations

from tests.conftest import texts
from tests.support.sources import arrow_bytes, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.read.corpus import Corpus
from tokenmill.records import Codec, Format, Inspected
from tokenmill.storage.memory import MemoryStorage


def test_a_corpus_knows_its_files() -> None:
    parquet = parquet_file(["a", "b", "c"], row_group_size=1)
    arrow = arrow_bytes([{"text": ["a"]}, {"text": ["b"]}], "file")
    files = {"a/b.jsonl": texts("a"), "c.parquet": parquet, "d.md": b"# read me", "e.arrow": arrow}
    corpus = Corpus(MemoryStorage(files))
    lines, table = corpus.inspect("a/b.jsonl").file, corpus.inspect("c.parquet").file
    assert lines is not None
    assert table is not None
    assert (lines.name, lines.format, lines.codec) == ("a/b.jsonl", Format.JSONL, Codec.PLAIN)
    assert (table.name, table.format) == ("c.parquet", Format.PARQUET)
    assert corpus.inspect("d.md") == Inspected(None, "not JSON Lines, Parquet, Arrow or .txt")
    assert (corpus.text_bytes(lines), corpus.text_bytes(table)) == (lines.size, 2 * table.size)
    assert corpus.cuts(lines, 2) == [0, lines.size // 2, lines.size]
    assert corpus.cuts(table, 3) == [0, 1, 2, 3]
    batches = corpus.inspect("e.arrow").file
    assert batches is not None
    assert (batches.format, corpus.text_bytes(batches), corpus.cuts(batches, 2)) == (
        Format.ARROW,
        len(arrow),
        [0, 1, 2],
    )


def test_objects_without_text_in_a_text_file_are_a_text() -> None:
    files = {"a.txt": b'{"a": 1}\n', "b.txt": texts("b"), "c.txt": b'{"text": "c"}\n{"body": "c"}\n'}
    corpus = Corpus(MemoryStorage(files), ReadOptions())
    found = [corpus.inspect(name) for name in files]
    assert [f.file.format for f in found if f.file] == [Format.TEXT, Format.JSONL, Format.JSONL]
    said = "the name says text, the content is jsonl"
    assert [(f.remark, f.absent) for f in found] == [(None, None), (said, None), (said, None)]
