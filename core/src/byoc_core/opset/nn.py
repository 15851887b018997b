"""Activations of neural networks."""

from __future__ import annotations

from byoc_core.opset.elementwise import unary_op
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef
from byoc_core.opset.type_rules import NUMBER_KINDS, flops_per_element

__all__ = ["OPS"]

OPS: tuple[OpDef, ...] = (
    unary_op("nn.relu", "Gives ``max(x, 0)``; NaN stays NaN; a zero may have either sign.", kinds=NUMBER_KINDS),
    unary_op(
        "nn.leaky_relu",
        "Gives ``x`` where it is zero or more, else ``alpha * x``.",
        attrs=(AttrSpec("alpha", AttrKind.FLOAT, 0.01, doc="The slope below zero."),),
    ),
    unary_op(
        "nn.gelu",
        "Gives the Gaussian error linear unit: ``x/2 * (1 + erf(x / sqrt(2)))``, or its approximation "
        "``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))``.",
        attrs=(AttrSpec("approximate", AttrKind.STR, "none", ("none", "tanh"), doc="Which of the two formulas."),),
        flops=flops_per_element(5),
    ),
)
"""The family's ops."""
