"""`python -m tokenmill` is the same program as `tokenmill`."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Ctrl-C may come while the libraries are still being loaded."""
    try:
        from tokenmill.cli.streams import open_streams

        open_streams()  # before anything else can open a file
        from tokenmill.cli.program import main as run_command_line

        return run_command_line(arguments)
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("tokenmill: error: interrupted\n")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
