"""The judgement of a placement's results: right up to rounding, or wrong.

The rule is the debugger's (:mod:`byoc_core.debugging.comparing`), for the whole model: results are compared with the
model in float64, and may be off by the roundings of the ops and their effects downstream. If float64 takes too long,
or an op has no reference kernel, results are compared with the results of another placement, by
:func:`rounding_tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter

import numpy as np

from byoc_core.backend import BackendInfo
from byoc_core.backend.info import stated_roundoff
from byoc_core.debugging import References, RegionFinding, Tolerance, compare_outputs
from byoc_core.debugging.rounding import operations_per_element
from byoc_core.dtypes import dtype_name, float_limits, is_float
from byoc_core.errors import ExecutionError
from byoc_core.ir import Binding, IRModule, TensorType
from byoc_core.runtime.module import NDArray

__all__ = ["Judge", "agree", "rounding_tolerance"]

_MAX_RUNS = 40
"""Runs of the reference kernels, at most, for a judgement by float64, in runs in the model's own dtypes."""
_MAX_SECONDS = 60.0
"""Seconds, at most, for a judgement by float64."""


class Judge:
    """A judge of results of a function on inputs.

    Args:
        module: the model.
        function: the function.
        inputs: one array for each parameter.
        sizes: the sizes of symbols.
        infos: the backends taking part: the coarsest of the stated roundings counts.
        run_seconds: of a run of the reference kernels, if known.

    Attributes:
        tolerance: see :func:`rounding_tolerance`.

    Cost: a run of the reference kernels, unless known to take long. The first judgement adds a run in float64; the
        first doubtful results add about thirty.
    """

    def __init__(
        self,
        module: IRModule,
        function: str,
        inputs: Sequence[NDArray],
        sizes: Mapping[str, int],
        infos: Sequence[BackendInfo],
        run_seconds: float = 0.0,
    ) -> None:
        keys = dict.fromkeys(key for info in infos for key in info.unit_roundoff)
        roundoffs = {key: max(info.unit_roundoff.get(key, 0.0) for info in infos) for key in keys}
        self.tolerance = rounding_tolerance(module, sizes, roundoffs)
        self._names = module[function].output_names
        self._references: References | None = None
        if run_seconds * _MAX_RUNS > _MAX_SECONDS:
            return
        start = perf_counter()
        try:
            is_finite_only = any(info.finite_only for info in infos)
            references = References(module, function, inputs, roundoffs, finite_only=is_finite_only)
        except ExecutionError:
            return
        if (perf_counter() - start) * _MAX_RUNS <= _MAX_SECONDS:
            self._references = references

    def accepts(self, results: Sequence[NDArray], reference_results: Sequence[NDArray]) -> bool:
        """Return whether results are right up to rounding.

        Args:
            results: to be judged.
            reference_results: right results, for a judgement without float64.
        """
        faults = self.find_faults(results)
        return agree(results, reference_results, self.tolerance) if faults is None else not faults

    def find_faults(self, results: Sequence[NDArray]) -> tuple[RegionFinding, ...] | None:
        """Return the faults of results compared with float64; ``None`` if a judgement by float64 is impossible."""
        if self._references is None:
            return None
        findings, _ = compare_outputs(results, self._names, self._references, Tolerance())
        return tuple(findings)


def rounding_tolerance(module: IRModule, sizes: Mapping[str, int], roundoffs: Mapping[str, float]) -> float:
    """Return the largest difference of two right results from different programs, relative to the largest element.

    Independent roundings add up as the square root of the count (Higham and Mary, 2019). The count is at most the sum
    of the operations behind an element over all ops: no path through the model has more. As in the debugger, four times
    this is accepted. Ops magnifying errors of operands are not covered, and bodies of loops count once.

    Args:
        module: the model.
        sizes: the sizes of symbols.
        roundoffs: of backends, as in ``BackendInfo.unit_roundoff``.
    """
    count, coarsest = 0.0, 0.0
    for function in module.functions.values():
        for binding in function.walk():
            if not binding.regions:
                count += operations_per_element(binding, sizes)
                coarsest = max(coarsest, *_roundoffs(binding, roundoffs), 0.0)
    return Tolerance().factor * math.sqrt(max(count, 1.0)) * 2 * coarsest


def _roundoffs(binding: Binding, roundoffs: Mapping[str, float]) -> list[float]:
    types = (result.type for result in binding.results)
    dtypes = [type_.dtype for type_ in types if isinstance(type_, TensorType) and is_float(type_.dtype)]
    return [
        max(stated_roundoff(roundoffs, dtype, binding.op.name), float_limits(dtype).unit_roundoff) for dtype in dtypes
    ]


def agree(left: Sequence[NDArray], right: Sequence[NDArray], tolerance: float) -> bool:
    """Return whether results have equal shapes, and floats agree up to a tolerance.

    Integers are not compared: a rounding may change the place of a maximum.

    Args:
        left: results.
        right: results with the same dtypes.
        tolerance: relative to the largest finite element of each result on the right.
    """
    for own, other in zip(left, right, strict=True):
        if own.shape != other.shape:
            return False
        if not is_float(dtype_name(own.dtype)) or not own.size:
            continue
        ours, theirs = own.astype(np.float64), other.astype(np.float64)
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
        smallest = float_limits(dtype_name(own.dtype)).smallest_normal
        if not np.allclose(ours, theirs, rtol=0, atol=tolerance * largest + smallest, equal_nan=True):
            return False
    return True
