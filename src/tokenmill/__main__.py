"""`python -m tokenmill` is the same program as `tokenmill`."""

import sys


def main() -> int:
    """Ctrl-C may come while the libraries are still being loaded."""
    try:
        from tokenmill.cli.program import main as run_command_line

        return run_command_line()
    except KeyboardInterrupt:
        sys.stderr.write("tokenmill: error: interrupted\n")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
