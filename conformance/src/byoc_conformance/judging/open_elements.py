"""Elements about which the text of an op says nothing: no result is wrong there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import dtype_info, float_limits, is_float
from byoc_core.ir import Binding, TensorType

__all__ = ["is_left_open"]

NDArray = npt.NDArray[Any]


def is_left_open(binding: Binding, operands: Sequence[NDArray]) -> NDArray:
    """Gives for each element of the op's result, or one for all, whether the op leaves it open.

    Args:
        binding: the op.
        operands: in float64, or integers as they are.
    """
    rule = _OPEN.get(binding.op.name)
    return np.asarray(False) if rule is None else rule(binding, operands)


def _beyond_the_target(binding: Binding, operands: Sequence[NDArray]) -> NDArray:
    """A cast of a float to a type that cannot hold it: processors saturate, wrap around or give a fixed number."""
    (result,) = binding.results
    assert isinstance(result.type, TensorType)
    (x,), target = operands, result.type.dtype
    if x.dtype.kind != "f" or target == "bool":
        return np.asarray(False)
    if is_float(target):
        return np.abs(x) > float_limits(target).largest if target.startswith("float8") else np.asarray(False)
    bits, is_signed = dtype_info(target).bits, dtype_info(target).kind == "int"
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if is_signed else (0.0, 2.0**bits)
    whole = np.trunc(x)
    return ~((whole >= low) & (whole < high))


def _negative_shift(binding: Binding, operands: Sequence[NDArray]) -> NDArray:
    return np.asarray(operands[1] < 0)


def _nan(binding: Binding, operands: Sequence[NDArray]) -> NDArray:
    return np.isnan(operands[0])


def _power(binding: Binding, operands: Sequence[NDArray]) -> NDArray:
    """Zero to a negative integer."""
    x, y = operands
    return np.asarray((x == 0) & (y < 0)) if x.dtype.kind != "f" else np.asarray(False)


def _not_finite(binding: Binding, operands: Sequence[NDArray]) -> NDArray:
    x, y = operands
    return ~(np.isfinite(x) & np.isfinite(y)) if x.dtype.kind == "f" else np.asarray(False)


_OPEN: Mapping[str, Callable[[Binding, Sequence[NDArray]], NDArray]] = {
    "cast": _beyond_the_target,
    "power": _power,
    "mod": _not_finite,
    **dict.fromkeys(["left_shift", "right_shift"], _negative_shift),
    **dict.fromkeys(["nn.thresholded_relu", "nn.shrink", "nn.hard_sigmoid", "nn.hard_swish"], _nan),
}
