"""The documentation names what is there."""

from __future__ import annotations

import argparse
import re
from dataclasses import MISSING
from pathlib import Path

import pytest

from tests.mutation.bugs import read_bugs
from tokenmill.cli import build_parser, option_names
from tokenmill.cli.terminal import EXIT_CODES
from tokenmill.config import Config
from tokenmill.errors import TokenmillError
from tokenmill.records import Reason

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text()
DECISIONS = sorted((PROJECT / "docs" / "decisions").glob("*.md"))
PAGES = [
    *(PROJECT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((PROJECT / "docs").glob("*.md")),
    *DECISIONS,
]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())


def commands() -> dict[str, argparse.ArgumentParser]:
    kind = argparse._SubParsersAction
    return dict(next(a for a in build_parser()._actions if isinstance(a, kind)).choices)


def defaults() -> dict[str, str]:
    """Options of a job that have a value when they are not given, as text."""
    known = {name: field.default for name, field in Config.__dataclass_fields__.items()}
    return {name.replace("_", "-"): str(v) for name, v in known.items() if v not in (MISSING, None, (), False)}


def in_bytes(written: str) -> str:
    return {"256MiB": str(256 << 20)}.get(written, written)


def test_the_readme_has_every_option_and_no_other() -> None:
    table = README[README.index("## Options") : README.index("## Running it again")]
    named = set(re.findall(r"`(--[a-z-]+)`", table))
    assert named == set(option_names(commands()["run"])) - {"--help"}


def test_the_readme_and_help_name_every_command_with_an_example() -> None:
    assert commands().keys() == {"run", "verify", "show", "stats", "benchmark"}
    assert set(re.findall(r"^\| `tokenmill ([a-z]+) ", README, re.MULTILINE)) == commands().keys()
    for name, parser in commands().items():
        assert f"tokenmill {name} " in (parser.epilog or ""), name


def test_the_readme_has_the_defaults() -> None:
    found = re.findall(r"^\| `--([a-z-]+)` \| `([^`]+)` \|", README, re.MULTILINE)
    assert {option: in_bytes(written) for option, written in found} == defaults()


def test_the_help_has_the_defaults() -> None:
    shown = " ".join(commands()["run"].format_help().split())
    found = dict(re.findall(r"--([a-z-]+) (?:(?!--).)*?\(default: ([^)]+)\)", shown))
    assert {option: in_bytes(found[option]) for option in defaults()} == defaults()


def test_every_exit_code_is_documented() -> None:
    kinds = [TokenmillError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    codes = {str(kind.exit_code) for kind in kinds} | {"0"}
    assert codes == {"0", "1", "2", "3", "130"}
    assert set(re.findall(r"^\| (\d+) \| \w", README, re.MULTILINE)) == codes
    assert set(re.findall(r"^  (\d+)  +\w", EXIT_CODES, re.MULTILINE)) == codes


def test_every_reject_reason_is_documented() -> None:
    page = (PROJECT / "docs" / "output.md").read_text()
    table = re.findall(r"^\| (`[a-z0-9_`, ]+`) \|", page[page.index("| reason | meaning |") :], re.MULTILINE)
    assert set(re.findall(r"[a-z0-9_]+", " ".join(table))) == {str(r) for r in Reason}


@EVERY_PAGE
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    targets = re.findall(r"\]\(([^()\s]+)\)", text)
    assert len(targets) == text.count("](")
    for target in targets:
        path, _, heading = target.partition("#")
        assert (page.parent / path).exists(), target
        if heading:
            linked = (page.parent / path if path else page).read_text()
            assert heading in {
                re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
            }, target


def test_pages_are_linked_from_somewhere() -> None:
    """So that the test above has links to follow, and every page can be found."""
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^()\s#]+)", page.read_text())
    }
    assert {page for page in PAGES if page.is_relative_to(PROJECT / "docs")} <= linked


def test_every_decision_is_listed() -> None:
    listed = (PROJECT / "docs" / "architecture.md").read_text()
    assert len(DECISIONS) >= 7
    for page in DECISIONS:
        assert f"decisions/{page.name}" in listed


@EVERY_PAGE
def test_files_and_tests_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    for path in re.findall(r"\b(?:tests|benchmarks|scripts|examples)/[\w/-]+\.(?:py|txt|json|svg)\b", text):
        assert (PROJECT / path).exists(), path
    sources = "".join(path.read_text() for path in (PROJECT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in sources, name


def test_options_in_the_commands_of_the_documentation_are_there() -> None:
    known = {name: set(option_names(parser)) for name, parser in commands().items()}
    everything = "\n".join(page.read_text() for page in PAGES)
    named = re.findall(r"tokenmill (run|verify|show|stats|benchmark)\b([^`\n(]*)", everything)
    options = [(name, option) for name, rest in named for option in re.findall(r"(?<!\S)--[a-z-]+", rest)]
    assert len(options) > 20
    for name, option in options:
        assert option in known[name], f"tokenmill {name} {option}"


def test_every_promise_has_a_test_that_was_seen_to_fail() -> None:
    """One of its proofs is a test that notices a bug of tests/mutation/bugs.json."""
    page = (PROJECT / "docs" / "reliability.md").read_text().split("## What is checked when")[0]
    promises = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    promises = [row for row in promises if row[0] != "promise"]
    assert len(promises) > 20
    failed = {bug.test.split("[")[0] for bug in read_bugs()}
    seen = {test.partition("::")[2] for test in failed}
    for promise, proof in promises:
        named = re.findall(r"`(test_[a-z0-9_]+)`", proof)
        assert seen & set(named), f"no proof of this was seen to fail: {promise}"
