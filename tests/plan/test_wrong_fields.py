"""Options that cannot be right for the inputs: the plan is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import jsonl, texts
from tests.support.sources import arrow_bytes, parquet_file
from tokenmill.config import ReadOptions
from tokenmill.errors import ConfigError
from tokenmill.plan.make import Planned, make_plan
from tokenmill.read.corpus import Corpus

LINE = texts("a")


def plan(inputs: Path, options: ReadOptions) -> Planned:
    return make_plan([str(inputs)], Path("somewhere/out"), partial(Corpus, options=options))


# options that cannot be right


def refused(inputs: Path, **options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        plan(inputs, ReadOptions(**options))
    assert error.value.exit_code == 2
    assert "ix the input" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_table_without_the_column_refuses_the_job_and_names_its_columns(inputs: Path, kind: str) -> None:
    (inputs / "a.parquet").write_bytes(parquet_file(["a"]))
    (inputs / "b.arrow").write_bytes(arrow_bytes([{"body": ["a"], "n": [1]}], kind))
    assert refused(inputs) == (
        f"text_field: there is no column 'text' in {inputs}/b.arrow. The columns are: body, n. Choose one of these, or "
        "leave the file out of the inputs"
    )
    assert refused(inputs, text_field="body").startswith(
        f"text_field: there is no column 'body' in {inputs}/a.parquet. The columns are: text. "
    )
    assert refused(inputs, id_field="id").startswith(f"id_field: there is no column 'id' in {inputs}/a.parquet")


def test_lines_without_the_field_refuse_the_job_and_name_their_fields(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(LINE)
    (inputs / "b.jsonl").write_bytes(jsonl({"body": "a", "n": 1}))
    assert refused(inputs) == (
        f"text_field: no record at the beginning of {inputs}/b.jsonl has the field 'text'. The fields are: body, n. "
        "Choose one of these, or leave the file out of the inputs"
    )
    assert refused(inputs, id_field="n").startswith(f"id_field: no record at the beginning of {inputs}/a.jsonl ")
    (inputs / "b.jsonl").write_bytes(b"{}\n")
    assert refused(inputs).endswith(
        " has the field 'text'. There are no fields at all: leave the file out of the inputs"
    )


def test_only_the_first_few_of_many_fields_are_named_and_none_can_play_tricks_on_a_terminal(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(jsonl({"\x1b[2J": 1} | {f"f{n}": n for n in range(30)}))
    said = refused(inputs)
    assert "are: \\x1b[2J, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10 and 19 more. " in said


def test_files_that_begin_with_broken_lines_refuse_nothing(inputs: Path) -> None:
    (inputs / "a.jsonl").write_bytes(b"broken\n" * 20_000)
    (inputs / "b.parquet").write_bytes(b"PAR1 broken")
    (inputs / "c.arrow").write_bytes(b"ARROW1 broken")
    (inputs / "d.jsonl").symlink_to(inputs / "nowhere")
    assert plan(inputs, ReadOptions(id_field="id")).plan.files == 4


def test_a_first_line_of_megabytes_is_not_held_to_look_for_fields(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.read.formats.MOST_LOOKED_AT", 1 << 20)
    line = jsonl({"junk": "x" * (3 << 20)})
    (inputs / "a.jsonl").write_bytes(line)
    plan(inputs, ReadOptions())  # it is no evidence: what it has is for the reader to say
    (inputs / "a.jsonl").write_bytes(jsonl({"junk": "x"}) + line)
    refused(inputs)
