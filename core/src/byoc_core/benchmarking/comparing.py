"""The comparison of an engine's outputs with byoc's.

Outputs first are compared with each other, with the tolerance of :func:`byoc_core.tuning.judging.rounding_tolerance`;
integers and booleans must be equal. Outputs in doubt are judged by the rule of the debugger: each engine is compared
with the model in float64, so the wrong engine is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.backend.info import BackendInfo, coarsest_roundoff
from byoc_core.benchmarking.peers import BYOC
from byoc_core.benchmarking.results import OutputCheck
from byoc_core.dtypes import dtype_name, is_float
from byoc_core.ir import IRModule
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.module import NDArray, Signature
from byoc_core.tuning.judging import Judge, agree, rounding_tolerance

__all__ = ["OutputComparison", "reported_backends"]


def reported_backends(report: Mapping[str, object]) -> list[BackendInfo]:
    """Return the backends of an offload report, with the stated unit roundoffs.

    The report may come from anywhere: invalid roundoffs count as none.
    """
    backends = report.get("backends")
    infos = []
    for item in backends if isinstance(backends, list) else ():
        roundoffs = item.get("unit_roundoff") if isinstance(item, Mapping) else None
        pairs = roundoffs.items() if isinstance(roundoffs, Mapping) else ()
        roundoffs_of_backend = {str(key): value for key, value in pairs if isinstance(value, float) and 0 < value < 1}
        if roundoffs_of_backend:
            infos.append(BackendInfo(str(item.get("name")), unit_roundoff=roundoffs_of_backend))
    return infos


@dataclass(frozen=True)
class OutputComparison:
    """Comparisons of outputs of a model.

    Attributes:
        module: the model.
        function: the called function.
        signature: of the function.
        inputs: by name.
        infos: of the backends of byoc's outputs.
        run_seconds: of byoc's first call: the reference kernels take longer, and are not run for hours.
    """

    module: IRModule
    function: str
    signature: Signature
    inputs: Mapping[str, NDArray]
    infos: Sequence[BackendInfo]
    run_seconds: float

    def check(self, engine: str, found: Sequence[NDArray], ours: Sequence[NDArray]) -> OutputCheck:
        """Return the comparison of an engine's outputs with byoc's.

        Args:
            engine: the name of the engine.
            found: the outputs of the engine.
            ours: the outputs of byoc.

        Cost: in doubt, about thirty runs of the reference kernels.
        """
        names = [spec.name for spec in self.signature.outputs]
        if problem := _layout_problem(engine, names, found, ours):
            return OutputCheck(False, None, problem)
        error = _max_error(found, ours)
        arrays = [self.inputs[spec.name] for spec in self.signature.inputs]
        sizes = bind_symbols(self.signature.inputs, arrays)
        tolerance = rounding_tolerance(self.module, sizes, coarsest_roundoff(self.infos))
        unequal = _unequal_integers(names, found, ours)
        if not unequal and agree(found, ours, tolerance):
            return OutputCheck(True, error)
        judge = Judge(self.module, self.function, arrays, sizes, self.infos, self.run_seconds)
        faults = {name: judge.find_faults(outputs) for name, outputs in ((BYOC, ours), (engine, found))}
        if all(fault == () for fault in faults.values()):
            return OutputCheck(True, error)
        texts = [f"{name}: {fault.text}" for name, found_faults in faults.items() for fault in found_faults or ()]
        if texts:
            return OutputCheck(False, error, "; ".join(["wrong compared with the model in float64", *texts]))
        return OutputCheck(False, error, unequal or f"floats differ by more than {tolerance:.2g} of the largest float")


def _layout_problem(engine: str, names: Sequence[str], found: Sequence[NDArray], ours: Sequence[NDArray]) -> str:
    """Return the difference in number, shape or dtype; empty without."""
    if len(found) != len(ours):
        return f"{engine} returns {len(found)} outputs, {BYOC} {len(ours)}"
    for name, theirs, own in zip(names, found, ours, strict=True):
        layouts = [f"{dtype_name(array.dtype)} {list(array.shape)}" for array in (theirs, own)]
        if layouts[0] != layouts[1]:
            return f"output `{name}` is {layouts[0]} in {engine}, {layouts[1]} in {BYOC}"
    return ""


def _unequal_integers(names: Sequence[str], found: Sequence[NDArray], ours: Sequence[NDArray]) -> str:
    """Return the first difference of outputs without rounding; empty if all are equal."""
    for name, theirs, own in zip(names, found, ours, strict=True):
        if not is_float(dtype_name(own.dtype)) and (count := int(np.count_nonzero(theirs != own))):
            return f"output `{name}`: {count} of {own.size} elements differ, but without rounding all must be equal"
    return ""


def _max_error(found: Sequence[NDArray], ours: Sequence[NDArray]) -> float | None:
    """Return the largest distance of finite floats over the largest float of byoc's output; ``None`` without floats.

    The distance itself if byoc's output is zero everywhere.
    """
    errors = []
    for theirs, own in zip(found, ours, strict=True):
        if is_float(dtype_name(own.dtype)):
            left, right = theirs.astype(np.float64), own.astype(np.float64)
            finite = np.isfinite(left) & np.isfinite(right)
            distance = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
            largest = float(np.abs(right[finite]).max(initial=0.0))
            errors.append(distance / largest if largest else distance)
    return max(errors, default=None)
