"""The kinds of value: what each accepts, what it makes of it, and how it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenmill.config import Eos, RejectLimit, Tail, parse_size
from tokenmill.config.kinds import (
    Choice,
    Directory,
    EosToken,
    FieldName,
    Flag,
    Kind,
    Paths,
    RejectLimitValue,
    Size,
    Text,
    UnitNumbers,
    WholeNumber,
)
from tokenmill.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        (Text(), "a b", "a b"),
        (FieldName(), "meta.text", "meta.text"),
        (EosToken(), "</s>", "</s>"),
        (EosToken(), Eos.OFF, Eos.OFF),
        (WholeNumber(), 1, 1),
        (WholeNumber(least=0, most=3), 0, 0),
        (WholeNumber(least=0, most=3), 3, 3),
        (Size(), 1, 1),
        (Size(), "2kB", 2000),
        (Choice(tuple(Tail)), "drop", Tail.DROP),
        (Choice(tuple(Tail)), Tail.DROP, Tail.DROP),
        (Flag(), True, True),
        (UnitNumbers(), "12, 7,7", (7, 12)),
        (UnitNumbers(), [12, 7], (7, 12)),
        (UnitNumbers(), 7, (7,)),
        (RejectLimitValue(), "0%", RejectLimit(share=0.0)),
        (RejectLimitValue(), "5%", RejectLimit(share=0.05)),
        (RejectLimitValue(), "100%", RejectLimit(share=1.0)),
        (Paths(), "in", ("in",)),
        (Paths(), Path("a") / "b", ("a/b",)),
        (Paths(), ["a", Path("b")], ("a", "b")),
        (Directory(), "out", Path("out")),
    ],
)
def test_a_value_is_kept_in_one_form(kind: Kind, given: object, kept: object) -> None:
    found = kind.check(given, "name")
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Text(), 3, "must be a non-empty string, not 3"),
        (FieldName(), 3, "must be a non-empty string, not 3"),
        (FieldName(), "a..b", "'a..b' has an empty part: write e.g. meta.text"),
        (EosToken(), False, "must be a non-empty string, not False"),
        (WholeNumber(), "2048", "must be a whole number of at least 1, not '2048'"),
        (WholeNumber(), 1.0, "must be a whole number of at least 1, not 1.0"),
        (WholeNumber(), True, "must be a whole number of at least 1, not True"),
        (WholeNumber(most=3), 4, "must be at most 3, not 4"),
        (Size(), True, "True is not a size: write 1000000, 256MiB or 4GB"),
        (Size(), "0.5", "must be at least one byte, not '0.5'"),
        (Size(), "3 i", "'3 i' is not a size: write 1000000, 256MiB or 4GB"),
        (Choice(tuple(Tail)), "padd", "there is no choice 'padd'; did you mean 'pad'?"),
        (Flag(), 1, "must be true or false, not 1"),
        (UnitNumbers(), True, "expected unit numbers such as 7,12, got True"),
        (RejectLimitValue(), "101%", "a percentage must be between 0% and 100%, not '101%'"),
        (RejectLimitValue(), -1, "a count must be 0 or more, not -1"),
        (Directory(), None, "must be a path, not None"),
    ],
)
def test_a_wrong_value_is_an_error_about_the_option(kind: Kind, given: object, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        kind.check(given, "name")
    assert str(error.value) == f"name: {said}"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (WholeNumber(), 50_000, "50000"),
        (Size(), 256 << 20, "256MiB"),
        (Size(), 3 << 20, "3MiB"),
        (Size(), 1000, "1000"),
        (Choice(tuple(Tail)), Tail.PAD, "pad"),
        (Flag(), False, ""),
        (UnitNumbers(), (), ""),
        (RejectLimitValue(), RejectLimit(share=0.01), "1%"),
    ],
)
def test_a_default_is_shown_as_users_write_it(kind: Kind, value: Any, shown: str) -> None:
    assert kind.show(value) == shown


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        (7, 7),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("4GB", 4 * 10**9),
        ("5tb", 5 * 10**12),
        ("1.5 KiB", 1536),
        ("256MiB", 256 << 20),
        ("2TiB", 2 << 40),
        ("9007199254740993", 9007199254740993),  # which no float is
        ("0.3kB", 300),
    ],
)
def test_sizes_are_read_as_people_write_them(text: object, size: int) -> None:
    assert parse_size(text) == size
