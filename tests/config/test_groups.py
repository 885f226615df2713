"""The groups of options: checked when built, each by itself, and a Config that is all of them."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, jsonl
from tokenmill.config import (
    Actions,
    Config,
    ContentOptions,
    EncoderChoice,
    Eos,
    InputAccess,
    ReadOptions,
    RejectLimit,
    RunOptions,
    SpecialTokens,
    Tail,
    resume_hint,
)
from tokenmill.errors import ConfigError


def config(**options: Any) -> Config:
    return Config(**{"inputs": ("in",), "output": "out"} | options)


def test_defaults_are_the_documented_ones() -> None:
    assert vars(config()) == {
        "inputs": ("in",),
        "output": Path("out"),
        "text_field": "text",
        "id_field": None,
        "tokenizer": "gpt-neox-20b",
        "encoder": EncoderChoice.AUTO,
        "special_tokens_in_text": SpecialTokens.PLAIN,
        "eos_token": None,
        "bos_token": None,
        "no_eos": None,
        "seq_len": 2048,
        "sequences_per_chunk": 50_000,
        "tail": Tail.PAD,
        "max_document_bytes": 256 * 1024 * 1024,
        "max_rejects": RejectLimit(share=0.01),
        "engine": "auto",
        "num_workers": None,
        "batch_size": 100,
        "read": InputAccess.BUFFERED,
        "prefetch_files": 4,
        "max_memory": None,
        "redo": (),
        "overwrite": False,
    }


def test_a_config_is_frozen_and_pickles() -> None:
    found = config()
    with pytest.raises(FrozenInstanceError):
        found.seq_len = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(found)) == found


def test_an_option_is_in_one_group_that_says_what_it_can_change() -> None:
    names = {group: {f.name for f in fields(group)} for group in (ReadOptions, ContentOptions, RunOptions, Actions)}
    assert names[ReadOptions] == {"text_field", "id_field", "max_document_bytes"}
    assert names[ContentOptions] - names[ReadOptions] == {
        "tokenizer",
        "special_tokens_in_text",
        "eos_token",
        "bos_token",
        "seq_len",
        "sequences_per_chunk",
        "tail",
    }
    assert names[RunOptions] == {
        "encoder",
        "max_rejects",
        "engine",
        "num_workers",
        "batch_size",
        "read",
        "prefetch_files",
        "max_memory",
    }
    assert names[Actions] == {"redo", "overwrite"}
    assert {f.name for f in fields(Config)} == set().union(*names.values()) | {"inputs", "output", "no_eos"}


@pytest.mark.parametrize("group", [ReadOptions, ContentOptions, RunOptions, Actions])
def test_a_config_can_be_passed_as_any_group(group: type) -> None:
    assert isinstance(config(), group)


@pytest.mark.parametrize(
    ("group", "options", "said"),
    [
        (ReadOptions, {"max_document_bytes": 0}, "max_document_bytes: must be at least one byte, not 0"),
        (ReadOptions, {"text_field": "a", "id_field": "a.b"}, "text_field and id_field: 'a' and 'a.b' overlap"),
        (ContentOptions, {"text_field": ""}, "text_field: must be a non-empty string"),
        (ContentOptions, {"text_field": "a", "id_field": "a"}, "text_field and id_field: 'a' and 'a' overlap"),
        (ContentOptions, {"seq_len": 0}, "seq_len: must be a whole number of at least 1, not 0"),
        (RunOptions, {"engine": "stream"}, "engine: there is no engine 'stream'; did you mean 'streaming'"),
        (Actions, {"redo": "x"}, "redo: expected unit numbers such as 7,12, got 'x'"),
    ],
)
def test_a_group_is_checked_by_itself(group: type, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        group(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": ()}, "no input given"),
        ({"inputs": 3}, "inputs: must be a path or a list of paths, not 3"),
        ({"inputs": ("in", 3)}, r"inputs: must be a path or a list of paths, not \('in', 3\)"),
        ({"output": 3}, "output: must be a path, not 3"),
        ({"seq_len": 0}, "seq_len: must be a whole number of at least 1, not 0"),
        ({"seq_len": None}, "seq_len: must be a whole number of at least 1, not None"),
        ({"seq_len": (1 << 24) + 1}, "seq_len: must be at most 16,777,216, not 16,777,217"),
        ({"sequences_per_chunk": 0}, "sequences_per_chunk: must be a whole number of at least 1, not 0"),
        ({"batch_size": -1}, "batch_size: must be a whole number of at least 1, not -1"),
        ({"num_workers": 0}, "num_workers: must be a whole number of at least 1, not 0"),
        ({"prefetch_files": -1}, "prefetch_files: must be a whole number of at least 0, not -1"),
        ({"max_memory": "lots"}, "max_memory: 'lots' is not a size"),
        ({"max_memory": 0}, "max_memory: must be at least one byte, not 0"),
        ({"max_document_bytes": 0}, "max_document_bytes: must be at least one byte, not 0"),
        ({"max_document_bytes": "12 apples"}, "max_document_bytes: '12 apples' is not a size"),
        ({"engine": "stream"}, "engine: there is no engine 'stream'; did you mean 'streaming'"),
        ({"redo": "7,x"}, "redo: expected unit numbers such as 7,12, got '7,x'"),
        ({"tail": "padd"}, "tail: there is no choice 'padd'; did you mean 'pad'"),
        ({"encoder": "fast"}, "encoder: there is no encoder 'fast'; did you mean 'fastokens'"),
        (
            {"special_tokens_in_text": "x"},
            "special_tokens_in_text: there is no choice 'x'; known: match, plain, reject",
        ),
        ({"max_rejects": "many"}, "max_rejects: 'many' is neither a count"),
        ({"text_field": ""}, "text_field: must be a non-empty string"),
        ({"text_field": None}, "text_field: must be a non-empty string, not None"),
        ({"text_field": "a..b"}, "text_field: 'a..b' has an empty part"),
        ({"id_field": "a."}, "id_field: 'a.' has an empty part"),
        ({"text_field": "a.b", "id_field": "a"}, "text_field and id_field: 'a.b' and 'a' overlap"),
        ({"text_field": "a", "id_field": "a"}, "text_field and id_field: 'a' and 'a' overlap"),
        ({"tokenizer": ""}, "tokenizer: must be a non-empty string"),
        ({"bos_token": ""}, "bos_token: must be a non-empty string"),
        ({"eos_token": ""}, "eos_token: must be a non-empty string"),
        ({"no_eos": True, "eos_token": "x"}, "eos_token and no_eos: they contradict each other"),
        ({"no_eos": "yes"}, "no_eos: must be true or false, not 'yes'"),
        ({"overwrite": 1}, "overwrite: must be true or false, not 1"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**options)


def test_fields_with_the_same_beginning_do_not_overlap() -> None:
    assert config(text_field="text", id_field="text_id").id_field == "text_id"
    assert config(text_field="None").id_field is None


def test_eos_off_is_one_value_however_it_is_said() -> None:
    off = config(eos_token=Eos.OFF)
    assert off == config(no_eos=True) == config(eos_token=Eos.OFF, no_eos=True)
    assert (off.eos_token, off.no_eos) == (Eos.OFF, True)


@pytest.mark.parametrize("token", [None, "</s>"])
def test_an_eos_token_is_the_tokenizers_own_or_the_one_that_is_named(token: str | None) -> None:
    found = config(eos_token=token, no_eos=False)
    assert (found.eos_token, found.no_eos) == (token, None)


def test_a_changed_copy_keeps_what_was_said_of_eos() -> None:
    assert replace(config(no_eos=True), seq_len=8) == config(no_eos=True, seq_len=8)
    assert replace(config(), eos_token=Eos.OFF) == config(no_eos=True)
    assert replace(config(no_eos=True), no_eos=False) == config()
    assert config(eos_token=Eos.OFF).no_eos
    assert not config(no_eos=False).no_eos


@pytest.mark.parametrize(
    "options",
    [
        {"no_eos": True},
        {"bos_token": "<|bos|>", "eos_token": "<|padding|>"},
        {"id_field": "meta.id", "text_field": "body", "tail": "drop", "special_tokens_in_text": "reject"},
        {"seq_len": 5, "sequences_per_chunk": 3, "max_document_bytes": "1kB"},
    ],
    ids=str,
)
def test_stored_options_are_those_of_a_job_and_lead_back_to_it(
    options: dict[str, Any], inputs: Path, tmp_path: Path, run: Run, tiny_tokenizer: str
) -> None:
    """Other stored options would be another run id, and every job a different one."""
    (inputs / "a.jsonl").write_bytes(jsonl({"text": "a", "body": "b", "meta": {"id": 1}}))
    run(**{"seq_len": 8, **options})
    job = json.loads((tmp_path / "out" / "job.json").read_bytes())["options"]
    built = config(tokenizer=tiny_tokenizer, **{"seq_len": 8, **options})
    stored = built.stored(job["eos_token"])
    assert stored == job
    assert json.dumps(stored, sort_keys=True) == json.dumps(job, sort_keys=True)


def test_the_options_that_change_a_byte_can_be_had_alone() -> None:
    config = Config(inputs=("in",), output="out", seq_len=7, engine="ultra", no_eos=True)  # type: ignore[arg-type]
    content = config.content()
    assert type(content) is ContentOptions
    assert (content.seq_len, content.eos_token) == (7, Eos.OFF)
    assert vars(content) == {name: getattr(config, name) for name in vars(content)}


def test_stored_options_are_plain_text_and_numbers() -> None:
    assert ContentOptions().stored("<|endoftext|>") == {
        "text_field": "text",
        "id_field": None,
        "special_tokens_in_text": "plain",
        "eos_token": "<|endoftext|>",
        "bos_token": None,
        "seq_len": 2048,
        "sequences_per_chunk": 50_000,
        "tail": "pad",
        "max_document_bytes": 256 << 20,
    }
    assert {type(value) for value in ContentOptions().stored(None).values()} == {str, int, type(None)}


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ({}, "run the same command again"),
        ({"redo": (7,)}, "run the same command again, without --redo,"),
        ({"overwrite": True}, "run the same command again, without --overwrite,"),
        ({"redo": (7,), "overwrite": True}, "run the same command again, without --redo and --overwrite,"),
    ],
)
def test_the_way_to_go_on_leaves_one_off_actions_out(actions: dict[str, Any], said: str) -> None:
    assert resume_hint(Actions(**actions)) == said
