"""Waiting for items from another thread."""

from __future__ import annotations

import queue
import time
from typing import TypeVar

__all__ = ["wait_for"]

_LOOK_SECONDS = 0.2

Item = TypeVar("Item")


def wait_for(items: queue.SimpleQueue[Item], seconds: float | None = None) -> Item:
    """Return the next item of a queue; Ctrl-C ends the wait at any moment.

    A signal does not wake the thread if the signal comes just before the thread falls asleep, or if the system delivers
    the signal to another thread. Python would then raise ``KeyboardInterrupt`` only after the next item. The wait is
    therefore divided into short waits.

    Args:
        items: the queue, filled by another thread.
        seconds: how long to wait; ``None`` for ever.

    Raises:
        queue.Empty: nothing came in time.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _LOOK_SECONDS if end is None else end - time.monotonic()
        try:
            return items.get(timeout=max(0.0, min(left, _LOOK_SECONDS)))
        except queue.Empty:
            if left <= _LOOK_SECONDS and end is not None:
                raise
