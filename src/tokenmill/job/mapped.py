"""A run that maps its inputs can be killed by one of them: the next run says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tokenmill.output import layout
from tokenmill.output.store import Store

log = logging.getLogger("tokenmill")


@contextmanager
def noted(store: Store, *, mapped: bool) -> Iterator[None]:
    """While a run maps its inputs, a file in its output says so. Whatever ends the run removes it, unless that kills.

    Touching what a mapped file no longer has is a SIGBUS, which Python can neither catch nor explain.
    """
    if store.has(layout.MAPPED):
        log.warning(
            "the run before read its inputs with --read mmap and was killed: perhaps a file was cut short while it was "
            "read. This run continues it from what is committed"
        )
        store.storage.remove([layout.MAPPED])
    if not mapped:
        yield
        return
    store.storage.append(layout.MAPPED).close()
    try:
        yield
    finally:
        store.storage.remove([layout.MAPPED])
