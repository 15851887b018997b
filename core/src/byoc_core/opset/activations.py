"""Activations of neural networks beside those of :mod:`byoc_core.opset.nn`."""

from __future__ import annotations

from byoc_core.opset.elementwise import unary_op
from byoc_core.opset.functions import binary_op
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef
from byoc_core.opset.type_rules import NUMBER_KINDS, flops_per_element

__all__ = ["OPS"]


def _float(name: str, default: float, doc: str) -> AttrSpec:
    return AttrSpec(name, AttrKind.FLOAT, default, doc=doc)


def _activation(name: str, doc: str, flops: int, *attrs: AttrSpec) -> OpDef:
    return unary_op(name, doc, attrs=attrs, flops=flops_per_element(flops))


_NEGATIVE_SCALE = "The scale below zero."

OPS: tuple[OpDef, ...] = (
    _activation("nn.softplus", "Gives ``log(1 + exp(x))``.", 3),
    _activation("nn.softsign", "Gives ``x / (1 + |x|)``; 1 and -1 for the infinities.", 3),
    _activation(
        "nn.elu",
        "Gives ``x`` where it is zero or more, else ``alpha * (exp(x) - 1)``.",
        3,
        _float("alpha", 1.0, _NEGATIVE_SCALE),
    ),
    _activation(
        "nn.selu",
        "Gives ``gamma * x`` where ``x`` is zero or more, else ``gamma * alpha * (exp(x) - 1)``.",
        4,
        _float("alpha", 1.6732632423543772, _NEGATIVE_SCALE),
        _float("gamma", 1.0507009873554805, "The scale of all."),
    ),
    _activation(
        "nn.celu",
        "Gives ``max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)``.",
        7,
        _float("alpha", 1.0, "The scale below zero, of argument and result."),
    ),
    _activation(
        "nn.hard_sigmoid",
        "Gives ``alpha * x + beta`` limited to 0 to 1.",
        4,
        _float("alpha", 0.2, "The slope."),
        _float("beta", 0.5, "The value at zero."),
    ),
    _activation("nn.hard_swish", "Gives ``x`` times ``x/6 + 1/2`` limited to 0 to 1; 0 for minus infinity.", 5),
    _activation(
        "nn.swish",
        "Gives ``x * sigmoid(alpha * x)`` (SiLU for an ``alpha`` of 1); 0 where the sigmoid is 0.",
        6,
        _float("alpha", 1.0, "The scale of the sigmoid's argument."),
    ),
    _activation("nn.mish", "Gives ``x * tanh(log(1 + exp(x)))``; 0 for minus infinity.", 5),
    _activation(
        "nn.thresholded_relu",
        "Gives ``x`` where it is larger than ``alpha``, else 0.",
        1,
        _float("alpha", 1.0, "The threshold."),
    ),
    _activation(
        "nn.shrink",
        "Gives ``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, else 0.",
        2,
        _float("lambd", 0.5, "The half width of what becomes 0."),
        _float("bias", 0.0, "The step towards zero."),
    ),
    binary_op(
        "nn.prelu",
        "Gives ``x`` where it is zero or more, else ``slope * x``.",
        kinds=NUMBER_KINDS,
        operands=("x", "slope"),
    ),
)
"""The family's ops."""
