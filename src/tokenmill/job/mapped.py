"""A run that maps its inputs can be killed by one of them: the next run says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tokenmill.output import layout
from tokenmill.output.store import Store

log = logging.getLogger("tokenmill")


def tell_of_killed_run(store: Store) -> None:
    """Before the inputs are compared with those of the plan: one of them may have changed, and that killed the run."""
    if store.has(layout.MAPPED):
        log.warning(
            "the run before read its inputs with --read mmap and was killed, perhaps because a file was cut short "
            "while it was read. Everything committed is kept"
        )


@contextmanager
def noted(store: Store, *, mapped: bool) -> Iterator[None]:
    """While a run maps its inputs, a file in its output says so. Whatever ends the run removes it, unless that kills.

    Touching what a mapped file no longer has is a SIGBUS, which Python can neither catch nor explain.
    """
    store.storage.remove([layout.MAPPED])
    if not mapped:
        yield
        return
    store.storage.append(layout.MAPPED).close()
    try:
        yield
    finally:
        store.storage.remove([layout.MAPPED])
