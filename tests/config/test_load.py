"""The command line over a TOML file, and errors that name what was typed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tokenmill.config import Config, EncoderChoice, InputAccess, RejectLimit, SpecialTokens, Tail, load_settings
from tokenmill.errors import ConfigError

PLACES = {"inputs": ("in",), "output": "out"}


def config(**options: Any) -> Config:
    return Config(**PLACES | options)


def load(typed: dict[str, Any], toml: Path | None = None) -> Config:
    return load_settings(typed, toml).config()


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is called job.toml in messages, whatever the folder is called."""
    monkeypatch.chdir(tmp_path)
    return Path("job.toml")


def test_toml_is_below_the_command_line(toml: Path) -> None:
    toml.write_text('input-dir = ["a", "b"]\noutput_dir = "out"\nseq-len = 512\ntail = "drop"\nmax_rejects = "5%"\n')
    found = load({"seq_len": 1024}, toml)
    assert (found.inputs, found.output, found.seq_len) == (("a", "b"), Path("out"), 1024)
    assert (found.tail, found.max_rejects) == (Tail.DROP, RejectLimit(share=0.05))


def test_every_option_may_stand_in_toml(toml: Path) -> None:
    toml.write_text("""
        inputs = ["a", "b"]
        output = "out"
        text-field = "body"
        id-field = "id"
        tokenizer = "tok.json"
        encoder = "huggingface"
        special-tokens-in-text = "match"
        eos-token = "</s>"
        bos-token = "<s>"
        no-eos = false
        seq-len = 512
        sequences-per-chunk = 9
        tail = "drop"
        max-document-bytes = "3MiB"
        max-rejects = 12
        engine = "ultra"
        num-workers = 3
        batch-size = 11
        read = "mmap"
        prefetch-files = 0
        max-memory = "4GB"
    """)
    found = load({}, toml)
    assert found == Config(
        inputs=("a", "b"),
        output=Path("out"),
        text_field="body",
        id_field="id",
        tokenizer="tok.json",
        encoder=EncoderChoice.HUGGINGFACE,
        special_tokens_in_text=SpecialTokens.MATCH,
        eos_token="</s>",
        bos_token="<s>",
        seq_len=512,
        sequences_per_chunk=9,
        tail=Tail.DROP,
        max_document_bytes=3 << 20,
        max_rejects=RejectLimit(count=12),
        engine="ultra",
        num_workers=3,
        batch_size=11,
        read=InputAccess.MMAP,
        prefetch_files=0,
        max_memory=4_000_000_000,
    )
    same = {name for name, value in vars(found).items() if value == getattr(config(), name)}
    # Every other option was given a value that is not its default, or is to be typed each time.
    assert same == {"output", "no_eos", "redo", "overwrite"}


@pytest.mark.parametrize("key", ["inputs", "input", "input_dir", "input-dir"])
def test_the_inputs_have_several_names_in_toml(toml: Path, key: str) -> None:
    toml.write_text(f'{key} = "in"\n')
    assert load({"output": "out"}, toml) == config()


def test_toml_may_switch_eos_off(toml: Path) -> None:
    toml.write_text("no_eos = true\n")
    assert load(PLACES, toml) == config(no_eos=True)


def test_the_command_line_wins_over_what_contradicts_it_in_toml(toml: Path) -> None:
    toml.write_text('eos_token = "</s>"\n')
    assert load(PLACES | {"no_eos": True}, toml) == config(no_eos=True)
    toml.write_text("no_eos = true\n")
    assert load(PLACES | {"eos_token": "</s>"}, toml) == config(eos_token="</s>")


