"""Tokenizers of the hub: from its cache, by either kind of id, and in one message when they cannot be had.

The library that finds them is the real one; its cache is a folder that the test makes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import texts, tiny_tokenizer_json
from tests.support.tokenizers import write
from tokenmill.config import ContentOptions
from tokenmill.encode import Tokenizer, resolve_tokenizer
from tokenmill.encode.hub import is_hub_id
from tokenmill.errors import TokenizerError


def resolve(tokenizer: str, **options: Any) -> Tokenizer:
    return resolve_tokenizer(ContentOptions(tokenizer=tokenizer, **options))


def cached(cache: Path, repo: str) -> None:
    """A repository in the cache, as the hub's library keeps it."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    write(snapshot / "tokenizer.json", tiny_tokenizer_json())
    write(snapshot / "tokenizer_config.json", {"eos_token": {"content": "<|bos|>"}})
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)


@pytest.mark.parametrize("repo", ["some/model", "gpt2"])
def test_a_hub_id_is_taken_from_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: str) -> None:
    """With its owner, or without: what was on the hub first has none."""
    cached(tmp_path, repo)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = resolve(repo)
    assert (found.name, found.eos_token) == (repo, "<|bos|>")


@pytest.mark.parametrize("repo", ["nobody/nothing", "gpt-neo"])
def test_a_hub_id_that_cannot_be_had_lists_what_is_possible_and_says_how_to_provide_a_file(repo: str) -> None:
    with pytest.raises(TokenizerError) as error:
        resolve(repo)
    hint = ". Did you mean gpt-neox-20b?" if repo == "gpt-neo" else ""
    assert str(error.value) == (
        f"tokenizer {repo!r} is neither a bundled name (gpt-neox-20b), nor a tokenizer.json, nor a directory with one, "
        "nor a hub id that is in the local hub cache or can be downloaded (OfflineModeIsEnabled). Get its "
        "tokenizer.json on a machine with network access and pass its path: --tokenizer path/to/tokenizer.json"
        f"{hint}"
    )


@pytest.mark.parametrize("spec", ["missing.json", "tok/missing.json", "a/b/c", "./x", "~/x", "..", "a b", "x\n", ""])
def test_what_can_only_be_a_path_is_not_asked_of_the_hub(spec: str) -> None:
    assert not is_hub_id(spec)
    if spec not in ("", ".."):
        with pytest.raises(TokenizerError, match=r"nor a hub id such as|^tokenizer: there is no file or directory "):
            resolve(spec)


def environment(cache: Path, port: int) -> dict[str, str]:
    """What a process needs to take this port of this machine for the hub."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return base | {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HUB_CACHE": str(cache), "NO_PROXY": "*"}


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A machine without a network: whatever is asked of the hub, nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield environment(tmp_path / "cache", taken.getsockname()[1])


class Hub(BaseHTTPRequestHandler):
    """A hub that has gpt2, without a tokenizer_config.json, and nothing else."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        found = self.path == "/gpt2/resolve/main/tokenizer.json"
        body = json.dumps(tiny_tokenizer_json()).encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", '"1"')
        if not found:
            self.send_header("X-Error-Code", "EntryNotFound" if "/gpt2/" in self.path else "RepoNotFound")
        self.end_headers()
        return body

    def log_message(self, *_: object) -> None:
        """Not to stderr."""


@pytest.fixture
def online(tmp_path: Path) -> Iterator[dict[str, str]]:
    with HTTPServer(("127.0.0.1", 0), Hub) as hub:
        serving = threading.Thread(target=hub.serve_forever)
        serving.start()
        yield environment(tmp_path / "cache", hub.server_port)
        hub.shutdown()
        serving.join()


def run(folder: Path, variables: dict[str, str], tokenizer: str) -> subprocess.CompletedProcess[str]:
    (folder / "in.jsonl").write_bytes(texts("abc"))
    command = [sys.executable, "-m", "tokenmill", "run", "in.jsonl", "out", "--tokenizer", tokenizer, "--quiet"]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_a_hub_id_without_a_network_is_one_message_at_once(tmp_path: Path, offline: dict[str, str]) -> None:
    """The hub's library would try six times, for half a minute, and say so twice each time."""
    result = run(tmp_path, offline, "nobody/nothing")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "can be downloaded (ConnectError). Get its tokenizer.json" in line


def test_a_cached_hub_id_needs_no_network(tmp_path: Path, offline: dict[str, str]) -> None:
    cached(tmp_path / "cache", "gpt2")
    result = run(tmp_path, offline, "gpt2")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_hub_id_is_downloaded_if_there_is_a_network(tmp_path: Path, online: dict[str, str]) -> None:
    result = run(tmp_path, online, "gpt2")
    assert (result.returncode, result.stderr) == (0, "")
    kept = tmp_path / "cache" / "models--gpt2" / "snapshots" / ("0" * 40) / "tokenizer.json"
    assert kept.read_bytes() == (tmp_path / "out" / "tokenizer.json").read_bytes()


def test_a_hub_id_that_the_hub_does_not_have_is_one_message(tmp_path: Path, online: dict[str, str]) -> None:
    result = run(tmp_path, online, "gpt2-typo")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "can be downloaded (RepositoryNotFoundError). Get its tokenizer.json" in line
