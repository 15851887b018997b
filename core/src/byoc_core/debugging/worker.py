"""The process behind :class:`byoc_core.debugging.isolation.IsolatedRunner`: reads requests, runs regions, replies."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from byoc_core.backend import backends
from byoc_core.debugging.arrays import load_arrays, save_arrays
from byoc_core.debugging.running import LocalRunner
from byoc_core.dtypes import to_numpy
from byoc_core.ir import ConstantStore, IRModule
from byoc_core.ops import default_ops
from byoc_core.script import parse

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
"""Of ``<sys/prctl.h>``."""


def main(setup: str) -> None:
    """Says that it is ready, and answers the requests on stdin; both ends are one JSON value a line.

    Where stdin ends, the process and those that it started end at once: nothing stays behind whose session was killed,
    not even a region that does not end. Both ends are kept from what regions and compilers do: these read nothing, and
    what they print goes to stderr.
    """
    _die_with_parent()
    with (
        os.fdopen(os.dup(1), "w", encoding="utf-8") as replies,
        Path(os.devnull).open("rb") as nothing,
    ):
        requests = os.dup(0)
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        given = json.loads(setup)
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_requests, args=(requests, lines), daemon=True).start()
        worker = _Worker(given["backends"], given["options"])
        _reply(replies, {"ready": True})
        while True:
            _reply(replies, worker.answer(json.loads(lines.get())))


def _reply(replies: IO[str], answer: Mapping[str, object]) -> None:
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


def _die_with_parent() -> None:
    """Has Linux kill this process when its parent dies: no thread runs beside a region that keeps Python's lock."""
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


class _Worker:
    def __init__(self, names: list[str], options: Mapping[str, Mapping[str, object]]) -> None:
        self._runner = LocalRunner([backends().get(name) for name in names], options)
        self._ops = default_ops().extended(backends().ops(names))
        self._modules: dict[str, IRModule] = {}
        self._constants = ConstantStore()
        self._read: set[str] = set()

    def answer(self, request: Mapping[str, Any]) -> dict[str, object]:
        try:
            return self._run(request)
        except Exception:  # noqa: BLE001 - the process's border: the parent raises it again as an internal error
            return {"bug": traceback.format_exc()}

    def _run(self, request: Mapping[str, Any]) -> dict[str, object]:
        region = str(request["region"])
        if region not in self._modules:
            for file in request["constants"]:
                if file not in self._read:
                    self._read.add(file)
                    for array in load_arrays(file).values():
                        self._constants.add(array)
            text = Path(region).read_text(encoding="utf-8")
            self._modules[region] = parse(text, constants=self._constants, ops=self._ops)
        inputs = list(load_arrays(request["inputs"]).values())
        results = [(tuple(shape), to_numpy(dtype)) for shape, dtype in request["results"]]
        outcome = self._runner.run(self._modules[region], request["name"], inputs, results)
        arrays = [array for run in outcome.runs for array in run]
        save_arrays(request["outputs"], {str(index): array for index, array in enumerate(arrays)})
        return {"runs": len(outcome.runs), "findings": [asdict(finding) for finding in outcome.findings]}
