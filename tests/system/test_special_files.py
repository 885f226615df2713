"""Something other than a file in the place of one: no command waits for it, and each names it or makes it again."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from tests.conftest import jsonl, tiny_tokenizer_json, tree
from tests.support.alarm import within
from tokenmill.cli import main
from tokenmill.errors import TokenmillError

SECONDS = 10


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")  # the name of a socket must be short
        finally:
            os.close(folder)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": put_socket,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "directory": Path.mkdir,
}
SAID = {"endless device": "it is a device", "empty device": "it is a device", "directory": "Is a directory"}

CHUNK = "chunks/00000-0001"
NAMES = {
    "job.json": "verify stats show run",
    "plan.jsonl": "verify stats run",
    "manifest.json": "verify stats show open",
    "rejects.jsonl": "verify",
    "tokenizer.json": "verify stats show",
    f"{CHUNK}.npy": "verify stats show open",
    f"{CHUNK}.docs.npy": "verify stats show open",
    f"{CHUNK}.ids.jsonl": "verify show open",
    "units/00000.json": "verify stats run",
    "units/00000.rejects.jsonl": "verify",
    "units/00000.checkpoint.json": "",
    "logs/timeline.jsonl": "",
    "logs/inputs": "",
    "logs/lock": "",
}
"""The commands that need each file; others do not look at it, and a run makes some of them again."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """An output, and the command that made it into the folder beside it."""
    folder = tmp_path_factory.mktemp("special")
    (folder / "tiny.json").write_text(json.dumps(tiny_tokenizer_json()))
    (folder / "in").mkdir()
    lines = jsonl(*({"text": f"text {n} " * 9, "id": n} for n in range(30)))
    (folder / "in" / "a.jsonl").write_bytes(lines + b"broken\n")
    options = ["--tokenizer", str(folder / "tiny.json"), "--seq-len", "16", "--sequences-per-chunk", "40"]
    job = ["run", str(folder / "in"), str(folder / "out"), *options, "--id-field", "id", "--max-rejects", "50%"]
    assert main([*job, "--engine", "streaming"]) == 0
    (folder / "out").rename(folder / "good")
    return folder, [*job, "--engine", "streaming"]


def read_all(output: Path) -> int:
    try:
        rows = tokenmill.open(output)
        read: list[Any] = [list(rows), [*rows.documents()], rows.manifest]
        return 0 if all(read) else 9
    except TokenmillError as error:
        print(error)
        return error.exit_code


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_command_waits_for_what_is_not_a_file(
    made: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str], kind: str, name: str
) -> None:
    folder, job = made
    output = folder / "out"
    commands: dict[str, Callable[[], Any]] = {
        "verify": lambda: main(["verify", str(output)]),
        "stats": lambda: main(["stats", str(output)]),
        "show": lambda: main(["show", str(output), "--file", "a.jsonl", "--record", "12"]),
        "open": lambda: read_all(output),
        "run": lambda: main(job),
    }
    for command, execute in commands.items():
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(folder / "good", output)
        (output / name).unlink(missing_ok=True)
        KINDS[kind](output / name)
        with within(SECONDS):
            code = execute()
        said = "".join(capsys.readouterr())
        assert "defect" not in said
        assert "Traceback" not in said
        if command in NAMES[name]:
            assert code in (1, 2), said
            assert os.path.basename(name) in said
            assert SAID.get(kind, f"it is a {kind}") in said
        elif command == "run" and kind == "directory" and code:
            assert "Is a directory" in said  # nobody removes what may be full of files: it is named
            assert os.path.basename(name) in said
        elif command == "run" and code:
            assert "No such device or address (lock)" in said
        else:
            assert code == 0 or (command, name) == ("verify", "units/00000.checkpoint.json"), said
            if command == "run" and not name.startswith("logs"):
                assert tree(output) == tree(folder / "good")
