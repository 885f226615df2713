"""Lists that are kept in files."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from tokenmill.errors import OutputError
from tokenmill.output.spool import Spool
from tokenmill.storage.memory import MemoryStorage


def test_lines_are_read_as_often_as_needed() -> None:
    spool = Spool()
    for line in ("one\n", "two\n"):
        spool.append(line)
    assert len(spool) == 2
    assert list(spool) == list(spool) == [b"one\n", b"two\n"]
    assert spool.read(4, 7) == b"two"


def test_an_opened_file_is_read_wherever_it_lies() -> None:
    spool = Spool(MemoryStorage({"a": b"one\ntwo\n"}).open("a"))
    assert list(spool) == [b"one\n", b"two\n"]
    assert spool.read(4, 7) == b"two"
    assert list(spool) == [b"one\n", b"two\n"]


def test_temporary_data_without_room_is_an_error_that_names_the_place() -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OutputError, match="TMPDIR"):
        spool = Spool()
        spool._file = full
        spool.append("x")


def test_a_machine_without_a_usable_temporary_folder_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(*_: object) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", unusable)
    monkeypatch.setattr("tempfile.TemporaryFile", unusable)
    with pytest.raises(OutputError, match=r"any of the usual folders: No usable .*TMPDIR"):
        Spool()
