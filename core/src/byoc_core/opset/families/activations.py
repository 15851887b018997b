"""Activations of neural networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from byoc_core.kernels.error_function import erfc64
from byoc_core.kernels.memory import BLOCK_ELEMENTS, in_blocks
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset import value_bounds as bounds
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.families.elementwise_kernels import sigmoid
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef, Trait
from byoc_core.opset.pointwise import binary_op, unary_op
from byoc_core.opset.rounding import (
    EXACT,
    ROUNDED,
    Magnitude,
    OpenElements,
    Rounding,
    Rule,
    nan_is_open,
    result_or_one,
    result_or_operand,
)
from byoc_core.opset.type_rules import NUMBER_KINDS, flops_per_element
from byoc_core.opset.value_bounds import UNIT, BoundRule, ValueFacts

__all__ = ["OPS"]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715


def _relu(x: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Return ``max(x, 0)``; NaN stays NaN."""
    return np.asarray(np.maximum(x, np.zeros((), x.dtype), out=out)).astype(x.dtype, copy=False)


def _leaky_relu(x: NDArray, *, alpha: float) -> NDArray:
    """Return ``x`` if zero or more, else ``alpha * x``."""
    return np.asarray(np.where(x < 0, x * np.asarray(alpha, x.dtype), x))


def _gelu(x: NDArray, *, approximate: str, out: NDArray | None = None) -> NDArray:
    """Return the Gaussian error linear unit, computed in float64 and rounded once to the dtype of ``x``.

    ``approximate="none"`` is ``x * Phi(x)`` with the normal distribution's ``Phi`` (by ``erfc``, to keep the digits of
    the negative tail); ``"tanh"`` is ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3)))``.
    """
    if x.size > BLOCK_ELEMENTS and x.flags.c_contiguous:
        return in_blocks(_gelu, x, out, approximate=approximate)
    wide = x.astype(np.float64, copy=False)
    if approximate == "none":
        scale = 0.5 * erfc64(-_SQRT_HALF * wide)
    else:
        # (1 + tanh(u)) / 2 is sigmoid(2u), which does not cancel for negative u.
        scale = sigmoid(2.0 * _SQRT_TWO_OVER_PI * (wide + _GELU_CUBIC * wide**3))
    # The limit at minus infinity is zero, where the product would be NaN.
    return np.asarray(np.where(np.isneginf(wide), 0.0, wide * scale)).astype(x.dtype, copy=False)


def _rounded_once(function: Callable[..., Any]) -> NumpyKernel:
    """Return the kernel applying a function to ``x`` in float64 and rounding once."""

    def kernel(x: NDArray, *, out: NDArray | None = None, **attrs: float) -> NDArray:
        if x.size > BLOCK_ELEMENTS and x.flags.c_contiguous:
            return in_blocks(kernel, x, out, **attrs)
        return np.asarray(function(x.astype(np.float64, copy=False), **attrs)).astype(x.dtype, copy=False)

    return NumpyKernel(kernel, fresh=True, elementwise=True)


def _gated(x: NDArray, gate: NDArray) -> NDArray:
    """Return ``x * gate``; zero if the gate is zero, for infinite ``x`` too."""
    return np.asarray(np.where(gate == 0, 0.0, x * gate))


def _softplus(x: NDArray) -> NDArray:
    return np.asarray(np.logaddexp(x, 0.0))


def _softsign(x: NDArray) -> NDArray:
    return np.asarray(np.where(np.isinf(x), np.sign(x), x / (1.0 + np.abs(x))))


def _elu(x: NDArray, *, alpha: float) -> NDArray:
    return np.asarray(np.where(x < 0, alpha * np.expm1(x), x))


def _selu(x: NDArray, *, alpha: float, gamma: float) -> NDArray:
    return np.asarray(gamma * np.where(x < 0, alpha * np.expm1(x), x))


def _celu(x: NDArray, *, alpha: float) -> NDArray:
    return np.asarray(np.maximum(x, 0.0) + np.minimum(alpha * np.expm1(x / alpha), 0.0))


def _hard_sigmoid(x: NDArray, *, alpha: float, beta: float) -> NDArray:
    return np.asarray(np.clip(alpha * x + beta, 0.0, 1.0))


def _hard_swish(x: NDArray) -> NDArray:
    return _gated(x, np.clip(x / 6.0 + 0.5, 0.0, 1.0))


def _swish(x: NDArray, *, alpha: float) -> NDArray:
    return _gated(x, sigmoid(np.asarray(alpha * x)))


