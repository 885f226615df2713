"""The documentation names what is there."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from tokenmill.cli import build_parser, option_names
from tokenmill.config import Config
from tokenmill.errors import TokenmillError
from tokenmill.records import Reason

PROJECT = Path(__file__).parents[1]
README = (PROJECT / "README.md").read_text()
PAGES = [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *(PROJECT / "docs").rglob("*.md")]


def test_the_readme_has_every_option_and_no_other() -> None:
    table = README[README.index("## Options") : README.index("## Running it again")]
    named = set(re.findall(r"`(--[a-z-]+)`", table))
    assert named == set(option_names(commands()["run"])) - {"--help"}


def test_the_readme_and_help_name_every_command_with_an_example() -> None:
    for name, parser in commands().items():
        assert f"| `tokenmill {name} " in README
        assert f"tokenmill {name} " in (parser.epilog or ""), name


def commands() -> dict[str, argparse.ArgumentParser]:
    kind = argparse._SubParsersAction
    return dict(next(a for a in build_parser()._actions if isinstance(a, kind)).choices)


def test_the_readme_has_the_defaults() -> None:
    for option, field in re.findall(r"^\| `--([a-z-]+)` \| `([^`]+)` \|", README, re.MULTILINE):
        default = Config.__dataclass_fields__[option.replace("-", "_")].default
        written = {"256MiB": str(256 << 20)}.get(field, field)
        assert str(default) == written, option


def test_every_exit_code_is_documented() -> None:
    kinds = [TokenmillError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for code in {kind.exit_code for kind in kinds} | {0}:
        assert re.search(rf"^\| {code} \|", README, re.MULTILINE)


def test_every_reject_reason_is_documented() -> None:
    page = (PROJECT / "docs" / "output.md").read_text()
    assert set(re.findall(r"`([a-z0-9_]+)`", page)) >= {str(r) for r in Reason}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_decision_is_listed() -> None:
    listed = (PROJECT / "docs" / "architecture.md").read_text()
    for page in (PROJECT / "docs" / "decisions").glob("*.md"):
        assert f"decisions/{page.name}" in listed
