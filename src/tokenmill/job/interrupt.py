"""Ctrl-C and SIGTERM: stop soon and cleanly; if a native call takes too long for that, stop anyway.

Python runs a signal handler only between two steps of the main thread, and encoding one huge document is one step
that can take many seconds. So the signal also wakes a thread, which ends the process if it is still there after a
grace period. That is safe: a unit is committed or it never happened.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_SECONDS = 1.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(farewell: str) -> Iterator[threading.Event]:
    """An event that the first signal sets; `farewell` is printed if the process has to be ended.

    Outside the main thread nothing is installed, only the event is given.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in _SIGNALS}
    wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    done = threading.Event()
    watchdog = threading.Thread(
        target=_watch, args=(read_end, stop, done, farewell), name="tokenmill-watchdog", daemon=True
    )
    watchdog.start()
    try:
        yield stop
    finally:
        done.set()
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(write_end)  # wakes the watchdog for the last time
        watchdog.join()
        os.close(read_end)


def _watch(read_end: int, stop: threading.Event, done: threading.Event, farewell: str) -> None:
    while data := os.read(read_end, 1):
        if data[0] in _SIGNALS:
            stop.set()
            if not done.wait(GRACE_SECONDS):
                # The live display may have hidden the cursor, and nobody else is left to show it again.
                cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""
                sys.stderr.write(f"{cursor}tokenmill: error: {farewell}\n")
                sys.stderr.flush()
                os._exit(130)
