"""The documentation names what is there."""

from __future__ import annotations

import argparse
import re
from dataclasses import MISSING
from pathlib import Path

import pytest

from tests.mutation.bugs import read_bugs
from tests.support.processes import PROJECT
from tests.test_layers import LAYERS
from tokenmill.cli import build_parser, option_names
from tokenmill.cli.terminal import EXIT_CODES
from tokenmill.config import Config
from tokenmill.errors import TokenmillError
from tokenmill.records import Reason

README = (PROJECT / "README.md").read_text()
ARCHITECTURE = (PROJECT / "docs" / "architecture.md").read_text()
DECISIONS = sorted((PROJECT / "docs" / "decisions").glob("*.md"))
SOURCES = PROJECT / "src" / "tokenmill"
# Not the folders that git ignores: environments hold the pages of others.
FOLDERS = ("benchmarks", "docs", "examples", "scripts", "src", "tests")
PAGES = [
    *sorted(PROJECT.glob("*.md")),
    *sorted(page for folder in FOLDERS for page in (PROJECT / folder).rglob("*.md")),
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


def test_the_readme_and_help_name_every_command_with_an_example() -> None:
    assert commands().keys() == {"run", "verify", "show", "stats", "benchmark"}
    assert set(re.findall(r"^\| `tokenmill ([a-z]+) ", README, re.MULTILINE)) == commands().keys()
    for name, parser in commands().items():
        assert f"tokenmill {name} " in (parser.epilog or ""), name


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
    usage = (PROJECT / "docs" / "usage.md").read_text()
    assert set(re.findall(r"^\| (\d+) \| \w", usage, re.MULTILINE)) == codes
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


@EVERY_PAGE
def test_lines_are_under_120_columns(page: Path) -> None:
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert len(line) < 120, f"{page.relative_to(PROJECT)}:{number} has {len(line)} columns"


def test_every_module_has_a_line_in_the_architecture() -> None:
    modules = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py") if path.name != "__init__.py"}
    listed = re.findall(r"^\| `([\w/]+\.py)` \| \S", ARCHITECTURE, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert not modules - set(listed), f"docs/architecture.md lacks a line on {sorted(modules - set(listed))}"
    assert not set(listed) - modules, f"docs/architecture.md has lines on no module: {sorted(set(listed) - modules)}"


def test_the_architecture_draws_the_layers_that_imports_are_checked_against() -> None:
    layers = re.search(r"^## Layers\n(.*?)^## ", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert layers
    drawn = [tuple(line.split(", ")) for line in re.findall(r"^    (.+)$", layers[1], re.MULTILINE)]
    assert drawn == list(LAYERS[:-1])  # the package itself is above them all


def test_every_decision_is_listed() -> None:
    assert len(DECISIONS) >= 7
    for page in DECISIONS:
        assert f"decisions/{page.name}" in ARCHITECTURE


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


def promises() -> dict[str, list[str]]:
    """Each promise of the page on reliability, in bold at the start of an item, and the tests listed below it."""
    page = (PROJECT / "docs" / "reliability.md").read_text().split("## What is checked when")[0]
    items = re.findall(r"^- (.+?)(?=^- |^\n|\Z)", page, re.MULTILINE | re.DOTALL)
    found = {}
    for item in items:
        promise = re.match(r"\*\*(.+?)\*\*", item, re.DOTALL)
        assert promise, f"no promise in bold: {item}"
        found[" ".join(promise[1].split())] = re.findall(r"^  - `(test_[a-z0-9_]+)`$", item, re.MULTILINE)
    assert len(found) == len(items)
    return found


def test_every_promise_has_a_test_that_was_seen_to_fail() -> None:
    """One of its proofs is a test that notices a bug of tests/mutation/bugs.json."""
    assert len(promises()) > 20
    failed = {bug.test.split("[")[0] for bug in read_bugs()}
    seen = {test.partition("::")[2] for test in failed}
    for promise, named in promises().items():
        assert named, f"no test is listed for this: {promise}"
        assert seen & set(named), f"no proof of this was seen to fail: {promise}"


def test_nothing_on_the_page_of_promises_escapes_the_test_above() -> None:
    """A promise in another form, or a test named in running text, would not be looked at."""
    page = (PROJECT / "docs" / "reliability.md").read_text().split("## What is checked when")[0]
    assert not re.findall(r"^(?:\||[*+] |\d+\. )", page, re.MULTILINE)
    named = [name for tests in promises().values() for name in tests]
    assert sorted(re.findall(r"`(test_\w+)`", page)) == sorted(named)
    assert page.count("**") // 2 == len(promises()) + 1  # and the meaning of a reject
