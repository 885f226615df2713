"""`tokenmill` that stops itself at a chosen point, as of SIGSTOP, so that a test need not guess when it is there.

    python -m tests.support.self_stopping after NAME run INPUT OUTPUT ...  once it has renamed a file to this name
    python -m tests.support.self_stopping encoding FILE run ...            before it encodes a text of a megabyte or so

It goes on with SIGCONT, and takes the signals then that came meanwhile. In the second case it makes the file when the
text is encoded, and has a tenth of a second of grace after a signal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenmill.job.interrupt
from tokenmill.__main__ import main
from tokenmill.encode.encoder import FastokensEncoder
from tokenmill.records import TokenBatch


def stop_after(name: str) -> None:
    original = os.rename

    def rename(source: Any, target: Any) -> None:
        original(source, target)
        if os.path.basename(target) == name:
            os.kill(os.getpid(), signal.SIGSTOP)

    os.rename = rename  # type: ignore[assignment]


def stop_encoding(done: Path) -> None:
    tokenmill.job.interrupt.GRACE_SECONDS = 0.1
    original = FastokensEncoder.encode

    def encode(self: FastokensEncoder, texts: Sequence[str]) -> TokenBatch:
        is_long = any(len(text) >= 1_000_000 for text in texts)
        if is_long:
            os.kill(os.getpid(), signal.SIGSTOP)
        batch = original(self, texts)
        if is_long:
            done.touch()
        return batch

    FastokensEncoder.encode = encode  # type: ignore[method-assign]


if __name__ == "__main__":
    how, what = sys.argv[1:3]
    if how == "after":
        stop_after(what)
    else:
        stop_encoding(Path(what))
    del sys.argv[1:3]
    raise SystemExit(main())
