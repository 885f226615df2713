"""Paths as users write them: expanded, or refused with a way out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenmill.config import Config, Use, load_settings, local_path
from tokenmill.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "path", ["a", "./-", "a~b", "./~", "/x/-", "s3/x", "c:", "a:/b", "x://", "*.jsonl", "a/s3://b", ""]
)
def test_a_path_of_this_machine_is_kept(path: str) -> None:
    assert local_path(path, Use.INPUT) == path


def test_the_home_directory_is_expanded(home: Path) -> None:
    assert local_path("~", Use.INPUT) == str(home)
    assert local_path("~/a/*.jsonl", Use.INPUT) == f"{home}/a/*.jsonl"
    assert local_path(Path("~/a"), Use.OUTPUT) == f"{home}/a"
    assert local_path("~root/a", Use.FILE) == os.path.expanduser("~root") + "/a"


def test_an_unknown_user_is_an_error_unless_a_file_is_called_so(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"^~nobody-here/x: there is no user nobody-here here\. .* \./~nobody-here$"):
        local_path("~nobody-here/x", Use.INPUT)
    (home / "~nobody-here").touch()
    assert local_path("~nobody-here", Use.INPUT) == "~nobody-here"


STORES = ["s3://bucket/x", "S3://b", "gs://b/x", "az://c/x", "abfss://c@a.net/x", "hdfs://n:1/x", "hf://datasets/x"]


@pytest.mark.parametrize("path", [*STORES, Path("s3://bucket/x"), Path("gs://b"), "S3:/b/x"])
@pytest.mark.parametrize("use", Use)
def test_an_object_store_is_refused_with_a_way_out(path: str | Path, use: Use) -> None:
    with pytest.raises(ConfigError) as error:
        local_path(path, use)
    assert str(error.value) == f"{path}: object stores are not supported yet. {use}"
    assert error.value.exit_code == 2


def test_a_web_address_is_refused() -> None:
    for path in ("https://host/a.jsonl", "http://host", Path("https://host/a")):
        with pytest.raises(ConfigError, match="web addresses and object stores are not supported yet"):
            local_path(path, Use.INPUT)
    with pytest.raises(ConfigError, match=r"^file:///a/b: write the path alone, /a/b$"):
        local_path("file:///a/b", Use.INPUT)


def test_nothing_in_a_path_can_play_tricks_on_a_terminal() -> None:
    for path in ("s3://\x1b[2J", "~\x1b[2J", "file://\x1b[2J"):
        with pytest.raises(ConfigError, match=r"\\x1b\[2J") as error:
            local_path(path, Use.INPUT)
        assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("path", ["-", "/dev/stdin", "/dev/fd/63", "/proc/self/fd/0"])
def test_a_stream_is_refused_with_a_way_out(path: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"cannot be read again to resume .* not supported.* Write it to a file first, .* > corpus\.jsonl",
    ):
        local_path(path, Use.INPUT)
    for use in (Use.OUTPUT, Use.FINISHED_OUTPUT):
        with pytest.raises(ConfigError, match=r"an output is a directory of files, not a stream\. Name a directory"):
            local_path(path, use)
    with pytest.raises(ConfigError, match="is not supported here"):
        local_path(path, Use.TOKENIZER)


# where they are written


def test_every_path_of_a_job_is_expanded(home: Path) -> None:
    config = Config(inputs=["~/a", Path("~/b")], output="~/out", tokenizer="~/t.json")  # type: ignore[arg-type]
    assert config.inputs == (f"{home}/a", f"{home}/b")
    assert (config.output, config.tokenizer) == (home / "out", f"{home}/t.json")
    (home / "job.toml").write_text('inputs = ["~/a"]\noutput = "~/out"\ntokenizer = "~/t.json"\n')
    assert load_settings({}, home / "job.toml").config().inputs == (f"{home}/a",)


@pytest.mark.parametrize("option", ["inputs", "output", "tokenizer"])
@pytest.mark.parametrize("path", ["s3://bucket/x", "-", "~nobody-here/x"])
def test_no_path_of_a_job_leads_off_this_machine(option: str, path: str) -> None:
    with pytest.raises(ConfigError, match=f"^{path}: "):
        Config(**{"inputs": ("in",), "output": Path("out")} | {option: path})  # type: ignore[arg-type]
