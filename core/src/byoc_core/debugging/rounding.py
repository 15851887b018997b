"""The allowed distance of a binding's result from the exact result, by the rounding stated by the op.

The rules are the rules of :mod:`byoc_core.opset.rounding`. The conformance kit judges single ops by these bounds. Whole
regions are judged by the error caused by these bounds downstream: see :mod:`byoc_core.debugging.perturbing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, evaluate, symbols_of
from byoc_core.dtypes import dtype_info, is_float
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, TensorType
from byoc_core.opset.rounding import MOVEMENT, NORM, Rounding, Rule

__all__ = ["Rule", "operations_per_element", "rounding_of", "rule_of", "ulps_of", "unit_magnitude"]

NDArray = npt.NDArray[Any]


def rounding_of(binding: Binding) -> Rounding:
    """Return the rounding stated by an op; by default movement for an op without FLOPs, and no bound for others."""
    if binding.op.rounding is not None:
        return binding.op.rounding
    return MOVEMENT if binding.op.flops(binding.context()) == 0 else NORM


def rule_of(binding: Binding) -> Rule:
    """Return the rule for the results of an op."""
    dtypes = [result.type.dtype for result in binding.results if isinstance(result.type, TensorType)]
    if any(map(is_float, dtypes)):
        return rounding_of(binding).rule
    return Rule.EQUAL if binding.op.rounding is None else binding.op.rounding.integers


def ulps_of(binding: Binding, dtype: str) -> float:
    """Return the bound of an op under :attr:`Rule.ULP`, for a result of a dtype.

    With fewer bits a unit is more: functions of 16 bits are within 2 ULP, or 4 for functions of several steps, as in
    the OpenCL extension ``cl_khr_fp16``; no hardware computes in 8 bits, and results of wider types are rounded once or
    twice.
    """
    rounding, bits = rounding_of(binding), dtype_info(dtype).bits
    narrow = {16: 4.0 if rounding.is_chain else 2.0, 8: 1.0}
    return min(rounding.ulps, narrow.get(bits, math.inf))


def unit_magnitude(binding: Binding, operands: Sequence[NDArray], exact: NDArray) -> NDArray:
    """Return the magnitude of the counted ULP, for each element: of the result, or of larger terms cancelling there.

    Args:
        binding: the op.
        operands: in float64.
        exact: the result in float64.
    """
    magnitude = rounding_of(binding).magnitude
    return np.abs(exact) if magnitude is None else magnitude(operands[0], exact, binding.attrs)


def operations_per_element(binding: Binding, sizes: Mapping[str, int]) -> float:
    """Return the floating-point operations of an op divided by the elements of the smallest result.

    Unknown sizes count as 1. If an op does not state the operations, each element of a result may be a sum of products
    of all operands.
    """
    if not binding.op.states_flops:
        context = binding.context()
        return max(1.0, 2.0 * sum(_size(context.operand_elements(i), sizes) for i in range(len(binding.operands))))
    elements = [
        math.prod(_size(dim, sizes) for dim in result.type.shape)
        for result in binding.results
        if isinstance(result.type, TensorType) and result.type.shape is not None
    ]
    return max(1.0, _size(binding.op.flops(binding.context()), sizes) / max(1, min(elements, default=1)))


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate(dim, {**dict.fromkeys(symbols_of(dim), 1), **sizes})
    except IRTypeError:  # division by a size of 0
        return 1
