"""How far a right implementation of an op may be from its exact result: the rule of each op, and the rule's figures.

- *movement*: the op only moves data, so the result is bit for bit that of the reference kernel;
- *equal*: integers and truth values are those of the reference kernel;
- *ulp*: each element is within a number of units in the last place (ULP) of the result in float64;
- *sum*: each element is within ``gamma_K * sum |a||b|`` of it, ``gamma_K = K*u / (1 - K*u)``, ``K`` the number of
  operations behind an element (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1);
- *norm*: no bound is known for each element; the error follows from the condition of the op and from ``sqrt(K)``
  roundings of the result.

The conformance kit judges single ops by these bounds. Whole regions are judged by the error which these bounds cause
downstream: see :mod:`byoc_core.debugging.perturbing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, evaluate, symbols_of
from byoc_core.dtypes import dtype_info, is_float
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, TensorType

__all__ = ["NORMWISE", "Rule", "operations_per_element", "rule_of", "ulps_of", "unit_magnitude"]

NDArray = npt.NDArray[Any]
Magnitude = Callable[[NDArray, NDArray, Mapping[str, Any]], NDArray]


class Rule(Enum):
    """How much a right result of an op may be off."""

    MOVEMENT = "movement"
    EQUAL = "equal"
    ULP = "ulp"
    SUM = "sum"
    NORM = "norm"


_SELECTIONS = (
    "negative abs sign floor ceil round maximum minimum nn.relu nn.thresholded_relu max min sort topk "
    "nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d"
)
_ULPS: Mapping[str, float] = {
    # They give a number that their operand holds, or one that any floating-point type holds.
    **dict.fromkeys(_SELECTIONS.split(), 0.0),
    # IEEE 754 rounds them correctly. The ends of `clip` are rounded to the dtype.
    **dict.fromkeys(["add", "subtract", "multiply", "nn.bias_add", "nn.prelu", "clip", "cast"], 0.5),
    # The OpenCL C Specification 3.0, section 7.4, "Relative Error as ULPs", table "ULP values for single precision
    # built-in math functions" (of the full profile): what devices of all kinds keep. `mod` is `fmod`, and an addition
    # for the other sign.
    "divide": 2.5,
    "reciprocal": 2.5,
    "sqrt": 3.0,
    "exp": 3.0,
    "log": 3.0,
    "power": 16.0,
    "mod": 0.5,
    "erf": 16.0,
    "sin": 4.0,
    "cos": 4.0,
    "tan": 5.0,
    "asin": 4.0,
    "acos": 4.0,
    "atan": 5.0,
    "sinh": 4.0,
    "cosh": 4.0,
    "tanh": 5.0,
    "asinh": 4.0,
    "acosh": 4.0,
    "atanh": 5.0,
    # Formulas: the bounds of the functions in them, and half a unit for each other operation.
    "nn.leaky_relu": 1.0,
    "nn.shrink": 1.0,
    "nn.softsign": 4.0,
    "nn.hard_sigmoid": 2.0,
    "nn.hard_swish": 4.0,
    "sigmoid": 8.0,
    "nn.softplus": 8.0,
    "nn.elu": 8.0,
    "nn.selu": 8.0,
    "nn.celu": 8.0,
    "nn.swish": 10.0,
    "nn.gelu": 20.0,
    "nn.mish": 20.0,
}
"""The largest error of one element, in ULP of what :func:`unit_magnitude` gives for it, in 32 and 64 bits."""

_CHAINS = frozenset(
    {"power", "erf", "sigmoid", "nn.softsign", "nn.softplus", "nn.elu", "nn.selu", "nn.celu"}
    | {"nn.hard_swish", "nn.swish", "nn.gelu", "nn.mish"}
)
"""Functions and formulas of several steps, each of which may round."""


def _result_or_one(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(np.maximum(np.abs(y), 1.0))


def _result_or_operand(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(np.maximum(np.abs(y), np.abs(x)))


def _result_or_scale(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(np.maximum(np.abs(y), abs(attrs["alpha"] * attrs.get("gamma", 1.0))))


def _line(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(np.abs(attrs["alpha"] * x) + abs(attrs["beta"]))


_MAGNITUDES: Mapping[str, Magnitude] = {
    **dict.fromkeys(["sigmoid", "nn.softplus"], _result_or_one),
    **dict.fromkeys(["nn.gelu", "nn.mish", "nn.swish", "nn.hard_swish", "nn.shrink"], _result_or_operand),
    **dict.fromkeys(["nn.elu", "nn.selu", "nn.celu"], _result_or_scale),
    "nn.hard_sigmoid": _line,
}
"""Where terms of the op's formula cancel: the largest of them, from operand, result and attributes."""

