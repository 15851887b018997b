"""Runs of a function with the rounding error allowed for each op: Monte Carlo arithmetic.

In each run every op's result is off by the op's own bound (:mod:`byoc_core.debugging.rounding`), with random signs;
subnormal numbers are flushed to zero or not, at random. The spread of the runs' results is the error of a right
implementation: the error of each op, and the error of the operands as magnified by the ops downstream. No rule for each
combination of ops is needed (Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.debugging.rounding import Rule, operations_per_element, rule_of, ulps_of, unit_magnitude
from byoc_core.dtypes import dtype_name, float_limits, is_float
from byoc_core.ir import Binding, IRModule, TensorType
from byoc_core.transform import evaluate_binding, evaluate_function

__all__ = ["run_perturbed"]

NDArray = npt.NDArray[Any]


def run_perturbed(
    module: IRModule,
    name: str,
    inputs: Sequence[NDArray],
    unit_roundoff: Callable[[str, str], float],
    generator: np.random.Generator,
) -> tuple[NDArray, ...]:
    """Return the results of a function in float64 with the largest allowed error in each op.

    Args:
        module: contains the function.
        name: the function.
        inputs: one array per parameter.
        unit_roundoff: return the relative error of one rounding in a dtype, in an op.
        generator: of the signs.

    Cost:
        Two to three evaluations of the function in float64.
    """
    noise = _Noise(unit_roundoff, generator)
    flushed = [noise.flush(array, dtype_name(array.dtype)) for array in inputs]
    return evaluate_function(module, name, flushed, exact=True, on_results=noise.perturb)


class _Noise:
    """A source of errors for the results of ops."""

    def __init__(self, unit_roundoff: Callable[[str, str], float], generator: np.random.Generator) -> None:
        self._unit_roundoff = unit_roundoff
        self._generator = generator

    def perturb(
        self, binding: Binding, operands: Sequence[NDArray], results: Sequence[NDArray], sizes: Mapping[str, int]
    ) -> tuple[NDArray, ...]:
        """Return the results of an op with errors as large as the op's bound."""
        rule = rule_of(binding)
        if rule in {Rule.MOVEMENT, Rule.EQUAL}:
            return tuple(results)
        types = [result.type for result in binding.results]
        return tuple(
            self.flush(self._with_error(binding, index, operands, result, sizes), type_.dtype)
            if isinstance(type_, TensorType) and is_float(type_.dtype)
            else result
            for index, (type_, result) in enumerate(zip(types, results, strict=True))
        )

    def flush(self, array: NDArray, dtype: str) -> NDArray:
        """Return the array with zeros in place of some subnormal numbers of a dtype."""
        if not is_float(dtype):
            return array
        magnitude = np.abs(array.astype(np.float64))
        is_subnormal = (magnitude > 0) & (magnitude < float_limits(dtype).smallest_normal)
        if not is_subnormal.any():
            return array
        is_flushed = is_subnormal & (self._generator.random(array.shape) < 0.5)
        return np.where(is_flushed, np.zeros((), array.dtype), array)

    def _with_error(
        self, binding: Binding, index: int, operands: Sequence[NDArray], result: NDArray, sizes: Mapping[str, int]
    ) -> NDArray:
        type_ = binding.results[index].type
        assert isinstance(type_, TensorType)
        unit = self._unit_roundoff(type_.dtype, binding.op.name)
        with np.errstate(all="ignore"):
            error = self._error(binding, index, operands, result, sizes, unit, type_.dtype)
            moved = result + error * self._generator.choice((-1.0, 1.0), result.shape)
            return np.where(np.isfinite(error) & np.isfinite(result), moved, result)

    def _error(
        self,
        binding: Binding,
        index: int,
        operands: Sequence[NDArray],
        result: NDArray,
        sizes: Mapping[str, int],
        unit: float,
        dtype: str,
    ) -> NDArray:
        """Return the error allowed for each element of a result."""
        if rule_of(binding) is Rule.ULP:
            return np.asarray(2 * ulps_of(binding, dtype) * unit * unit_magnitude(binding, operands, result))
        # Independent roundings grow by the square root of the count; one rounding of the operands shows the effect.
        error_growth = math.sqrt(operations_per_element(binding, sizes))
        rounded = evaluate_binding(binding, [self._rounded(operand, unit) for operand in operands], sizes)[index]
        own = 2 * error_growth * unit * np.abs(result)
        return own if rounded.shape != result.shape else np.asarray(own + error_growth * np.abs(rounded - result))

    def _rounded(self, operand: NDArray, unit: float) -> NDArray:
        """Return an operand off by one rounding; no implementation can distinguish the two."""
        if operand.dtype.kind != "f":
            return operand
        return np.asarray(operand * (1.0 + unit * self._generator.choice((-1.0, 1.0), operand.shape)))
