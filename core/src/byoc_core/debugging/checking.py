"""Checks one region: runs it on its backend and on the reference kernels, and compares."""

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
from byoc_core.debugging.findings import Finding, OutputError, RegionCheck
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
"""Seconds that a process of its own may take to compile and call a region."""


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
    """Compiles a function that is annotated for a backend, runs it, and compares with the reference kernels.

    Args:
        module: where the function stands.
        name: the function.
        inputs: one array per parameter, in order or by the parameter's name.
        backends: names or plugin objects, the function's backend among them; by default the one of that name.
        options: each backend's options, by backend name.
        tolerance: how much error is taken for rounding.
        isolate: compile and run in a process of its own: a crash is then a finding.
        deadline: seconds that this process may take.
        registry: the backends that names stand for; by default those installed for this process.

    Raises:
        OptionsError: the function is not annotated, its backend is not listed, or it cannot be isolated.
        BackendNotFoundError: a backend is not installed.
        ExecutionError: the function calls something that has no reference kernel, or its inputs do not fit.
    """
    function = module[name]
    backend = function.attrs.get("Codegen")
    if backend is None:
        raise OptionsError(f"function `{name}`", "is not annotated with `Codegen`")
    known = find_registry(registry)
    handles = [known.get(item) for item in backends or [str(backend)]]
    if backend not in [handle.name for handle in handles]:
        raise OptionsError("backends", f"do not have the function's own, `{backend}`")
    given = [inputs[param.name] for param in function.params] if isinstance(inputs, Mapping) else inputs
    with open_runner(handles, options or {}, known, isolate=isolate, deadline=deadline) as runner:
        checker = RegionChecker(runner, tolerance or Tolerance(), handles, options or {})
        return checker.check(module, name, [np.asarray(array) for array in given]).verdict


def open_runner(
    handles: Sequence[BackendHandle], options: Options, registry: Backends, *, isolate: bool, deadline: float
) -> RegionRunner:
    """Gives a runner to be used in a ``with`` statement.

    Raises:
        OptionsError: another process cannot have the backends or options, or the deadline is no time to wait.
    """
    if not 0 < deadline <= threading.TIMEOUT_MAX:
        raise OptionsError("deadline", "is no time to wait", got=deadline, expected="seconds, more than 0")
    if isolate:
        return IsolatedRunner(handles, options, deadline, registry)
    return LocalRunner(handles, options, registry)


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A verdict, with what the call gave and what it should have given.

    Attributes:
        verdict: the verdict.
        host: the results of the reference kernels.
        found: the backend's results; ``None`` where there are none of the right shapes and dtypes.
    """

    verdict: RegionCheck
    host: Sequence[NDArray]
    found: Sequence[NDArray] | None


class RegionChecker:
    """Checks calls of regions.

    Args:
        runner: what compiles and calls them.
        tolerance: how much error is taken for rounding.
        handles: the backends, of whose unit roundoffs that of the region's own counts.
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
        """Gives what comes out of one call; a backend of static shapes gets the function for the call's sizes.

        Raises:
            ExecutionError: the reference kernels cannot run it.
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
        findings: list[Finding] = list(outcome.findings)
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
        """Return a function for the sizes of its inputs; the same for equal sizes, so that it is compiled once."""
        specs = [TensorSpec(p.name, p.type.dtype, p.type.shape or ()) for p in function.params]  # type: ignore[union-attr]
        sizes = tuple(sorted(bind_symbols(specs, inputs).items()))
        key = id(function), sizes  # the function is kept beside it, so that its id stays its own
        if key not in self._sized:
            self._sized[key] = function, specialise(function, dict(sizes)).function
        return self._sized[key][1]
