"""The process of a :class:`byoc_core.isolation.Worker`: read requests, answer each by a function, and reply."""

from __future__ import annotations

import ctypes
import gc
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
"""From ``<sys/prctl.h>``."""

Answer = Callable[[Mapping[str, Any]], Mapping[str, object]]


def serve(make_answer: Callable[[], Answer]) -> None:
    """Report readiness, then answer the requests on stdin; each line holds a JSON value.

    At the end of stdin the process and all child processes end at once. Nothing outlives a killed user, not even
    endless work. The work cannot use the streams of requests and replies: stdin is empty, and stdout goes to
    stderr.

    Garbage collection begins after the first answer, without the objects living until then: imports create objects
    for the whole life of the process, and collections take a tenth of the time until then.

    Args:
        make_answer: prepares, and returns the function to answer one request; both run without access to the two
            streams. An exception of an answer becomes the reply ``{"bug": traceback}``.
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
            if not gc.isenabled():
                gc.collect()
                gc.freeze()
                gc.enable()


def _reply(replies: IO[str], answer: Mapping[str, object]) -> None:
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


def _die_with_parent() -> None:
    """Have Linux kill this process when the parent dies, because no thread runs while work holds Python's lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_requests(requests: int, lines: queue.SimpleQueue[str]) -> None:
    """Pass requests on; at the end of the stream, end this process and the process group led by this process."""
    with os.fdopen(requests, encoding="utf-8") as stream:  # owned by this thread: closing it elsewhere waits for a line
        for line in stream:
            lines.put(line)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
