"""What is released: built as a release is, installed into empty environments, run on the sample.

pip takes what tokenmill depends on from the package index, so these tests run apart from the others:
`make test-package`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import tokenmill
from tests.conftest import tree
from tests.support.processes import PROJECT
from tokenmill.cli import main

pytestmark = pytest.mark.package

NAME = f"tokenmill-{tokenmill.__version__}"
# What may lie in a checkout and must not be released.
SCRATCH = ("notes.txt", ".library/page.md", "build/demo/manifest.json", "src/tokenmill/__pycache__/run.cpython-311.pyc")


@dataclass(frozen=True)
class Built:
    """A wheel and an sdist, and the sdist unpacked."""

    wheel: Path
    sdist: Path
    unpacked: Path


def call(*command: object, cwd: Path) -> str:
    """What a program prints, without this checkout on its path."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def sources_below(folder: Path) -> set[str]:
    return {name for name in files_below(folder) if "__pycache__" not in name}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Made from a copy of the checkout in which scratch files lie around."""
    base = tmp_path_factory.mktemp("release")
    copy, dist = base / "checkout", base / "dist"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".peers", "build", ".*_cache"))
    for name in SCRATCH:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("scratch")
    call(sys.executable, "-m", "build", "--outdir", dist, copy, cwd=base)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(base / "unpacked", filter="data")
    return Built(wheel, sdist, base / "unpacked" / NAME)


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    package = {f"tokenmill/{name}" for name in sources_below(PROJECT / "src" / "tokenmill")}
    assert {"tokenmill/py.typed", "tokenmill/data/gpt-neox-20b.json"} <= package
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE"}
    with zipfile.ZipFile(built.wheel) as archive:
        assert set(archive.namelist()) == package | {f"{NAME}.dist-info/{name}" for name in about}


def test_the_sdist_holds_what_it_takes_to_build_use_and_read_about_it(built: Built) -> None:
    pages = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "README.md"}
    folders = {"benchmarks", "docs", "examples", "src"}
    made = {".gitignore", "PKG-INFO", "pyproject.toml"}
    assert {path.name for path in built.unpacked.iterdir()} == pages | folders | made
    for folder in folders:
        assert files_below(built.unpacked / folder) == sources_below(PROJECT / folder), folder


def test_links_of_the_pages_in_the_sdist_stay_inside_it(built: Built) -> None:
    pages = list(built.unpacked.rglob("*.md"))
    assert len(pages) > 10
    for page in pages:
        for target in re.findall(r"\]\(([^()\s#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_installs_into_an_empty_environment_and_runs_the_sample(built: Built, tmp_path: Path, kind: str) -> None:
    sample, programs = built.unpacked / "examples" / "sample", tmp_path / "empty" / "bin"
    venv.create(tmp_path / "empty", with_pip=True)
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, "-c", PROJECT / "constraints.txt", getattr(built, kind), cwd=tmp_path)
    assert call(programs / "tokenmill", "--version", cwd=tmp_path).split()[-1] == tokenmill.__version__

    call(programs / "tokenmill", "run", sample, "out", "--max-rejects", "5%", cwd=tmp_path)
    ledger = json.loads((tmp_path / "out" / "manifest.json").read_text())["ledger"]
    assert (ledger["documents"], ledger["tokens"]) == (503, 90_549)
    assert main(["run", str(sample), str(tmp_path / "here"), "--max-rejects", "5%"]) == 0
    assert tree(tmp_path / "out" / "chunks") == tree(tmp_path / "here" / "chunks")
    call(programs / "tokenmill", "verify", "out", "--against-source", "all", cwd=tmp_path)
