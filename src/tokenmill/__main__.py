"""`python -m tokenmill` is the same program as `tokenmill`."""

from tokenmill.cli import main

raise SystemExit(main())
