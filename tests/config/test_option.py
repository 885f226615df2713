"""Options are declared once, with all that is said of them elsewhere."""

from __future__ import annotations

from itertools import chain

from tokenmill.config import Config, Heading, options_of

OPTIONS = {option.name: option for option in options_of(Config)}


def test_every_option_is_explained_without_a_full_stop() -> None:
    for option in OPTIONS.values():
        assert option.help[0].islower()
        assert not option.help.endswith(".")


def test_an_option_is_called_after_its_field_but_for_the_inputs_and_the_output() -> None:
    named = {option.name: option.flag for option in OPTIONS.values()}
    assert named.pop("inputs") == "--input-dir"
    assert named.pop("output") == "--output-dir"
    assert named == {name: "--" + name.replace("_", "-") for name in named}


def test_options_stand_under_the_heading_of_their_group_with_the_spellings_of_eos_together() -> None:
    found = [[o.name for o in OPTIONS.values() if o.heading is heading] for heading in Heading]
    assert list(OPTIONS) == list(chain.from_iterable(found))
    places, content, _, actions = found
    assert places == ["inputs", "output"]
    assert content[-3:] == ["bos_token", "eos_token", "no_eos"]
    assert actions == ["redo", "overwrite"]


def test_a_default_that_only_the_machine_or_the_tokenizer_knows_is_told_in_words() -> None:
    shown = {name: option.shown_default for name, option in OPTIONS.items()}
    assert shown["num_workers"] == "80% of the cores"
    assert shown["eos_token"] == "the tokenizer's own"
    assert shown["max_document_bytes"] == "256MiB"
    assert {name for name, default in shown.items() if not default} == {
        "inputs",
        "output",
        "id_field",
        "no_eos",
        "redo",
        "overwrite",
    }
