"""docs/options.md, from what the options declare: `make options` writes it, and a test compares the two."""

from __future__ import annotations

import argparse

from tokenmill.cli.run import add_options
from tokenmill.config import Config, Heading, Option, options_of

_INTRODUCTION = """\
# Options of `tokenmill run`

    tokenmill run INPUT... OUTPUT [OPTION...]

Options can also be set in a TOML file (`--config job.toml`). A key is `inputs`, `output`, or an option without its
leading dashes (`seq-len` or `seq_len`). The command line wins. Paths are relative to the current directory. One-off
actions and the options of messages can only be given on the command line.

    inputs = ["corpus"]
    output = "tokenized"
    seq-len = 4096
    max-rejects = "5%"

In Python they are keyword arguments: `tokenmill.Config(inputs=["corpus"], output="tokenized", seq_len=4096)`. There,
`eos_token` is a token, `None` for the tokenizer's own, or `tokenmill.config.Eos.OFF` for none, as with `no_eos=True`.

This page is written by `make options`, from `src/tokenmill/config/groups.py`.
"""
_ABOUT = {
    Heading.CONTENT: "Together with the inputs they make up the job. With another value it is a different job, "
    "which is refused in the same\noutput directory.",
    Heading.RUN: "They may change when a job is continued. How engines differ: [engines.md](engines.md).",
    Heading.ACTIONS: "Leave them out when you run the same command again.",
}


def options_page() -> str:
    """The whole page."""
    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser)
    sections = (_section(group) for group in parser._action_groups if group.title and _flags(group))
    return "\n".join([_INTRODUCTION, *sections])


def _flags(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    return [action for action in group._group_actions if action.option_strings]


def _section(group: argparse._ArgumentGroup) -> str:
    title = str(group.title)
    about = [_ABOUT[Heading(title)], ""] if title in _ABOUT else []
    table = ["| option | default | meaning |", "|---|---|---|", *map(_row, _flags(group))]
    return "\n".join([f"## {title[0].upper()}{title[1:]}", "", *about, *table, ""])


def _row(action: argparse.Action) -> str:
    declared = {option.name: option for option in options_of(Config)}.get(action.dest)
    default, meaning = (_default(declared), declared.help) if declared else ("", str(action.help))
    if isinstance(action.default, str):  # of the command line alone
        default, meaning = f"`{action.default}`", meaning.removesuffix(f" (default: {action.default})")
    return f"| `{action.option_strings[0]}` | {default} | {meaning} |".replace("|  |", "| |")


def _default(option: Option) -> str:
    """As code if users could write it, else in words."""
    return option.default_text or (f"`{option.shown_default}`" if option.shown_default else "")


if __name__ == "__main__":
    print(options_page(), end="")
