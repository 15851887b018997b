"""The inner half of a :class:`byoc_core.isolation.Worker`: reads requests, has them answered, replies."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

__all__ = ["serve"]

_PR_SET_PDEATHSIG = 1
"""Of ``<sys/prctl.h>``."""

Answer = Callable[[Mapping[str, Any]], Mapping[str, object]]


def serve(make_answer: Callable[[], Answer]) -> None:
    """Says that it is ready, and answers the requests on stdin; both ends are one JSON value a line.

    Where stdin ends, the process and those that it started end at once: nothing stays behind whose user was killed,
    not even work that does not end. Both ends are kept from what the work does: it reads nothing, and what it prints
    goes to stderr.

    Args:
        make_answer: prepares, and gives what answers one request; both run with the ends kept. An exception of an
            answer is the reply ``{"bug": traceback}``.
    """
    _die_with_parent()
    with (
        os.fdopen(os.dup(1), "w", encoding="utf-8") as replies,
        Path(os.devnull).open("rb") as nothing,
    ):
        requests = os.dup(0)
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_requests, args=(requests, lines), daemon=True).start()
        answer = make_answer()
        _reply(replies, {"ready": True})
        while True:
            request = json.loads(lines.get())
            try:
                reply = answer(request)
            except Exception:  # noqa: BLE001 - the process's border: the parent raises it again as an internal error
                reply = {"bug": traceback.format_exc()}
            _reply(replies, reply)


def _reply(replies: IO[str], answer: Mapping[str, object]) -> None:
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


def _die_with_parent() -> None:
    """Has Linux kill this process when its parent dies: no thread runs beside work that keeps Python's lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_requests(requests: int, lines: queue.SimpleQueue[str]) -> None:
    """Hands requests on; at their end, ends this process with the group that it leads."""
    with os.fdopen(requests, encoding="utf-8") as stream:  # this thread's own: closing it elsewhere waits for a line
        for line in stream:
            lines.put(line)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
