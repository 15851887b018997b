"""Runners: compile regions and call the regions, here or in another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import numpy.typing as npt

from byoc_core.backend.registry import BackendHandle, Backends
from byoc_core.debugging.calling import CallOutcome, ResultSpec, call_region
from byoc_core.debugging.compiling import CompiledRegion, RefusedError, compile_region, extract_region, result_names
from byoc_core.debugging.findings import REFUSED, RegionFinding
from byoc_core.errors import ByocError
from byoc_core.ir import Function, IRModule

__all__ = ["LocalRunner", "RegionRunner"]

NDArray = npt.NDArray[Any]


class RegionRunner(Protocol):
    """A compiler and caller of regions. Failures are findings; nothing is raised for a failure."""

    def run(self, module: IRModule, name: str, inputs: Sequence[NDArray], results: Sequence[ResultSpec]) -> CallOutcome:
        """Call a function of a module that is annotated for a backend.

        Args:
            module: contains the function.
            name: the function.
            inputs: one array per parameter.
            results: shape and dtype of each result.
        """

    def __enter__(self) -> Self:
        """Return the runner."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the runner's resources."""


class LocalRunner:
    """A runner of regions in this process, each compiled once.

    Args:
        handles: the backends.
        options: each backend's options, by backend name.
        registry: has the backends of annotated functions missing from ``handles``.
    """

    def __init__(
        self, handles: Sequence[BackendHandle], options: Mapping[str, Mapping[str, object]], registry: Backends
    ) -> None:
        self._find = registry.lookup(handles)
        self._options = options
        self._compiled: dict[int, tuple[Function, CompiledRegion | RegionFinding]] = {}

    def run(self, module: IRModule, name: str, inputs: Sequence[NDArray], results: Sequence[ResultSpec]) -> CallOutcome:
        """Compile the region if new, and call the region; see :meth:`RegionRunner.run`."""
        region = module[name]
        if id(region) not in self._compiled:  # the function is kept too: the id stays unique
            self._compiled[id(region)] = (region, self._compile(module, region))
        compiled = self._compiled[id(region)][1]
        if isinstance(compiled, RegionFinding):
            return CallOutcome(findings=(compiled,))
        return call_region(compiled, inputs, results, result_names(region))

    def _compile(self, module: IRModule, region: Function) -> CompiledRegion | RegionFinding:
        backend = str(region.attrs["Codegen"])
        try:
            extracted = extract_region(module, region.name)
            return compile_region(extracted, region.name, self._find(backend), self._options.get(backend, {}))
        except RefusedError as error:
            return RegionFinding(REFUSED, str(error))
        except ByocError as error:
            return RegionFinding("compile-error", str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._compiled.clear()
