"""What is picked out of a record: a key with dots, or a way through nested objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import jsonl
from tokenmill.read.jsonl import JsonlParser, newlines
from tokenmill.read.pick import MISSING, look_up
from tokenmill.records import Documents, Reason

LIMIT = 10_000


def parse(*records: Any, text: str = "a.b", id_field: str | None = None) -> Documents:
    """The records by the fast path, which gives what line by line gives."""
    parser = JsonlParser(text, id_field, LIMIT)
    fast, slow = parser.parse(jsonl(*records), 0), parser.parse_lines(jsonl(*records), 0)
    assert (fast.texts, fast.document_ids, fast.rejects) == (slow.texts, slow.document_ids, slow.rejects)
    return fast


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"a.b": "key"}, "key"),
        ({"a": {"b": "way"}}, "way"),
        ({"a.b": "key", "a": {"b": "way"}}, "key"),
        ({"a": {"b": "way"}, "a.b": "key"}, "key"),
        ({"a.b": "key", "a": {}}, "key"),
        ({"a.b": "key", "a": 3}, "key"),
        ({"a.b": "", "a": {"b": "way"}}, ""),
    ],
)
def test_a_key_with_a_dot_wins_over_a_way_to_a_nested_field(record: dict[str, Any], text: str) -> None:
    found = parse(record)
    assert found.texts == ([text] if text else [])
    assert (found.empty, found.rejects) == (0 if text else 1, [])
    found = parse({"text": "x", "i": 1} | record, text="text", id_field="a.b")
    assert found.document_ids == [json.dumps(text).encode()]


@pytest.mark.parametrize("value", [None, 3, ["x"], {"b": "x"}])
def test_a_key_wins_even_if_its_value_is_of_no_use(value: object) -> None:
    found = parse({"a.b": value, "a": {"b": "way"}})
    assert [r.reason for r in found.rejects] == [Reason.TEXT_NOT_A_STRING]
    found = parse({"text": "x", "a.b": value, "a": {"b": "way"}}, text="text", id_field="a.b")
    assert found.document_ids == [json.dumps(value).encode()]


def test_without_key_and_way_there_is_no_text() -> None:
    found = parse({"a": {"c": "x"}}, {"b": "x"}, {"a": {"b.c": "x"}}, {"x.a.b": "x"}, {"a": [{"b": "x"}]})
    assert [r.reason for r in found.rejects] == [Reason.NO_TEXT_FIELD] * 5


def test_only_the_whole_field_is_a_key() -> None:
    found = parse({"a.b": {"c": "no"}, "a": {"b": {"c": "yes"}, "b.c": "no"}}, text="a.b.c")
    assert found.texts == ["yes"]


def test_text_and_id_may_be_keys_or_nested_each_by_itself() -> None:
    records = (
        {"d.t": "a", "d.i": 1},
        {"d": {"t": "b", "i": 2}},
        {"d.t": "c", "d": {"t": "-", "i": 3}},
        {"d": {"t": "d", "i": "-"}, "d.i": 4},
        {"d.t": "e"},
    )
    found = parse(*records, text="d.t", id_field="d.i")
    assert found.texts == ["a", "b", "c", "d", "e"]
    assert found.document_ids == [b"1", b"2", b"3", b"4", b"null"]


def test_records_that_are_all_alike_take_the_fast_path() -> None:
    for record in ({"a.b": "x"}, {"a": {"b": "x"}}, {"a.b": "x", "a": {}}):
        lines = jsonl(record, record)
        assert JsonlParser("a.b", "a.c", LIMIT)._parse_fast(lines, newlines(lines)) is not None


def test_a_key_of_3000_dots_is_a_key() -> None:
    field = ".".join("x" * 3000)
    found = parse({field: "yes"}, {"x": 1}, text=field, id_field="y." + field)
    assert (found.texts, found.document_ids) == (["yes"], [b"null"])


KEYS = st.sampled_from(["a", "b", "a.b", "a.c", "c"])
VALUES = st.recursive(st.sampled_from(["x", "", 1, None]), lambda inner: st.dictionaries(KEYS, inner, max_size=3))


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=4))
def test_what_is_picked_is_what_is_looked_up(records: list[dict[str, Any]]) -> None:
    found = parse(*records, id_field="a.c")
    texts = [look_up(record, "a.b") for record in records]
    good = [n for n, text in enumerate(texts) if isinstance(text, str) and text]
    assert list(found.numbers) == good
    assert found.texts == [texts[n] for n in good]
    ids = [look_up(records[n], "a.c") for n in good]
    assert [json.loads(i) for i in found.document_ids or ()] == [None if i is MISSING else i for i in ids]
