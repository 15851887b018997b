"""Waiting for what another thread hands over."""

from __future__ import annotations

import queue
import time
from typing import TypeVar

__all__ = ["wait_for"]

_LOOK_SECONDS = 0.2

Item = TypeVar("Item")


def wait_for(items: queue.SimpleQueue[Item], seconds: float | None = None) -> Item:
    """Gives the next item of a queue; Ctrl-C ends the wait at any moment.

    A signal that comes just before the thread falls asleep, or that the system hands to another thread, does not wake
    it: Python would raise ``KeyboardInterrupt`` only after the next item. So the wait is cut into short ones.

    Args:
        items: where another thread puts them.
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
