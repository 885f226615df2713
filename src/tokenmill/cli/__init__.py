"""The command line: one module per command, which program.py puts together."""

from tokenmill.cli.program import build_parser, main, option_names

__all__ = ["build_parser", "main", "option_names"]
