"""Runs regions in a process of their own, so that one that crashes or hangs is a finding like any other."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy.typing as npt

from byoc_core.backend import BackendHandle
from byoc_core.backend import backends as installed_backends
from byoc_core.debugging.arrays import load_arrays, save_arrays
from byoc_core.debugging.calling import CallOutcome, ResultSpec
from byoc_core.debugging.compiling import extract_region
from byoc_core.debugging.findings import Finding
from byoc_core.dtypes import dtype_name
from byoc_core.errors import InternalError, OptionsError
from byoc_core.ir import Function, IRModule

__all__ = ["IsolatedRunner", "check_isolable"]

NDArray = npt.NDArray[Any]

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from byoc_core.debugging.worker import main; main(sys.argv[2])"
)
_NUM_STDERR_LINES = 8
_GRACE = 5.0
_START_SECONDS = 60.0
"""How long the process may take to import what it needs, where the deadline is not longer."""


def check_isolable(handles: Sequence[BackendHandle], options: Mapping[str, Mapping[str, object]]) -> None:
    """Checks that another process can have the same backends and options.

    Raises:
        OptionsError: a backend is an object that only this process has, or an option is no plain value.
    """
    for handle in handles:
        known = handle.name in installed_backends().names()
        if not known or installed_backends().get(handle.name).plugin is not handle.plugin:
            raise OptionsError(
                "isolate", f"backend `{handle.name}` is an object of this process; another process cannot have it"
            )
    try:
        json.dumps(options)
    except (TypeError, ValueError) as error:
        raise OptionsError("isolate", f"an option cannot be passed to another process: {error}") from error


@dataclass(frozen=True, slots=True)
class _Written:
    """Where a region is for the process: its text, and the files that hold its constants, perhaps among others."""

    text: Path
    constants: tuple[Path, ...]


class IsolatedRunner:
    """Runs regions in a worker process, which is started anew where it died or was too slow.

    Args:
        handles: the backends; installed ones.
        options: each backend's options, by backend name: plain JSON values.
        deadline: seconds that compiling and calling a region may take.

    Raises:
        OptionsError: see :func:`check_isolable`.
    """

    def __init__(
        self, handles: Sequence[BackendHandle], options: Mapping[str, Mapping[str, object]], deadline: float
    ) -> None:
        check_isolable(handles, options)
        self._setup = {"backends": [handle.name for handle in handles], "options": options}
        self._deadline = deadline
        self._regions: dict[int, tuple[Function, _Written]] = {}
        self._constants: dict[str, Path] = {}
        self._failed: dict[int, Finding] = {}
        self._worker: _Worker | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="byoc-debug-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    def run(self, module: IRModule, name: str, inputs: Sequence[NDArray], results: Sequence[ResultSpec]) -> CallOutcome:
        """Has the region compiled, if it is new, and called; see :meth:`RegionRunner.run`.

        A region that hung is not called again in this session.
        """
        region = module[name]
        if id(region) in self._failed:
            return CallOutcome(findings=(self._failed[id(region)],))
        folder = Path(self._folder.name)
        if id(region) not in self._regions:
            self._regions[id(region)] = (region, self._write(extract_region(module, name)))
        written = self._regions[id(region)][1]
        save_arrays(folder / "inputs.npz", {str(index): array for index, array in enumerate(inputs)})
        request = {
            "region": str(written.text),
            "constants": [str(file) for file in written.constants],
            "name": name,
            "inputs": str(folder / "inputs.npz"),
            "outputs": str(folder / "outputs.npz"),
            "results": [[list(shape), dtype_name(dtype)] for shape, dtype in results],
        }
        if self._worker is None:
            self._worker = _Worker(self._setup, folder / "stderr.txt")
        reply = self._worker.ask(request, self._deadline)
        if isinstance(reply, Finding):
            self._stop()
            if reply.code == "hang":
                self._failed[id(region)] = reply
            return CallOutcome(findings=(reply,))
        arrays = list(load_arrays(folder / "outputs.npz").values())
        width = len(results)
        runs = tuple(tuple(arrays[run * width : (run + 1) * width]) for run in range(reply["runs"]))
        return CallOutcome(runs, tuple(Finding(**finding) for finding in reply["findings"]))

    def _write(self, module: IRModule) -> _Written:
        """Writes a region. A constant that another one cites too is there already: parts of a region share weights."""
        folder, count = Path(self._folder.name), len(self._regions)
        new = {digest: array for digest, array in module.constants.items() if digest not in self._constants}
        if new:
            file = folder / f"constants{count}.npz"
            save_arrays(file, new)
            self._constants.update(dict.fromkeys(new, file))
        text = folder / f"region{count}.py"
        text.write_text(str(module), encoding="utf-8")
        return _Written(text, tuple(dict.fromkeys(self._constants[digest] for digest in module.constants)))

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


class _Worker:
    """One process that answers requests, one JSON line each."""

    def __init__(self, setup: Mapping[str, object], stderr: Path) -> None:
        self._stderr = stderr
        self._errors = stderr.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path), json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # a group of its own: what it starts ends with it, and Ctrl-C is for this process
        )
        self._is_ready = False
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=_read_lines, args=(self._process.stdout, self._replies), daemon=True)
        self._reader.start()

    def ask(self, request: Mapping[str, object], deadline: float) -> dict[str, Any] | Finding:
        """Gives the reply, or what became of the process instead."""
        if not self._is_ready:
            started = self._receive(max(deadline, _START_SECONDS))
            if isinstance(started, Finding):
                return started
            self._is_ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:  # it is dead
            return self._crash()
        return self._receive(deadline)

    def _receive(self, seconds: float) -> dict[str, Any] | Finding:
        try:
            line = self._replies.get(timeout=seconds)
        except queue.Empty:
            if self._process.poll() is not None:  # what it started keeps its end open
                return self._crash()
            return Finding("hang", f"no result within {seconds:g} s")
        if not line:
            return self._crash()
        reply: dict[str, Any] = json.loads(line)
        if "bug" in reply:
            raise InternalError("the process that runs regions", "failed", detail=str(reply["bug"]))
        return reply

    def _crash(self) -> Finding:
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:  # it closed its end, and lives
            self._kill()
            status = self._process.wait()
        lines = self._stderr.read_text(encoding="utf-8", errors="replace").splitlines()[-_NUM_STDERR_LINES:]
        text = f"the process ended with {_describe_status(status)}"
        return Finding("crash", "\n".join([text, *lines]))

    def _kill(self) -> None:
        """Kills the process and those that it started."""
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()

    def stop(self) -> None:
        """Ends the process and those that it started, and waits for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._kill()
        self._process.wait()
        self._reader.join()
        with contextlib.suppress(OSError):  # what it had not read cannot be flushed any more
            self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()


def _read_lines(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
