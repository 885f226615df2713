"""The configuration: validated when built, from keywords or TOML, mistakes named."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from tokenmill.config import Config, EncoderChoice, RejectLimit, SpecialTokens, Tail, load_config, parse_size
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
        "no_eos": False,
        "seq_len": 2048,
        "sequences_per_chunk": 50_000,
        "tail": Tail.PAD,
        "max_document_bytes": 256 * 1024 * 1024,
        "max_rejects": RejectLimit(share=0.01),
        "engine": "auto",
        "num_workers": None,
        "batch_size": 100,
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": ()}, "no input given"),
        ({"seq_len": 0}, "seq_len: must be a whole number of at least 1"),
        ({"seq_len": "2048"}, "seq_len: must be a whole number of at least 1, not '2048'"),
        ({"seq_len": True}, "seq_len: must be a whole number of at least 1, not True"),
        ({"seq_len": (1 << 24) + 1}, "seq_len: 16,777,217 is more than 16,777,216"),
        ({"sequences_per_chunk": 0}, "sequences_per_chunk: must be a whole number of at least 1, not 0"),
        ({"batch_size": -1}, "batch_size: must be a whole number of at least 1, not -1"),
        ({"num_workers": 0}, "num_workers: must be a whole number of at least 1, not 0"),
        ({"prefetch_files": -1}, "prefetch_files: must be a whole number, 0 or more, not -1"),
        ({"prefetch_files": True}, "prefetch_files: must be a whole number, 0 or more, not True"),
        ({"max_memory": "lots"}, "max_memory: 'lots' is not a size"),
        ({"max_memory": 0}, "max_memory: must be a whole number of at least 1, not 0"),
        ({"max_document_bytes": 0}, "max_document_bytes: must be a whole number of at least 1, not 0"),
        ({"engine": "stream"}, "there is no engine 'stream'; did you mean 'streaming'"),
        ({"redo": "7,x"}, "redo: '7,x' is no list of unit numbers"),
        ({"output": 3}, "must be paths"),
        ({"tail": "padd"}, "did you mean 'pad'"),
        ({"encoder": "fast"}, "did you mean 'fastokens'"),
        ({"special_tokens_in_text": "x"}, "known: match, plain, reject"),
        ({"max_rejects": "many"}, "neither a count"),
        ({"max_rejects": "101%"}, "neither a count"),
        ({"max_rejects": -1}, "neither a count"),
        ({"max_document_bytes": "12 apples"}, "not a size"),
        ({"text_field": ""}, "text_field: must be a non-empty string"),
        ({"tokenizer": ""}, "tokenizer: must be a non-empty string"),
        ({"text_field": "a..b"}, "empty part"),
        ({"text_field": "a.b", "id_field": "a"}, "one holds the other"),
        ({"text_field": "a", "id_field": "a"}, "one holds the other"),
        ({"no_eos": True, "eos_token": "x"}, "contradict"),
        ({"no_eos": "yes"}, "no_eos: must be true or false"),
        ({"overwrite": 1}, "overwrite: must be true or false"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**options)


def test_one_input_may_be_given_without_a_list() -> None:
    assert config(inputs="in").inputs == ("in",)
    assert config(inputs=Path("a") / "b").inputs == ("a/b",)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), (7, 7), ("2k", 2000), ("256MiB", 256 << 20), ("4GB", 4 * 10**9), ("1.5 KiB", 1536), ("2TiB", 2 << 40)],
)
def test_sizes_are_read_as_people_write_them(text: object, size: int) -> None:
    assert parse_size(text) == size


def test_a_percentage_is_judged_at_the_end_or_when_it_means_something() -> None:
    limit = RejectLimit.parse("1%")
    assert not limit.exceeded(1, 10, final=False)
    assert limit.exceeded(1, 10, final=True)
    assert limit.exceeded(101, 10_000, final=False)
    assert not limit.exceeded(100, 10_000, final=True)
    assert not limit.exceeded(0, 0, final=True)


def test_a_count_is_judged_at_once() -> None:
    assert RejectLimit.parse("0").exceeded(1, 10**9, final=False)
    assert not RejectLimit.parse(3).exceeded(3, 3, final=True)


def test_toml_stands_below_the_overrides(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('input-dir = ["a", "b"]\noutput_dir = "out"\nseq-len = 512\ntail = "drop"\nmax_rejects = "5%"\n')
    found = load_config({"seq_len": 1024}, path)
    assert (found.inputs, found.output, found.seq_len) == (("a", "b"), Path("out"), 1024)
    assert (found.tail, found.max_rejects) == (Tail.DROP, RejectLimit(share=0.05))


def test_every_option_may_stand_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("""
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
        prefetch-files = 0
        max-memory = "4GB"
        redo = [7, 12]
        overwrite = true
    """)
    found = load_config({}, path)
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
        prefetch_files=0,
        max_memory=4_000_000_000,
        redo=(7, 12),
        overwrite=True,
    )
    same = {name for name, value in vars(found).items() if value == getattr(config(), name)}
    assert same == {"output", "no_eos"}  # every other option was given a value that is not its default


def test_an_override_wins_over_what_contradicts_it_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('inputs = "in"\noutput = "out"\neos_token = "</s>"\n')
    assert load_config({"no_eos": True}, path) == config(no_eos=True)
    path.write_text('inputs = "in"\noutput = "out"\nno_eos = true\n')
    assert load_config({"eos_token": "</s>"}, path) == config(eos_token="</s>")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("seq_lenght = 5", "unknown option 'seq_lenght'; did you mean 'seq_len'"),
        ("seq_len = ", "not valid TOML"),
        ('seq_len = "many"', "seq_len: must be a whole number of at least 1, not 'many'"),
        ("inputs = 3", "inputs and output must be paths, not 3"),
    ],
)
def test_a_mistake_in_toml_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        load_config({"inputs": "in", "output": "out"} if "inputs" not in content else {"output": "out"}, path)


def test_a_missing_toml_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        load_config({}, tmp_path / "absent.toml")


def test_inputs_and_output_are_needed() -> None:
    with pytest.raises(ConfigError, match="no inputs given"):
        load_config({"output": "out"})
    with pytest.raises(ConfigError, match="no output given"):
        load_config({"inputs": "in"})
