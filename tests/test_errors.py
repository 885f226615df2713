"""Errors about options carry the names of the options, so that they can be called what the user typed."""

from __future__ import annotations

import pickle

import pytest

from tokenmill.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "must be less"),
        (("seq_len",), "seq_len: must be less"),
        (("text_field", "id_field"), "text_field and id_field: must be less"),
    ],
)
def test_a_config_error_says_which_options_it_is_about(options: tuple[str, ...], said: str) -> None:
    error = ConfigError("must be less", *options)
    assert str(error) == said
    assert str(pickle.loads(pickle.dumps(error))) == said


def test_a_renamed_error_is_the_same_but_for_the_names_that_are_known() -> None:
    error = ConfigError("must be less", "text_field", "id_field")
    renamed = error.renamed({"id_field": "--id-field"})
    assert str(renamed) == "text_field and --id-field: must be less"
    assert str(error) == "text_field and id_field: must be less"


def test_a_renamed_error_comes_from_the_same_place() -> None:
    with pytest.raises(ConfigError) as raised:
        raise ConfigError("must be less", "seq_len")
    assert raised.value.renamed({}).__traceback__ is raised.value.__traceback__
