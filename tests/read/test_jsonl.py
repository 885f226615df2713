"""JSON Lines: every line is a document, empty, or a reject with its place; the fast path is the slow one."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.conftest import jsonl, texts
from tests.support.sources import opened, parse_found
from tokenmill.config import ReadOptions
from tokenmill.read.block import ReadingWay
from tokenmill.read.jsonl import MAX_BLOCK_LINES, JsonlParser, JsonlReader
from tokenmill.read.lines import Break, cut_lines
from tokenmill.read.ring import Ring
from tokenmill.records import Codec, Documents, Part, Reason

LIMIT = 1 << 20


def parse(data: bytes, *, text: str = "text", id_field: str | None = None, limit: int = LIMIT) -> Documents:
    return JsonlParser(text, id_field, limit).parse(data, 0)


def test_a_block_of_good_lines_gives_texts_and_line_numbers() -> None:
    found = parse(texts("a", "b\nb", "ü"))
    assert found.texts == ["a", "b\nb", "ü"]
    assert list(found.numbers) == [0, 1, 2]
    assert (found.records, found.lines, found.empty, found.rejects) == (3, 3, 0, [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "cut o', Reason.BROKEN_JSON),
        (b'{"text": "a"} {"text": "b"}', Reason.BROKEN_JSON),
        (b"nonsense", Reason.BROKEN_JSON),
        (b'{"text": "raw \x01 control"}', Reason.BROKEN_JSON),
        (b'{"text": ' + b"[" * 100_000, Reason.BROKEN_JSON),
        (b'["text"]', Reason.NOT_AN_OBJECT),
        (b'"text"', Reason.NOT_AN_OBJECT),
        (b"17", Reason.NOT_AN_OBJECT),
        (b'{"body": "a"}', Reason.NO_TEXT_FIELD),
        (b"{}", Reason.NO_TEXT_FIELD),
        (b'{"text": null}', Reason.TEXT_NOT_A_STRING),
        (b'{"text": 3}', Reason.TEXT_NOT_A_STRING),
        (b'{"text": ["a"]}', Reason.TEXT_NOT_A_STRING),
        (b'{"text": "\xff"}', Reason.INVALID_UTF8),
        (b'{"text": "\xed\xa0\x80"}', Reason.INVALID_UTF8),
        (b'{"text": "\\ud800"}', Reason.LONE_SURROGATE),
        (b'{"text": "\\ude00\\ud83d"}', Reason.LONE_SURROGATE),
        (b'{"text": "' + b"x" * LIMIT + b'"}', Reason.TOO_LARGE),
    ],
)
def test_a_bad_line_is_rejected_with_its_place_and_its_neighbours_survive(line: bytes, reason: Reason) -> None:
    before = texts("before")
    found = parse(before + line + b"\n" + texts("after"))
    assert found.texts == ["before", "after"]
    assert list(found.numbers) == [0, 2]
    (reject,) = found.rejects
    assert (reject.reason, reject.record, reject.offset) == (reason, 1, len(before))
    assert reject.head == line[:160]
    assert found.records == 3


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "score": NaN}',
        b'{"text": "a", "score": -Infinity}',
        b'{"text": "a", "other": "\\ud800"}',
        b'{"text": 3, "text": "a"}',
        b'{"te\\u0078t": "a"}',
        b'{"other": {"text": 1}, "text": "a", "list": [null, true, 1e400]}',
        b'  {"text": "a"}\t ',
        b'\xef\xbb\xbf{"text": "a"}',
        b'{"text": "a"}\r',
    ],
)
def test_a_line_that_python_accepts_is_accepted(line: bytes) -> None:
    if not line.startswith(b"\xef\xbb\xbf"):
        assert json.loads(line)["text"] == "a"
    assert parse(texts("x") + line + b"\n" + texts("y")).texts == ["x", "a", "y"]
    assert parse(line).texts == ["a"]


def test_blank_lines_are_not_records_but_count_as_lines() -> None:
    found = parse(b"\n" + texts("a") + b"  \r\n\n" + texts("b"))
    assert found.texts == ["a", "b"]
    assert list(found.numbers) == [1, 4]
    assert (found.records, found.lines) == (2, 5)


def test_crlf_and_a_missing_last_newline_are_fine() -> None:
    assert parse(b'{"text": "a"}\r\n{"text": "b"}').texts == ["a", "b"]


def test_empty_text_is_counted_as_empty() -> None:
    found = parse(texts("a", "", "b"))
    assert (found.texts, list(found.numbers), found.empty, found.records) == (["a", "b"], [0, 2], 1, 3)


def test_two_lines_that_break_a_record_between_them_are_not_taken_for_two_records() -> None:
    data = b'{"text":\n"a"} {"text": "b"}\n'
    found = parse(data)
    assert found.texts == []
    assert [r.reason for r in found.rejects] == [Reason.BROKEN_JSON] * 2


def test_dotted_paths_reach_nested_fields() -> None:
    data = jsonl({"doc": {"body": "a"}, "text": "no"}, {"doc": {}}, {"doc": 3}, {"doc": {"body": "b"}})
    found = parse(data, text="doc.body")
    assert found.texts == ["a", "b"]
    assert [r.reason for r in found.rejects] == [Reason.NO_TEXT_FIELD] * 2


@pytest.mark.parametrize(
    ("field", "record", "expected"),
    [
        ("id", {"text": "a", "id": "x-1"}, b'"x-1"'),
        ("id", {"text": "a", "id": 7}, b"7"),
        ("id", {"text": "a"}, b"null"),
        ("meta.id", {"text": "a", "meta": {"id": [1, 2]}}, b"[1, 2]"),
        ("meta.id", {"text": "a", "meta": {}}, b"null"),
        ("meta.id", {"text": "a", "meta": 3}, b"null"),
    ],
)
def test_ids_are_kept_as_json(field: str, record: dict[str, object], expected: bytes) -> None:
    assert parse(jsonl(record), id_field=field).document_ids == [expected]


def test_an_id_is_always_json() -> None:
    data = b'{"text": "a", "id": "\xff"}\n{"text": "b", "id": NaN}\n{"text": "c", "id": "\\ud800"}\n'
    assert parse(data, id_field="id").document_ids == ['"\ufffd"'.encode(), b"null", b'"\\ud800"']


@pytest.mark.parametrize(
    "field", ['a"b', "a\\b", "a\nb", "\0", "\x1b[2J", "\ud800", "é", "'", "{}", ".".join("x" * 200)]
)
def test_any_field_can_be_the_text_or_the_id(field: str) -> None:
    nested: object = "found"
    for key in reversed(field.split(".")):
        nested = {key: nested}
    assert isinstance(nested, dict)
    data = jsonl(nested, nested | {"more": 1})
    assert parse(data, text=field).texts == ["found", "found"]
    assert parse(jsonl(nested | {"text": "a"}), id_field=field).document_ids == [b'"found"']


def test_a_field_with_thousands_of_dots_is_just_not_there() -> None:
    field = ".".join("x" * 3001)
    found = parse(texts("a"), text=field)
    assert [r.reason for r in found.rejects] == [Reason.NO_TEXT_FIELD]
    assert parse(texts("a"), id_field=field).document_ids == [b"null"]


def test_text_and_id_may_lie_in_the_same_nested_object() -> None:
    found = parse(jsonl({"d": {"t": "a", "i": 1}}, {"d": {"t": "b"}}), text="d.t", id_field="d.i")
    assert (found.texts, found.document_ids) == (["a", "b"], [b"1", b"null"])


LINES = st.one_of(
    st.sampled_from(
        [
            b'{"text":"a"}',
            b'{"text":""}',
            b'{"text":"a","x":NaN}',
            b'{"text":"a","id":[1, "x"]}',
            b'{"id":"\xff","text":"b"}',
            b'{"text":',
            b'"a"}',
            b'{"text":"b"} {"text":"c"}',
            b"{",
            b"}",
            b"",
            b" ",
            b"\r",
            b'{"text":"\\ud800"}',
            b'{"text":"\xc3\xa9"}',
            b'{"text":"\xc3"}',
            b'{"text":1,"text":"z"}',
            b"[]",
            b"null",
        ]
    ),
    st.binary(max_size=12),
    st.text(max_size=8).map(lambda t: json.dumps({"text": t}, ensure_ascii=False).encode("utf-8", "replace")),
)


@given(st.lists(LINES, max_size=6), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
@example([b'{"text":', b'"a"} {"text":"b"}'], b"\n", True)
@example([b'{"a":{}', b"{}}"], b"\n", False)
@example([b'{"text":"a"} {"text":"b"}', b""], b"\n", True)
def test_the_fast_path_gives_exactly_what_line_by_line_gives(lines: list[bytes], newline: bytes, ended: bool) -> None:
    """And that is, line by line, at least what Python's own decoder takes."""
    data = newline.join(lines) + (newline if ended else b"")
    if not data:
        return
    parser = JsonlParser("text", "id", LIMIT)
    fast, slow = parser.parse(data, 5), parser.parse_lines(data, 5)
    assert (fast.texts, list(fast.numbers), fast.document_ids) == (slow.texts, list(slow.numbers), slow.document_ids)
    assert (fast.records, fast.lines, fast.empty, fast.rejects) == (slow.records, slow.lines, slow.empty, slow.rejects)
    assert fast.records == len(fast.texts) + fast.empty + len(fast.rejects)
    found = dict(zip(fast.numbers, fast.texts, strict=True))
    for number, line in enumerate(data.split(b"\n")):
        text = text_by_python(line)
        assert text is None or found.get(number, "") == text
        assert line.strip() or number not in found


