"""`make golden`: write down what the golden jobs give now. The diff of digests.json shows what changed; say why.

A change of what a job writes whose input is whole is a new format version; of damaged input a later version may save
more. An output that was released (output/) must stay readable whatever changes.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.golden.jobs import DIGESTS, JOBS, digests, run_job


def main() -> None:
    found = {}
    for name in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = digests(run_job(name, Path(folder)))
    DIGESTS.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{sum(map(len, found.values()))} digests of {len(found)} jobs: {DIGESTS}")


if __name__ == "__main__":
    main()
