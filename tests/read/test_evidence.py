"""What the beginning of a file tells."""

from __future__ import annotations

import pytest

from tests.conftest import texts
from tokenmill.read.evidence import is_object, look_at

LINE = texts("a")


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        (b'{"a": 1}', True),
        (b' {"a": 1}\r', True),
        (b"{}", True),
        (b'{"a": NaN}', True),
        (b'{"a": 1', False),
        (b'{"a": 1} x', False),
        (b'{"a": "\xff"}', False),
        (b'[{"a": 1}]', False),
        (b"1", False),
        (b"", False),
    ],
)
def test_a_line_is_an_object_or_not(line: bytes, is_one: bool) -> None:
    assert is_object(line) == is_one


def test_what_json_allows_is_an_object_even_if_python_refuses_it() -> None:
    assert is_object(b'{"a": ' + b"9" * 5000 + b"}")
    assert is_object(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    assert not is_object(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]")


@pytest.mark.parametrize(
    ("text", "lines", "objects", "records"),
    [
        (b"", 0, 0, 0),
        (b"\n \r\n\t\n", 0, 0, 0),
        (LINE * 3, 3, 3, 3),
        (LINE + b"broken\n", 2, 1, 1),
        (b"{'a': 1}\n" + LINE, 2, 1, 2),
        (b'[\n{"a": 1},\n{"a": 2}\n]', 4, 1, 1),
        (b'{"a": [\n{\n]}', 3, 0, 0),
        (b'\xef\xbb\xbf{"a": 1}', 1, 1, 1),
    ],
)
def test_lines_objects_and_records_are_counted(text: bytes, lines: int, objects: int, records: int) -> None:
    seen = look_at(text, whole=True)
    assert (seen.lines, seen.objects, seen.records) == (lines, objects, records)


def test_a_line_that_is_cut_off_counts_if_it_is_the_only_one() -> None:
    cut = b'{"text": "a'
    assert look_at(cut, whole=False).begins_with_object
    assert not look_at(cut, whole=True).begins_with_object
    assert look_at(LINE + cut, whole=False).objects == 1
    assert look_at(LINE + cut, whole=False).records == 2


@pytest.mark.parametrize("text", [b"[1,", b'[\n "a",\n "b', b'{"a":\n1}', b'{"a": 1,\n"b": [1,\n2', b"7\n8\n"])
def test_a_value_over_lines_is_known_even_if_it_is_cut_off(text: bytes) -> None:
    assert look_at(text, whole=False).is_one_value


@pytest.mark.parametrize(
    "text", [LINE, b'{"a": "b\nc"}\nd\n', b'{"a": 1\n{"a": 2\n{"a": 3\n', b"2024-01-01 x", b"x\n["]
)
def test_lines_that_are_broken_are_not_a_value(text: bytes) -> None:
    assert not look_at(text, whole=False).is_one_value
