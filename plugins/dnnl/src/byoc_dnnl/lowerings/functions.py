"""Functions of each element as computed by oneDNN, and the operands with results equal to the op's meaning.

oneDNN 3.2 computes some functions wrongly for NaN or infinities, and correctly for all other numbers, or up to some
magnitude. Such functions are used if the operand is proved to be in range (:mod:`byoc_dnnl.ranges`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from byoc_core.opset import LARGEST

from byoc_dnnl.capi import Algorithm
from byoc_dnnl.lowerings.attributes import choice, number
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.ranges import Need

__all__ = ["FINITE_ONLY", "FUNCTIONS", "functions_of", "needs_of", "scaled"]

Functions = tuple[PostOp, ...] | str
"""The post-ops that compute a function, in order; or the reason why oneDNN has none."""

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def scaled(factor: float) -> PostOp:
    """Return a multiplication by a number: the product plus minus zero, with the sign of the product."""
    return PostOp(Algorithm.ELTWISE_LINEAR, factor, beta=-0.0)


def _plain(algorithm: Algorithm, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Call], Functions]:
    return lambda _: (PostOp(algorithm, alpha, beta=beta),)


def _with_alpha(algorithm: Algorithm) -> Callable[[Call], Functions]:
    return lambda call: (PostOp(algorithm, number(call, "alpha")),)


def _hard_sigmoid(call: Call) -> Functions:
    return (PostOp(Algorithm.ELTWISE_HARDSIGMOID, number(call, "alpha"), beta=number(call, "beta")),)


def _relu(call: Call) -> Functions:
    if call.result.dtype == "float32":
        return (PostOp(Algorithm.ELTWISE_RELU),)
    # Nothing is proved for other dtypes. oneDNN's ReLU gives 0 for NaN; ELU propagates NaN.
    return PostOp(Algorithm.ELTWISE_ELU), PostOp(Algorithm.ELTWISE_ABS)


def _gelu(call: Call) -> Functions:
    is_exact = choice(call, "approximate", ("none", "tanh")) == "none"
    return (PostOp(Algorithm.ELTWISE_GELU_ERF if is_exact else Algorithm.ELTWISE_GELU_TANH),)


def _clip(call: Call) -> Functions:
    ends = {"min": -math.inf, "max": math.inf}
    ends.update((name, number(call, name)) for name in ends if call.attrs.get(name) is not None)
    with np.errstate(over="ignore"):
        low, high = (float(np.float32(end)) for end in ends.values())
    if not (low <= high and low <= _LARGEST_FLOAT32 and high >= -_LARGEST_FLOAT32):
        return "no number lies between minimum and maximum"
    limits = max(low, -_LARGEST_FLOAT32), min(high, _LARGEST_FLOAT32)
    return (PostOp(Algorithm.ELTWISE_CLIP, limits[0], beta=limits[1]),)


FUNCTIONS: Mapping[str, Callable[[Call], Functions]] = {
    "abs": _plain(Algorithm.ELTWISE_ABS),
    "clip": _clip,
    "negative": lambda _: (scaled(-1.0),),
    "nn.gelu": _gelu,
    "nn.hard_sigmoid": _hard_sigmoid,
    "nn.hard_swish": _plain(Algorithm.ELTWISE_HARDSWISH, 1 / 6, 1 / 2),
    "nn.leaky_relu": _with_alpha(Algorithm.ELTWISE_RELU),
    "nn.mish": _plain(Algorithm.ELTWISE_MISH),
    "nn.relu": _relu,
    "nn.swish": _with_alpha(Algorithm.ELTWISE_SWISH),
    "reciprocal": _plain(Algorithm.ELTWISE_POW, 1.0, -1.0),
    "round": _plain(Algorithm.ELTWISE_ROUND),
    "sigmoid": _plain(Algorithm.ELTWISE_LOGISTIC),
    "sqrt": _plain(Algorithm.ELTWISE_SQRT),
    "tanh": _plain(Algorithm.ELTWISE_TANH),
}

FINITE_ONLY: Mapping[str, float] = {
    "clip": LARGEST,  # NaN gives an end
    "maximum": LARGEST,  # a NaN of the first operand is lost
    "minimum": LARGEST,
    "nn.gelu": LARGEST / 2,  # NaN for infinities, and above 1.7e38
    "nn.hard_sigmoid": LARGEST,  # NaN gives 1
    "nn.hard_swish": LARGEST,  # minus infinity gives NaN
    "nn.leaky_relu": LARGEST,  # without a slope NaN gives 0
    "nn.mish": LARGEST,  # minus infinity gives NaN
    "nn.relu": LARGEST,  # NaN gives 0
    "nn.swish": LARGEST,  # minus infinity gives NaN
}
"""Ops computed correctly by oneDNN only up to some magnitude of the operands, with this magnitude; for the conformance
kit's bounds, and all implementations on x86-64.
"""


def functions_of(call: Call) -> Functions:
    """Return the post-ops for a function of each element, in order; or the reason why oneDNN has none."""
    return FUNCTIONS[call.op](call)


def needs_of(call: Call) -> Sequence[Need]:
    """Return the bounds to prove for a call's operands before oneDNN may compute the call."""
    if call.op == "quantize":  # NaN becomes 0; oneDNN does so in uint8 only
        return [(call.inputs[0], LARGEST)] if call.result.dtype == "int8" else ()
    if call.op not in FINITE_ONLY or (call.op == "nn.leaky_relu" and number(call, "alpha") != 0):
        return ()
    if call.op == "nn.relu" and call.result.dtype != "float32":
        return ()
    return [(operand, FINITE_ONLY[call.op]) for operand in call.inputs]
