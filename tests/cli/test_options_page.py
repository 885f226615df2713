"""docs/options.md is what the options declare: `make options` writes it."""

from __future__ import annotations

import re
import subprocess

from tests.cli.test_run import run_options
from tests.support.processes import PROJECT, python
from tokenmill.config import Config, options_of
from tokenmill.config.load import ONLY_TYPED

PAGE = (PROJECT / "docs" / "options.md").read_text()


def test_the_page_of_options_is_what_make_options_writes() -> None:
    command = python("-m", "tokenmill.cli.options_page")
    written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert written == PAGE, "run `make options`"


def test_the_page_has_every_option_of_the_command_and_no_other() -> None:
    assert set(re.findall(r"^\| `(--[a-z-]+)` \|", PAGE, re.MULTILINE)) == run_options()


def test_the_page_has_the_default_and_the_meaning_of_every_option() -> None:
    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    for option in options_of(Config):
        default, _, meaning = rows[option.flag].partition("| ")
        assert default.strip(" `") == option.shown_default
        assert meaning == option.help


def test_what_can_only_be_typed_are_the_options_that_no_job_has() -> None:
    assert {f"--{name.replace('_', '-')}" for name in ONLY_TYPED} == run_options() - {
        o.flag for o in options_of(Config)
    }


def test_the_page_is_as_wide_as_others_are() -> None:
    assert max(map(len, PAGE.splitlines())) < 120


def test_the_default_of_an_option_of_the_command_line_alone_is_in_its_column() -> None:
    assert "| `--log-format` | `text` | how messages are written |" in PAGE
    assert "(default:" not in PAGE
