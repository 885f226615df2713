"""Text for people: foreign text made harmless, and numbers, columns and hints that read well."""

from __future__ import annotations

import pytest

from tokenmill.messages import (
    aligned,
    columns_of,
    counted,
    duration,
    near,
    nearest,
    printable,
    short,
    shortened,
    size,
    size_of,
    why,
    without_name,
    wrapped,
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain é 日本.jsonl", "plain é 日本.jsonl"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\udce9", "\\udce9"),
        ("\u202e", "\\u202e"),
        ("", ""),
    ],
)
def test_foreign_text_is_printed_without_what_a_terminal_obeys(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_anything_can_be_printed() -> None:
    assert printable(ValueError("a\nb")) == "a\\nb"


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10.0k"),
        (99_950, "100k"),
        (123_456, "123k"),
        (999_999, "1.00M"),
        (39_012_345, "39.0M"),
        (1_234_567_890, "1.23B"),
        (39 * 10**12, "39.0T"),
    ],
)
def test_a_count_can_be_short(count: int, shown: str) -> None:
    assert short(count) == shown


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [
        (0, 0, "0 / 0 B"),
        (5, 990, "5 / 990 B"),
        (17_680, 39_000_000, "0.0 / 39.0 MB"),
        (17.68e9, 39e9, "17.7 / 39.0 GB"),
        (1e15, 2e15, "1000.0 / 2000.0 TB"),
    ],
)
def test_a_part_has_the_unit_of_the_whole(done: float, total: float, shown: str) -> None:
    assert size_of(done, total) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1536, "1.5 kB"),
        (1_536_000, "1.5 MB"),
        (999_900_000, "999.9 MB"),
        (2e9, "2.0 GB"),
        (3.2e12, "3.2 TB"),
        (4.5e15, "4500.0 TB"),
        (-1_536_000, "-1.5 MB"),
        (-5, "-5 B"),
        (12.6, "13 B"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_it_fills(count: float, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00"),
        (0.4, "0:00"),
        (9, "0:09"),
        (59.6, "1:00"),
        (61, "1:01"),
        (3599, "59:59"),
        (3599.7, "1:00:00"),
        (3700, "1:01:40"),
        (100 * 3600 + 62, "100:01:02"),
    ],
)
def test_a_duration_is_told_as_a_clock_shows_it(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_columns_stand_under_each_other_the_first_to_the_left_the_others_to_the_right() -> None:
    rows = [("name", "rows", "of all"), ("a", "1,000", "5 %"), ("longer", "7", "")]
    assert list(aligned(rows)) == [
        "name     rows  of all",
        "a       1,000     5 %",
        "longer      7",
    ]
    assert list(aligned([("a ",), ("b",)])) == ["a", "b"]
    assert list(aligned([])) == []


@pytest.mark.parametrize(
    ("name", "most", "shown"),
    [
        ("a.jsonl", 7, "a.jsonl"),
        ("corpus/part-00017.jsonl", 15, "corpus/…7.jsonl"),
        ("語" * 9, 18, "語" * 9),
        ("語" * 9, 17, "語語語語…語語語語"),
        ("語" * 9, 16, "語語語語…語語語"),
        ("e\u0301" * 4, 4, "e\u0301" * 4),
    ],
)
def test_a_long_name_is_shortened_in_the_middle_by_the_columns_it_takes(name: str, most: int, shown: str) -> None:
    assert shortened(name, most) == shown
    assert columns_of(shown) <= most


def test_a_wide_name_is_aligned_by_its_columns() -> None:
    assert list(aligned([("語語", "1"), ("abcd", "22")])) == ["語語   1", "abcd  22"]


def test_a_long_line_is_wrapped_between_words_and_a_long_word_stays_whole() -> None:
    assert wrapped("one two three", 20, 2) == "one two three"
    assert wrapped("one two three four", 9, 2) == "one two\n  three\n  four"
    assert wrapped("see /a/very/long/path/to/it and go", 10, 2) == "see\n  /a/very/long/path/to/it\n  and go"
    assert wrapped("name    a b c", 9, 8) == "name    a\n        b\n        c"
    assert wrapped("語語 語語 語語", 9, 0) == "語語 語語\n語語"


def test_rows_of_different_lengths_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        list(aligned([("a", "b"), ("c",)]))


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("seq_lenght", "; did you mean 'seq_len'?"),
        ("SEQ_LEN", "; did you mean 'seq_len'?"),
        ("tails", "; did you mean 'tail'?"),
        ("tok", "; did you mean 'tokenizer'?"),  # how it begins is enough
        ("izer", "; known: seq_len, tail, tokenizer"),
        ("", "; known: seq_len, tail, tokenizer"),
        ("xyz", "; known: seq_len, tail, tokenizer"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest_or_with_all(word: str, hint: str) -> None:
    assert nearest(word, iter(["tokenizer", "seq_len", "tail"])) == hint


@pytest.mark.parametrize(
    ("word", "meant"),
    [("--seq-lenght", "--seq-len"), ("seq-lenght", "--seq-len"), ("--tok", "--tokenizer"), ("--x", None), ("--", None)],
)
def test_dashes_make_no_two_options_alike(word: str, meant: str | None) -> None:
    assert near(word, ["--seq-len", "--tokenizer", "--a"]) == meant


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (2000, "2,000 files"), (-1, "-1 files")]
)
def test_a_number_agrees_with_its_noun(count: int, shown: str) -> None:
    assert counted(count, "file") == shown


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(2, "entry", "entries") == "2 entries"


def test_a_name_is_said_once() -> None:
    assert without_name("a.jsonl", "a.jsonl cannot be read: No such file") == "it cannot be read: No such file"
    assert without_name("a\n", r"a\n changed since") == "it changed since"
    assert without_name("a.jsonl", "gone") == "gone"


def test_an_error_of_the_system_is_told_with_the_file_it_names() -> None:
    assert why(OSError(21, "Is a directory", "/out/manifest.json")) == "Is a directory (manifest.json)"
    assert why(OSError(18, "Invalid link", "/tmp/x", None, b"/out/y\x1b")) == r"Invalid link (y\x1b)"
    assert why(OSError(28, "No space left")) == "No space left"
    assert why(OSError("strange")) == "strange"
