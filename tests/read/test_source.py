"""An input is read only if it is, and stays, the file that was planned; what cannot be read is named."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import xxhash

from tests.conftest import texts
from tests.support.changes import append, rewrite, swap
from tests.support.sources import opened, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.errors import InputChangedError, UnreadableInputError
from tokenmill.read import decompress, lines
from tokenmill.read.block import ReadingWay
from tokenmill.read.formats import open_reader
from tokenmill.read.ring import Ring
from tokenmill.read.sniff import inspect_file
from tokenmill.read.source import EDGE_BYTES, fingerprint_of, is_as_planned, open_input
from tokenmill.records import InputFile, Part
from tokenmill.storage.base import Reading
from tokenmill.storage.local import LocalStorage
from tokenmill.storage.memory import MemoryStorage

SINCE = "a.jsonl changed since the job was planned: restore it, or use --overwrite"
WHILE = "a.jsonl changed while it was read: restore it, or use --overwrite"
DATA = texts("x" * 3 * EDGE_BYTES)


def planned(inputs: Reading, name: str = "a.jsonl") -> InputFile:
    file = inspect_file(inputs, name).file
    assert file is not None
    return file


def read(inputs: Reading, file: InputFile) -> bytes:
    with open_input(inputs, file) as source:
        return source.read()


@pytest.fixture(params=["disk", "memory"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], Reading]:
    """Puts a.jsonl where it is found, in place of the one before."""
    memory = MemoryStorage()

    def put(data: bytes) -> Reading:
        if request.param == "memory":
            memory.publish("a.jsonl", [data])
            return memory
        (tmp_path / "a.jsonl").write_bytes(data)
        return LocalStorage(tmp_path)

    return put


# the file that was planned


def test_a_file_that_is_as_it_was_planned_is_read_from_its_start(stored: Callable[[bytes], Reading]) -> None:
    inputs = stored(DATA)
    assert read(inputs, planned(inputs)) == DATA
    assert read(stored(b""), planned(stored(b""))) == b""


def edited(place: int) -> bytes:
    """Another letter in place of one, and so the same size."""
    return DATA[:place] + b"y" + DATA[place + 1 :]


@pytest.mark.parametrize(
    "now",
    [
        DATA + b"\n",
        DATA[:-1],
        b"",
        edited(20),
        edited(EDGE_BYTES - 1),
        edited(len(DATA) - EDGE_BYTES),
        edited(len(DATA) - 20),
        texts("y" * 3 * EDGE_BYTES),
    ],
    ids=["longer", "shorter", "empty", "head", "end of the head", "start of the tail", "tail", "other text"],
)
def test_a_file_that_changed_since_it_was_planned_is_not_read(stored: Callable[[bytes], Reading], now: bytes) -> None:
    file = planned(stored(DATA))
    with pytest.raises(InputChangedError) as raised:
        read(stored(now), file)
    assert str(raised.value) == SINCE


def test_a_file_that_is_written_again_as_it_was_is_read(stored: Callable[[bytes], Reading]) -> None:
    """Before it is opened, only the content counts: a corpus may be copied to another machine."""
    file = planned(stored(DATA))
    assert read(stored(DATA), file) == DATA


def test_a_file_is_known_by_its_size_and_its_first_and_last_64_kib() -> None:
    def fingerprint(data: bytes) -> str:
        return fingerprint_of(opened(data))

    edge = 64 << 10
    before = fingerprint(DATA)
    assert before == xxhash.xxh3_128_hexdigest(b"%d:" % len(DATA) + DATA[:edge] + DATA[-edge:])
    for place in (20, edge - 1, len(DATA) - edge, len(DATA) - 4):
        assert fingerprint(edited(place)) != before, place
    # Reading it all would take as long as the job: what lies between goes unnoticed, as the documentation says.
    assert fingerprint(edited(edge)) == before == fingerprint(edited(len(DATA) - edge - 1))
    assert fingerprint(DATA[:edge] + DATA[edge + 1 :]) != before
    assert fingerprint(b"short") == xxhash.xxh3_128_hexdigest(b"5:short" + b"short")


def test_a_fingerprint_does_not_depend_on_where_the_file_was_read_to() -> None:
    source = opened(bytes(range(256)) * 1000)
    first = fingerprint_of(source)
    source.seek(1000)
    assert fingerprint_of(source) == first
    source.seek(0)
    assert fingerprint_of(source, source.read(64 << 10)) == first


def test_a_source_is_as_planned_if_size_and_fingerprint_are() -> None:
    file = planned(MemoryStorage({"a.jsonl": DATA}))
    assert is_as_planned(opened(DATA), file)
    assert not is_as_planned(opened(DATA), msgspec.structs.replace(file, size=file.size + 1))
    assert not is_as_planned(opened(DATA), msgspec.structs.replace(file, fingerprint="another"))


# a file that does not stay what it was


@pytest.mark.parametrize("change", [rewrite, swap, append], ids=["time", "identity", "size"])
def test_a_change_while_a_file_is_read_is_noticed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(texts("first"))
    os.utime(path, (1, 1))  # long ago: whatever is written now has another time
    inputs = LocalStorage(tmp_path)
    file = planned(inputs)
    with pytest.raises(InputChangedError) as raised, open_input(inputs, file) as source:
        assert source.read() == texts("first")
        change(path)
    assert str(raised.value) == WHILE


def test_a_file_that_is_published_again_while_it_is_read_has_changed() -> None:
    inputs = MemoryStorage({"a.jsonl": DATA})
    with pytest.raises(InputChangedError, match=WHILE), open_input(inputs, planned(inputs)):
        inputs.publish("a.jsonl", [DATA])


def test_another_name_for_a_file_is_not_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(texts("first"))
    inputs = LocalStorage(tmp_path)
    with open_input(inputs, planned(inputs)) as source:
        os.link(tmp_path / "a.jsonl", tmp_path / "link")
        assert source.read() == texts("first")


def test_a_file_that_is_removed_while_it_is_read_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(DATA)
    inputs = LocalStorage(tmp_path)
    file = planned(inputs)
    with (
        pytest.raises(UnreadableInputError, match=r"^a\.jsonl cannot be read: No such file or directory$"),
        open_input(inputs, file),
    ):
        path.unlink()


# a file that cannot be read


def test_a_file_that_could_not_be_read_when_it_was_planned_is_not_tried() -> None:
    asked: list[str] = []
    inputs = MemoryStorage({"a.jsonl": DATA}, lambda operation, _: asked.append(operation))
    file = msgspec.structs.replace(planned(inputs), problem="Stale file handle")
    asked.clear()
    with pytest.raises(UnreadableInputError, match=r"^a\.jsonl cannot be read: Stale file handle$"):
        read(inputs, file)
    assert asked == []


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(DATA)
    inputs = LocalStorage(tmp_path)
    file = planned(inputs)
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(UnreadableInputError, match=r"^a\.jsonl cannot be read: No such file or directory$"):
        read(inputs, file)
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(UnreadableInputError, match=r"^a\.jsonl cannot be read: Is a directory$"):
        read(inputs, file)


def test_a_name_is_printed_without_what_a_terminal_obeys() -> None:
    inputs = MemoryStorage({"\x1b[2J.jsonl": DATA})
    file = planned(inputs, "\x1b[2J.jsonl")
    with pytest.raises(InputChangedError, match=r"^\\x1b\[2J\.jsonl changed since"):
        read(MemoryStorage({"\x1b[2J.jsonl": b""}), file)
    with pytest.raises(UnreadableInputError, match=r"^\\x1b\[2J\.jsonl cannot be read"):
        read(MemoryStorage(), file)


@pytest.mark.parametrize(
    ("error", "said"),
    [(OSError(errno.ESTALE, "Stale file handle"), "Stale file handle"), (OSError("odd"), "odd")],
    ids=["of the system", "of a library"],
)
def test_an_error_while_a_file_is_read_is_one_of_this_file(error: OSError, said: str) -> None:
    inputs = MemoryStorage({"a.jsonl": DATA})
    file = planned(inputs)
    with pytest.raises(UnreadableInputError) as raised, open_input(inputs, file) as source:
        source.read(10)
        raise error
    assert str(raised.value) == f"a.jsonl cannot be read: {said}"
    assert raised.value.__cause__ is error


def test_an_error_that_is_not_of_the_file_stays_what_it_is() -> None:
    inputs = MemoryStorage({"a.jsonl": DATA})
    with pytest.raises(ZeroDivisionError), open_input(inputs, planned(inputs)):
        raise ZeroDivisionError
    named = UnreadableInputError("b.jsonl cannot be read: why")
    with pytest.raises(UnreadableInputError) as raised, open_input(inputs, planned(inputs)):
        raise named
    assert raised.value is named


def test_a_file_is_closed_whatever_happens(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(DATA)
    inputs = LocalStorage(tmp_path)
    file = planned(inputs)
    before = os.listdir("/proc/self/fd")
    read(inputs, file)
    with pytest.raises(InputChangedError):
        read(inputs, msgspec.structs.replace(file, fingerprint="another"))
    with pytest.raises(UnreadableInputError), open_input(inputs, file):
        raise OSError("odd")
    assert len(os.listdir("/proc/self/fd")) == len(before)


# the readers


TEXTS = [f"document {n}" for n in range(40)]
LINES = texts(*TEXTS)


@pytest.mark.parametrize("lent", [False, True], ids=["own", "lent"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", LINES),
        ("a.jsonl.gz", gzip.compress(LINES)),
        ("a.txt", b"some text " * 100),
        ("a.txt.gz", gzip.compress(b"some text " * 100)),
        ("a.parquet", parquet_file(TEXTS, row_group_size=10)),
    ],
    ids=["jsonl", "jsonl.gz", "txt", "txt.gz", "parquet"],
)
def test_a_read_that_fails_is_never_taken_for_the_end_or_for_damage(
    name: str, data: bytes, lent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever read it is, with blocks so small that there are many."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    monkeypatch.setattr(decompress, "INPUT_BYTES", 64)
    monkeypatch.setattr(decompress, "OUTPUT_BYTES", 64)
    ring = Ring() if lent else None
    inputs = MemoryStorage({name: data})
    file = planned(inputs, name)
    reads = count_reads(inputs, file, ring)
    assert reads > 3
    for good in range(reads):
        with pytest.raises(UnreadableInputError) as raised:
            count_reads(inputs, file, ring, good)
        assert str(raised.value) == f"{name} cannot be read: Input/output error"


def count_reads(inputs: MemoryStorage, file: InputFile, ring: Ring | None, good: int | None = None) -> int:
    """How many reads it takes to read a file; the one after so many good ones fails."""
    reads = 0

    def watch(operation: str, _: str) -> None:
        nonlocal reads
        if operation == "read":
            if reads == good:
                raise OSError(errno.EIO, "Input/output error")
            reads += 1

    inputs.watch = watch
    with open_input(inputs, file) as source:
        for block in open_reader(source, file, Part(0), ReadOptions(), ReadingWay(ring=ring)).blocks(None):
            assert block.parse().rejects == []
            block.release()
    return reads
