"""Checks of a single region: run on the backend and on the reference kernels, and compare."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.backend import BackendHandle, BackendInfo
from byoc_core.backend.registry import Backends, find_registry
from byoc_core.debugging.comparing import References, Tolerance, compare_outputs
from byoc_core.debugging.compiling import result_names
from byoc_core.debugging.findings import OutputError, RegionCheck, RegionFinding
from byoc_core.debugging.isolation import IsolatedRunner
from byoc_core.debugging.running import LocalRunner, RegionRunner
from byoc_core.errors import OptionsError
from byoc_core.ir import Function, IRModule
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.module import TensorSpec
from byoc_core.runtime.sets_of_sizes import Sizes
from byoc_core.transform.specialise import specialise, symbols_in

__all__ = ["DEADLINE", "CheckedCall", "RegionChecker", "check_region", "open_runner"]

NDArray = npt.NDArray[Any]
Options = Mapping[str, Mapping[str, object]]

DEADLINE = 120.0
"""Seconds allowed for an isolated process to compile and call a region."""


def check_region(
    module: IRModule,
    name: str,
    inputs: Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike],
    *,
    backends: Sequence[str | object] = (),
    options: Options | None = None,
    tolerance: Tolerance | None = None,
    isolate: bool = False,
    deadline: float = DEADLINE,
    registry: Backends | None = None,
) -> RegionCheck:
    """Compile a function annotated for a backend, run the function, and compare with the reference kernels.

    Args:
        module: contains the function.
        name: the function.
        inputs: one array per parameter, in order or by the parameter's name.
        backends: names or plugin objects, including the function's backend; by default the backend of that name.
        options: each backend's options, by backend name.
        tolerance: the error accepted as rounding.
        isolate: compile and run in a separate process: a crash is then a finding.
        deadline: seconds allowed for this process.
        registry: the backends for names; by default the backends installed for this process.

    Raises:
        OptionsError: the function is not annotated, the function's backend is not listed, or a backend cannot be
            isolated.
        BackendNotFoundError: a backend is not installed.
        ExecutionError: the function calls something without a reference kernel, or the inputs do not fit.
    """
    function = module[name]
    backend = function.attrs.get("Codegen")
    if backend is None:
        raise OptionsError(f"function `{name}`", "is not annotated with `Codegen`")
    resolved_registry = find_registry(registry)
    handles = [resolved_registry.get(item) for item in backends or [str(backend)]]
    if backend not in [handle.name for handle in handles]:
        raise OptionsError("backends", f"lack `{backend}`, the function's own backend")
    ordered_inputs = [inputs[param.name] for param in function.params] if isinstance(inputs, Mapping) else inputs
    with open_runner(handles, options or {}, resolved_registry, isolate=isolate, deadline=deadline) as runner:
        checker = RegionChecker(runner, tolerance or Tolerance(), handles, options or {})
        return checker.check(module, name, [np.asarray(array) for array in ordered_inputs]).verdict


def open_runner(
    handles: Sequence[BackendHandle], options: Options, registry: Backends, *, isolate: bool, deadline: float
) -> RegionRunner:
    """Return a runner, to be used in a ``with`` statement.

    Raises:
        OptionsError: another process cannot have the backends or options, or the deadline is no time to wait.
    """
    if not 0 < deadline <= threading.TIMEOUT_MAX:
        raise OptionsError("deadline", "is not a valid waiting time", got=deadline, expected="seconds, more than 0")
    if isolate:
        return IsolatedRunner(handles, options, deadline, registry)
    return LocalRunner(handles, options, registry)


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A verdict, with the results of the call and the expected results.

    Attributes:
        verdict: the verdict.
        host: the results of the reference kernels.
        found: the backend's results; ``None`` without results of the right shapes and dtypes.
    """

    verdict: RegionCheck
    host: Sequence[NDArray]
    found: Sequence[NDArray] | None


class RegionChecker:
    """A checker of calls of regions.

    Args:
        runner: compiles and calls the regions.
        tolerance: the error accepted as rounding.
        handles: the backends; the unit roundoffs of the region's own backend count.
        options: each backend's options, by backend name.
    """

    def __init__(
        self, runner: RegionRunner, tolerance: Tolerance, handles: Sequence[BackendHandle], options: Options
    ) -> None:
        self._runner = runner
        self._tolerance = tolerance
        self._infos = {h.name: h.info(options.get(h.name)) for h in handles}
        self._sized: dict[tuple[int, Sizes], tuple[Function, Function]] = {}

    def check(self, module: IRModule, name: str, inputs: Sequence[NDArray], call: int = 0) -> CheckedCall:
        """Check a single call; a backend with static shapes gets the function for the call's sizes.

        Raises:
            ExecutionError: the reference kernels cannot run the function.
        """
        function = module[name]
        backend = str(function.attrs["Codegen"])
        info = self._infos.get(backend, BackendInfo(backend, dynamic_shapes=True))
        if not info.dynamic_shapes and symbols_in(function):
            function = self._at_sizes(function, inputs)
            module = module.with_function(function)
        references = References(module, name, inputs, info.unit_roundoff, finite_only=info.finite_only)
        results = [(array.shape, array.dtype) for array in references.host]
        outcome = self._runner.run(module, name, inputs, results)
        findings: list[RegionFinding] = list(outcome.findings)
        errors: list[OutputError] = []
        for run in outcome.runs:
            found, figures = compare_outputs(run, result_names(function), references, self._tolerance)
            if not errors or max(f.excess for f in figures) > max(e.excess for e in errors):
                errors = figures
            findings += [finding for finding in found if finding not in findings]
        verdict = RegionCheck(name, str(function.attrs["Codegen"]), call, tuple(findings), tuple(errors))
        fits = outcome.runs and all(
            (array.shape, array.dtype) == spec for array, spec in zip(outcome.runs[0], results, strict=True)
        )
        return CheckedCall(verdict, references.host, outcome.runs[0] if fits else None)

    def _at_sizes(self, function: Function, inputs: Sequence[NDArray]) -> Function:
        """Return a function for the sizes of the inputs; equal sizes give the same function, compiled only once."""
        specs = [TensorSpec(p.name, p.type.dtype, p.type.shape or ()) for p in function.params]  # type: ignore[union-attr]
        sizes = tuple(sorted(bind_symbols(specs, inputs).items()))
        key = id(function), sizes  # the function is kept too: the id stays unique
        if key not in self._sized:
            self._sized[key] = function, specialise(function, dict(sizes)).function
        return self._sized[key][1]