def text_by_python(line: bytes) -> str | None:
    """The text of a record that Python's own decoder takes."""
    try:
        record = json.loads(line.removeprefix(b"\xef\xbb\xbf").decode())
        text = record["text"]
        text.encode()
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return str(text)


def test_a_block_of_good_lines_takes_the_fast_path_and_one_bad_line_the_other() -> None:
    """Which is what makes them comparable: the fast one gives a range of numbers."""
    good = texts("a", "b")
    assert isinstance(parse(good).numbers, range)
    assert isinstance(parse(good.replace(b"\n", b"\r\n")).numbers, range)
    assert isinstance(parse(good.rstrip(b"\n")).numbers, range)
    for bad in (good + b"\n", b" " + good, b"[]\n" + good, good + b'{"text": 3}', good + b'{"text": "c"} {}'):
        assert isinstance(parse(bad).numbers, list)


@given(
    st.lists(LINES | st.integers(40, 90).map(lambda n: texts("x" * n).rstrip()), max_size=8),
    st.lists(st.integers(0, 400), max_size=8),
    st.integers(5, 70),
)
@example([b"\xef\xbb\xbf"], [], 5)
def test_how_the_bytes_arrive_never_shows(lines: list[bytes], cuts: list[int], limit: int) -> None:
    """A resumed run reads other pieces than the first: documents, lines and rejects must be the same."""
    data = b"\n".join(lines)
    points = [0, *sorted(c for c in cuts if c < len(data)), len(data)]
    arrivals = [[data], [data[a:b] for a, b in pairwise(points) if b > a], [data[i : i + 1] for i in range(len(data))]]
    assert outcome(arrivals[0], limit) == outcome(arrivals[1], limit) == outcome(arrivals[2], limit)