@pytest.mark.parametrize(
    ("typed", "content", "said"),
    [
        ({"seq_len": 0}, "", "--seq-len: must be a whole number of at least 1, not 0"),
        ({"seq_len": 0}, "seq_len = 5", "--seq-len: must be a whole number of at least 1, not 0"),
        ({}, "seq_len = 0", "seq_len in job.toml: must be a whole number of at least 1, not 0"),
        ({}, "seq-len = 0", "seq-len in job.toml: must be a whole number of at least 1, not 0"),
        ({}, 'seq_len = "many"', "seq_len in job.toml: must be a whole number of at least 1, not 'many'"),
        ({"id_field": "a"}, 'text-field = "a.b"', "text-field in job.toml and --id-field: 'a.b' and 'a' overlap"),
        ({"id_field": "text"}, "", "--text-field and --id-field: 'text' and 'text' overlap"),
        ({"no_eos": True, "eos_token": "x"}, "", "--eos-token and --no-eos: they contradict each other"),
        (
            {},
            'no_eos = true\neos_token = "x"',
            "eos_token in job.toml and no_eos in job.toml: they contradict each other",
        ),
        ({}, "output_dir = 3", "output_dir in job.toml: must be a path, not 3"),
    ],
)
def test_an_error_names_what_was_typed(toml: Path, typed: dict[str, Any], content: str, said: str) -> None:
    toml.write_text(content)
    places = {"inputs": ("in",)} if "output" in content else PLACES
    with pytest.raises(ConfigError) as error:
        load(places | typed, toml)
    assert str(error.value).startswith(said)


def test_an_error_from_python_names_the_keyword() -> None:
    with pytest.raises(ConfigError, match=r"^seq_len: must be a whole number"):
        config(seq_len=0)


def test_an_error_that_is_found_while_the_job_runs_names_what_was_typed(toml: Path) -> None:
    toml.write_text("max-memory = 1")
    settings = load_settings(PLACES, toml)
    with pytest.raises(ConfigError, match=r"^max-memory in job\.toml: too little$"), settings.naming():
        raise ConfigError("too little", "max_memory")
    with pytest.raises(ConfigError, match=r"^--redo: there is no unit 9$"), settings.naming():
        raise ConfigError("there is no unit 9", "redo")
    with pytest.raises(ConfigError, match=r"^something else$"), settings.naming():
        raise ConfigError("something else")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("seq_lenght = 5", "job.toml: unknown option 'seq_lenght'; did you mean 'seq-len'"),
        ("seq-lenght = 5", "job.toml: unknown option 'seq-lenght'; did you mean 'seq-len'"),
        ("shuffle = true", "job.toml: unknown option 'shuffle'; `tokenmill run --help` lists them"),
        ("seq_len = ", "job.toml is not valid TOML"),
        ("seq_len = 1\nseq-len = 1", "job.toml: seq-len is set twice, as seq_len and as seq-len"),
        ('input-dir = "a"\ninputs = "b"', "job.toml: inputs is set twice, as input-dir and as inputs"),
        ("quiet = true", r"job.toml: 'quiet' can only be given on the command line \(--quiet\)"),
        ('log_format = "json"', r"'log_format' can only be given on the command line \(--log-format\)"),
        ("overwrite = true", r"'overwrite' can only be given on the command line \(--overwrite\)"),
        ("redo = [7]", r"'redo' can only be given on the command line \(--redo\)"),
    ],
)
def test_a_mistake_in_toml_is_named(toml: Path, content: str, said: str) -> None:
    toml.write_text(content)
    with pytest.raises(ConfigError, match=said):
        load(PLACES, toml)


def test_a_missing_toml_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        load({}, tmp_path / "absent.toml")


def test_inputs_and_output_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"no inputs given: .*, or --input-dir"):
        load({"output": "out"})
    with pytest.raises(ConfigError, match=r"no output given: .*, or --output-dir"):
        load({"inputs": "in"})


def test_a_lone_path_is_what_the_file_does_not_have(toml: Path) -> None:
    toml.write_text('inputs = "in"\n')
    assert load_settings({}, toml, "x").config() == config(inputs=("in",), output=Path("x"))
    toml.write_text('output = "out"\n')
    assert load_settings({}, toml, "x").config() == config(inputs=("x",), output=Path("out"))
    with pytest.raises(ConfigError, match=r"^no output given: tokenmill run INPUT\.\.\. OUTPUT"):
        load_settings({}, None, "x")


def test_a_lone_path_that_may_be_either_is_an_error_that_says_how_to_tell(toml: Path) -> None:
    toml.write_text('input-dir = "in"\noutput-dir = "out"\n')
    with pytest.raises(ConfigError) as error:
        load_settings({}, toml, "x")
    assert str(error.value) == (
        f"{toml} has inputs and an output, so x might replace either: write --output-dir x or --input-dir x"
    )


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.toml")
    with pytest.raises(ConfigError, match=r"job\.toml is not a file"):
        load_settings({}, tmp_path / "job.toml")
