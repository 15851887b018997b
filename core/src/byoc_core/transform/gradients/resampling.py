"""Rules for resizing: the products with the matrix of the interpolation along each axis."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.transform.gradients.pullback import Derivative, Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]


def _resize(op: str) -> Derivative:
    """Return the derivative of an op interpolating along axes, one after the other.

    Resizing an identity matrix along its first axis yields the matrix of the interpolation along an axis.
    """

    def derivative(pullback: Pullback) -> Term:
        x, cotangent, attrs = pullback.operand(), pullback.cotangent(), pullback.attrs
        scales = attrs["scales"]
        for index, (axis, size) in enumerate(zip(attrs["axes"], attrs["sizes"], strict=True)):
            scale = None if scales is None else (scales[index],)
            of_axis = {**attrs, "axes": (0,), "sizes": (size,), "scales": scale}
            matrix = pullback.emitter.identity_matrix(x.shape[axis], x.dtype).apply(op, **of_axis)
            cotangent = cotangent.contract(axis, matrix)
        return cotangent

    return derivative


RULES: Mapping[str, Rule] = {op: by_operand(_resize(op)) for op in ("nn.resize", "nn.antialias_resize")}
"""The family's rules, by op."""