def outcome(pieces: list[bytes], limit: int) -> list[object]:
    """Everything that is known of each record, with absolute line numbers."""
    parser = JsonlParser("text", None, limit)
    found: list[object] = []
    line = 0
    for stretch in cut_lines([p for p in pieces if p], 0, limit):
        documents = parse_found(parser, stretch)
        found += [(line + n, t) for n, t in zip(documents.numbers, documents.texts, strict=True)]
        found += [(line + r.record, r.offset, r.reason, r.detail, r.head) for r in documents.rejects]
        line += documents.lines
    return [*sorted(found, key=str), line]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6), st.integers(1, 60))
def test_blocks_of_lines_hold_every_byte_once_however_it_arrives(data: bytes, cuts: list[int], limit: int) -> None:
    points = [0, *sorted(c for c in cuts if c < len(data)), len(data)]
    pieces = [data[a:b] for a, b in pairwise(points) if b > a]
    position = 3 if data.startswith(b"\xef\xbb\xbf") and (pieces and pieces[0].startswith(b"\xef\xbb\xbf")) else 0
    for found in cut_lines(pieces, 0, limit):
        assert found.offset == position
        if isinstance(found, Break):
            end = data.find(b"\n", position) + 1 or len(data)
            assert end - position > limit
            assert found.reject.reason is Reason.TOO_LARGE
            position = end
        else:
            assert data[position : position + len(found.data)] == found.data
            position += len(found.data)
            assert position == len(data) or bytes(found.data).endswith(b"\n")
    assert position == len(data)