NORMWISE = frozenset(f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose"))
"""Sums whose fast algorithms (Winograd, FFT) mix neighbours: stable for the whole result, not for each element
(Higham, chapter 23), so that the largest ``sum |a||b|`` counts for all."""

_SUMS = NORMWISE | {
    *("matmul", "nn.dense", "einsum", "sum", "mean", "cumsum"),
    *(f"nn.{kind}avg_pool{rank}d" for rank in (1, 2, 3) for kind in ("", "adaptive_")),
}

_COMPUTES_BY_ATTRIBUTE = frozenset({"nn.resize", "scatter_elements", "scatter_nd"})
"""Ops that count no operations, and compute under some values of their attributes."""


def rule_of(binding: Binding) -> Rule:
    """Return the rule for the results of an op."""
    name = binding.op.name
    dtypes = [result.type.dtype for result in binding.results if isinstance(result.type, TensorType)]
    if not any(map(is_float, dtypes)):
        # Rounding to an integer is another number where the quotient before it is off by one unit.
        return Rule.NORM if name == "quantize" else Rule.EQUAL
    if name in _SUMS:
        return Rule.SUM
    if name in _ULPS:
        return Rule.ULP
    moves = binding.op.flops(binding.cost_context()) == 0 and name not in _COMPUTES_BY_ATTRIBUTE
    return Rule.MOVEMENT if moves else Rule.NORM


def ulps_of(binding: Binding, dtype: str) -> float:
    """Return the bound of an op under :attr:`Rule.ULP`, for a result of that dtype.

    With fewer bits a unit is more: functions of 16 bits are within 2 ULP, or 4 for those of several steps, as in the
    OpenCL extension ``cl_khr_fp16``; in 8 bits nobody computes, and what comes from more is rounded once or twice.
    """
    name, bits = binding.op.name, dtype_info(dtype).bits
    narrow = {16: 4.0 if name in _CHAINS else 2.0, 8: 1.0}
    return min(_ULPS[name], narrow.get(bits, math.inf))


def unit_magnitude(binding: Binding, operands: Sequence[NDArray], exact: NDArray) -> NDArray:
    """Return the magnitude whose ULP count for each element: that of the result, or of larger terms that cancel in it.

    Args:
        binding: the op.
        operands: in float64.
        exact: the result in float64.
    """
    magnitude = _MAGNITUDES.get(binding.op.name)
    return np.abs(exact) if magnitude is None else magnitude(operands[0], exact, binding.attrs)


def operations_per_element(binding: Binding, sizes: Mapping[str, int]) -> float:
    """Return the floating-point operations of an op over the elements of its smallest result.

    Unknown sizes count as 1. Where an op does not state its operations, each element of a result may be a sum of
    products of all operands.
    """
    if not binding.op.states_flops:
        context = binding.cost_context()
        return max(1.0, 2.0 * sum(_size(context.operand_elements(i), sizes) for i in range(len(binding.operands))))
    elements = [
        math.prod(_size(dim, sizes) for dim in result.type.shape)
        for result in binding.results
        if isinstance(result.type, TensorType) and result.type.shape is not None
    ]
    return max(1.0, _size(binding.op.flops(binding.cost_context()), sizes) / max(1, min(elements, default=1)))


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate(dim, {**dict.fromkeys(symbols_of(dim), 1), **sizes})
    except IRTypeError:  # a quotient by a size that is 0
        return 1