def _mish(x: NDArray) -> NDArray:
    return _gated(x, np.tanh(_softplus(x)))


def _thresholded_relu(x: NDArray, *, alpha: float) -> NDArray:
    return np.asarray(np.where(x <= alpha, 0.0, x))


def _shrink(x: NDArray, *, lambd: float, bias: float) -> NDArray:
    return np.asarray(np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, np.where(np.isnan(x), x, 0.0))))


def _prelu(x: NDArray, slope: NDArray) -> NDArray:
    """Return ``x`` if zero or more, else ``slope * x``."""
    return np.asarray(np.where(x < 0, x * slope, x))


def _result_or_scale(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(np.maximum(np.abs(y), abs(attrs["alpha"] * attrs.get("gamma", 1.0))))


def _line(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    return np.asarray(np.abs(attrs["alpha"] * x) + abs(attrs["beta"]))


def _softplus_bound(facts: ValueFacts) -> float:
    return (facts.bound(0) + 1) * (1 + 4 * UNIT)


def _elu_bound(facts: ValueFacts) -> float:
    scale = facts.magnitude_of("gamma") if "gamma" in facts.context.attrs else 1.0
    return scale * max(facts.bound(0), facts.magnitude_of("alpha")) * (1 + 32 * UNIT)


def _slope_bound(facts: ValueFacts) -> float:
    return facts.bound(0) * max(1.0, facts.magnitude_of("alpha")) * (1 + UNIT)


def _slopes_bound(facts: ValueFacts) -> float:
    return facts.bound(0) * max(1.0, facts.bound(1)) * (1 + UNIT)


def _float(name: str, default: float, doc: str) -> AttrSpec:
    return AttrSpec(name, AttrKind.FLOAT, default, doc=doc)


def _activation(
    name: str,
    doc: str,
    function: Callable[..., Any],
    *attrs: AttrSpec,
    flops: int,
    ulps: float,
    is_chain: bool = True,
    magnitude: Magnitude | None = None,
    open_elements: OpenElements | None = None,
    bound: BoundRule | None = None,
    onnx: str | None = None,
) -> OpDef:
    """Return an activation with a kernel computing in float64; ONNX has the same attributes."""
    defaults = {spec.name: float(str(spec.default)) for spec in attrs}
    return unary_op(
        name,
        doc,
        _rounded_once(function),
        attrs=attrs,
        flops=flops_per_element(flops),
        rounding=Rounding(Rule.ULP, ulps, is_chain, magnitude, open_elements=open_elements),
        bound=bound,
        onnx=None if onnx is None else OnnxSpelling(onnx, defaults),
    )


_NEGATIVE_SCALE = "The scale below zero."

OPS: tuple[OpDef, ...] = (
    unary_op(
        "nn.relu",
        "Return ``max(x, 0)``; NaN stays NaN; a zero may have either sign.",
        NumpyKernel(_relu, fresh=True, elementwise=True),
        kinds=NUMBER_KINDS,
        traits=frozenset({Trait.EITHER_ZERO}),
        rounding=EXACT,
        bound=bounds.bound_of_first,
        onnx="Relu",
    ),
    unary_op(
        "nn.leaky_relu",
        "Return ``x`` for ``x >= 0``, else ``alpha * x``.",
        NumpyKernel(_leaky_relu, fresh=True),
        attrs=(AttrSpec("alpha", AttrKind.FLOAT, 0.01, doc="The slope below zero."),),
        rounding=Rounding(Rule.ULP, 1.0),
        bound=_slope_bound,
        onnx=OnnxSpelling("LeakyRelu", {"alpha": 0.01}),
    ),
    unary_op(
        "nn.gelu",
        "Return the Gaussian error linear unit ``x/2 * (1 + erf(x / sqrt(2)))``, or the approximation "
        "``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))``.",
        NumpyKernel(_gelu, fresh=True, elementwise=True),
        attrs=(
            AttrSpec(
                "approximate",
                AttrKind.STR,
                "none",
                ("none", "tanh"),
                doc="``none``: the formula with ``erf``; ``tanh``: the approximation.",
            ),
        ),
        flops=flops_per_element(5),
        rounding=Rounding(Rule.ULP, 20.0, is_chain=True, magnitude=result_or_operand),
        bound=bounds.bound_towards_zero,
        more_cases=(example((2, 3), approximate="tanh"),),
    ),
    _activation(
        "nn.softplus",
        "Return ``log(1 + exp(x))``.",
        _softplus,
        flops=3,
        ulps=8.0,
        magnitude=result_or_one,
        bound=_softplus_bound,
        onnx="Softplus",
    ),
    _activation(
        "nn.softsign",
        "Return ``x / (1 + |x|)``; 1 and -1 for the infinities.",
        _softsign,
        flops=3,
        ulps=4.0,
        bound=bounds.bound_of_one,
        onnx="Softsign",
    ),
    _activation(
        "nn.elu",
        "Return ``x`` for ``x >= 0``, else ``alpha * (exp(x) - 1)``.",
        _elu,
        _float("alpha", 1.0, _NEGATIVE_SCALE),
        flops=3,
        ulps=8.0,
        magnitude=_result_or_scale,
        bound=_elu_bound,
        onnx="Elu",
    ),
    _activation(
        "nn.selu",
        "Return ``gamma * x`` for ``x >= 0``, else ``gamma * alpha * (exp(x) - 1)``.",
        _selu,
        _float("alpha", 1.6732632423543772, _NEGATIVE_SCALE),
        _float("gamma", 1.0507009873554805, "The scale of all results."),
        flops=4,
        ulps=8.0,
        magnitude=_result_or_scale,
        bound=_elu_bound,
        onnx="Selu",
    ),
    _activation(
        "nn.celu",
        "Return ``max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)``.",
        _celu,
        _float("alpha", 1.0, "The scale of argument and result below zero."),
        flops=7,
        ulps=8.0,
        magnitude=_result_or_scale,
        bound=_elu_bound,
        onnx="Celu",
    ),
    _activation(
        "nn.hard_sigmoid",
        "Return ``alpha * x + beta``, limited to the range 0 to 1.",
        _hard_sigmoid,
        _float("alpha", 0.2, "The slope."),
        _float("beta", 0.5, "The value at zero."),
        flops=4,
        ulps=2.0,
        is_chain=False,
        magnitude=_line,
        open_elements=nan_is_open,
        bound=bounds.bound_of_one,
        onnx="HardSigmoid",
    ),
    _activation(
        "nn.hard_swish",
        "Return ``x`` times ``x/6 + 1/2``, with the second factor limited to the range 0 to 1; 0 for minus infinity.",
        _hard_swish,
        flops=5,
        ulps=4.0,
        magnitude=result_or_operand,
        open_elements=nan_is_open,
        bound=bounds.bound_towards_zero,
        onnx="HardSwish",
    ),
    _activation(
        "nn.swish",
        "Return ``x * sigmoid(alpha * x)`` (SiLU for an ``alpha`` of 1); 0 if the sigmoid is 0.",
        _swish,
        _float("alpha", 1.0, "The scale of the sigmoid's argument."),
        flops=6,
        ulps=10.0,
        magnitude=result_or_operand,
        bound=bounds.bound_towards_zero,
        onnx="Swish",
    ),
    _activation(
        "nn.mish",
        "Return ``x * tanh(log(1 + exp(x)))``; 0 for minus infinity.",
        _mish,
        flops=5,
        ulps=20.0,
        magnitude=result_or_operand,
        bound=bounds.bound_towards_zero,
        onnx="Mish",
    ),
    unary_op(
        "nn.thresholded_relu",
        "Return ``x`` for ``x > alpha``, else 0.",
        _rounded_once(_thresholded_relu),
        attrs=(_float("alpha", 1.0, "The threshold."),),
        rounding=replace(EXACT, open_elements=nan_is_open),
        onnx=OnnxSpelling("ThresholdedRelu", {"alpha": 1.0}),
    ),
    _activation(
        "nn.shrink",
        "Return ``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, else 0.",
        _shrink,
        _float("lambd", 0.5, "Half the width of the interval mapped to 0."),
        _float("bias", 0.0, "The step towards zero."),
        flops=2,
        ulps=1.0,
        is_chain=False,
        magnitude=result_or_operand,
        open_elements=nan_is_open,
    ),
    binary_op(
        "nn.prelu",
        "Return ``x`` for ``x >= 0``, else ``slope * x``.",
        NumpyKernel(_prelu, fresh=True),
        kinds=NUMBER_KINDS,
        operands=("x", "slope"),
        rounding=ROUNDED,
        bound=_slopes_bound,
        cases=lambda: (example((2, 3), (3,)), example((2, 3, 4, 5), (3, 1, 1)), example((3,), ())),
        onnx="PRelu",
    ),
)
"""The family's ops."""