def read_part(data: bytes, part: Part, offset: int | None = None) -> list[str]:
    reader = JsonlReader(opened(data), Codec.PLAIN, part, ReadOptions(max_document_bytes=LIMIT))
    return [t for block in reader.blocks(offset) for t in block.parse().texts]


def test_byte_ranges_that_cover_a_file_give_each_line_once() -> None:
    values = ["a", "bb", "", "c" * 30, "d", "ee" * 9, "f"]
    data = texts(*values).rstrip(b"\n")
    size = len(data)
    for first in range(size + 1):
        for second in range(first, size + 1, 3):
            parts = [Part(0, 0, first), Part(0, first, second), Part(0, second, size)]
            assert [t for p in parts for t in read_part(data, p)] == [v for v in values if v]


def test_reading_goes_on_at_the_offset_of_a_block() -> None:
    assert read_part(texts("a", "b", "c"), Part(0), len(texts("a"))) == ["b", "c"]


def test_a_line_over_the_limit_costs_no_more_memory_than_the_limit() -> None:
    pieces = (b"x" * 100_000 for _ in range(200))
    tracemalloc.start()
    (found,) = cut_lines(pieces, 0, 5_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, Break)
    assert peak < 6_000_000


def test_a_line_over_the_limit_is_rejected_and_counted_as_a_line() -> None:
    data = texts("a") + texts("x" * (3 * LIMIT)) + texts("b")
    reader = JsonlReader(opened(data), Codec.PLAIN, Part(0), ReadOptions(max_document_bytes=LIMIT))
    found = [block.parse() for block in reader.blocks(None)]
    assert [t for f in found for t in f.texts] == ["a", "b"]
    (reject,) = [r for f in found for r in f.rejects]
    assert (reject.reason, reject.offset) == (Reason.TOO_LARGE, len(texts("a")))
    assert sum(f.lines for f in found) == 3


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("ending", [b"", b"\n", b"\njunk"])
def test_a_block_of_lines_of_a_few_bytes_is_parsed_in_portions(
    lent: bool, ending: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may be a reject, which takes a hundred times its size."""
    monkeypatch.setattr("tokenmill.read.jsonl.MAX_BLOCK_LINES", 4)
    for count in range(1, 14):
        data = b"\n".join([b"%d" % n for n in range(count)]) + ending
        way = ReadingWay(ring=Ring() if lent else None)
        blocks = list(JsonlReader(opened(data), Codec.PLAIN, Part(0), ReadOptions(), way).blocks(None))
        assert sum(block.consumed for block in blocks) == len(data)
        found = [block.parse() for block in blocks]
        assert max(documents.lines for documents in found) <= 5  # a line without a newline comes on top
        places = [reject.offset for documents in found for reject in documents.rejects]
        (whole,) = [JsonlParser("text", None, 1000).parse_lines(data, 0)]
        assert places == [reject.offset for reject in whole.rejects]
        assert sum(documents.lines for documents in found) == whole.lines


def test_a_megabyte_of_junk_takes_a_few_megabytes() -> None:
    """Half a million lines that are rejected, in one block of the file."""
    blocks = JsonlReader(opened(b"x\n" * (1 << 19)), Codec.PLAIN, Part(0), ReadOptions()).blocks(None)
    assert {block.parse().records for block in blocks} == {MAX_BLOCK_LINES}
