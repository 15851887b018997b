"""Regions run in a separate process: a crash or a hang is a finding like any other.

Regions go to the process as printed modules, arrays as ``.npz`` files; requests and replies are JSON. The other side is
:mod:`byoc_core.debugging.worker`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from byoc_core.backend.registry import BackendHandle, Backends
from byoc_core.debugging.calling import CallOutcome, ResultSpec
from byoc_core.debugging.compiling import extract_region
from byoc_core.debugging.findings import RegionFinding
from byoc_core.dtypes import dtype_name
from byoc_core.errors import OptionsError
from byoc_core.ir import Function, IRModule
from byoc_core.isolation import Ended, Worker
from byoc_core.runtime.array_files import load_arrays, save_arrays

__all__ = ["IsolatedRunner", "check_isolable"]

NDArray = npt.NDArray[Any]


def check_isolable(
    handles: Sequence[BackendHandle], options: Mapping[str, Mapping[str, object]], registry: Backends
) -> None:
    """Check that another process can have the same backends and options.

    Raises:
        OptionsError: a backend is an object of this process only, or an option is no plain value.
    """
    for handle in handles:
        if not registry.holds(handle):
            raise OptionsError(
                "isolate", f"backend `{handle.name}` is an object of this process, unavailable to another process"
            )
    try:
        json.dumps(options)
    except (TypeError, ValueError) as error:
        raise OptionsError("isolate", f"an option cannot be passed to another process: {error}") from error


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of a region for the process: the text, and the files holding the constants, perhaps among others."""

    text: Path
    constants: tuple[Path, ...]


class IsolatedRunner:
    """A runner of regions in a worker process; a dead or slow process is replaced by a new process.

    Args:
        handles: the backends; only installed backends.
        options: each backend's options, by backend name: plain JSON values.
        deadline: seconds allowed for compiling and calling a region.
        registry: the installed backends.

    Raises:
        OptionsError: see :func:`check_isolable`.
    """

    def __init__(
        self,
        handles: Sequence[BackendHandle],
        options: Mapping[str, Mapping[str, object]],
        deadline: float,
        registry: Backends,
    ) -> None:
        check_isolable(handles, options, registry)
        self._setup = {"backends": [handle.name for handle in handles], "options": options}
        self._deadline = deadline
        self._regions: dict[int, tuple[Function, _Written]] = {}
        self._constants: dict[str, Path] = {}
        self._failed: dict[int, RegionFinding] = {}
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="byoc-debug-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    def run(self, module: IRModule, name: str, inputs: Sequence[NDArray], results: Sequence[ResultSpec]) -> CallOutcome:
        """Compile the region, if new, and call the region, in the worker; see :meth:`RegionRunner.run`.

        A hanging region is not called again in this session.
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
            self._worker = Worker("byoc_core.debugging.worker:main", self._setup, folder / "stderr.txt")
        reply = self._worker.ask(request, self._deadline)
        if isinstance(reply, Ended):
            self._stop()
            finding = RegionFinding(reply.code, reply.text)
            if reply.code == "hang":
                self._failed[id(region)] = finding
            return CallOutcome(findings=(finding,))
        arrays = list(load_arrays(folder / "outputs.npz").values())
        width = len(results)
        runs = tuple(tuple(arrays[run * width : (run + 1) * width]) for run in range(reply["runs"]))
        return CallOutcome(runs, tuple(RegionFinding(**finding) for finding in reply["findings"]))

    def _write(self, module: IRModule) -> _Written:
        """Write a region. Constants cited by earlier regions are not written again: parts of a region share weights."""
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
