"""Rules for activations of neural networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from byoc_core.transform.gradients.pullback import Pullback, Rule, elementwise
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]

_ROOT_HALF = math.sqrt(0.5)
_ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715


def _times(derivative: Callable[[Pullback, Term], Term]) -> Rule:
    """Return the rule of an activation from its derivative, a formula in attributes and operand."""
    return elementwise(lambda p: p.cotangent() * derivative(p, p.operand()))


def _below_zero(derivative: Callable[[Pullback, Term], Term]) -> Rule:
    """Return the rule of an activation with the derivative 1 from 0 on, and another below.

    The formula is evaluated at ``min(x, 0)``: its value for large ``x``, possibly infinite, must not appear in further
    derivatives.
    """

    def rule(pullback: Pullback) -> Term:
        x = pullback.operand()
        slope = derivative(pullback, x.apply("minimum", 0))
        return pullback.cotangent() * slope.where(x.apply("less", 0), 1)

    return elementwise(rule)


def _leaky_relu(pullback: Pullback) -> Term:
    cotangent = pullback.cotangent()
    return (cotangent * float(pullback.attrs["alpha"])).where(pullback.operand().apply("less", 0), cotangent)


def _selu(pullback: Pullback) -> Term:
    alpha, gamma, x = float(pullback.attrs["alpha"]), float(pullback.attrs["gamma"]), pullback.operand()
    slope = (x.apply("minimum", 0).apply("exp") * alpha).where(x.apply("less", 0), 1)
    return pullback.cotangent() * (slope * gamma)


def _gelu(pullback: Pullback, x: Term) -> Term:
    """Return ``Phi(x) + x * phi(x)`` with the normal distribution, or the derivative of the approximation."""
    if pullback.attrs["approximate"] == "none":
        distribution = ((x * _ROOT_HALF).apply("erf") + 1) * 0.5
        density = (x * x * -0.5).apply("exp") * (_ROOT_TWO_OVER_PI * 0.5)
        return distribution + x * density
    square = x * x
    argument = x * (square * _GELU_CUBIC + 1) * (2 * _ROOT_TWO_OVER_PI)
    slope = (square * (3 * _GELU_CUBIC) + 1) * (2 * _ROOT_TWO_OVER_PI)
    gate = argument.apply("sigmoid")
    return gate + x * gate * (1 - gate) * slope


def _softsign(pullback: Pullback) -> Term:
    divisor = pullback.operand().apply("abs") + 1
    return pullback.cotangent() / (divisor * divisor)


def _inside(x: Term, low: float, high: float) -> Term:
    """Return whether numbers lie between two others."""
    return x.apply("greater", low).apply("logical_and", x.apply("less", high))


def _hard_sigmoid(pullback: Pullback) -> Term:
    alpha, beta = float(pullback.attrs["alpha"]), float(pullback.attrs["beta"])
    return (pullback.cotangent() * alpha).where(_inside(pullback.operand() * alpha + beta, 0, 1))


def _hard_swish(pullback: Pullback, x: Term) -> Term:
    """Return 0 below -3, 1 above 3, and the slope of the parabola between."""
    above = x.convert(1).where(x.apply("greater", 0), 0)
    return (x / 3 + 0.5).where(_inside(x, -3, 3), above)


def _swish(pullback: Pullback, x: Term) -> Term:
    alpha = float(pullback.attrs["alpha"])
    gate = (x * alpha).apply("sigmoid")
    return gate + pullback.result() * (1 - gate) * alpha


def _mish(pullback: Pullback, x: Term) -> Term:
    gate = x.apply("nn.softplus").apply("tanh")
    return gate + x * (1 - gate * gate) * x.apply("sigmoid")


def _shrink(pullback: Pullback) -> Term:
    is_moved = pullback.operand().apply("abs").apply("greater", float(pullback.attrs["lambd"]))
    return pullback.cotangent().where(is_moved)


def _thresholded_relu(pullback: Pullback) -> Term:
    return pullback.cotangent().where(pullback.operand().apply("greater", float(pullback.attrs["alpha"])))


def _prelu(pullback: Pullback) -> Term:
    cotangent = pullback.cotangent()
    return (cotangent * pullback.operand(1)).where(pullback.operand(0).apply("less", 0), cotangent)


def _prelu_by_slope(pullback: Pullback) -> Term:
    return pullback.cotangent() * pullback.operand(0).apply("minimum", 0)


RULES: Mapping[str, Rule] = {
    "nn.relu": elementwise(lambda p: p.cotangent().where(p.operand().apply("greater", 0))),
    "nn.leaky_relu": elementwise(_leaky_relu),
    "nn.gelu": _times(_gelu),
    "nn.softplus": elementwise(lambda p: p.cotangent() * p.operand().apply("sigmoid")),
    "nn.softsign": elementwise(_softsign),
    "nn.elu": _below_zero(lambda p, x: x.apply("exp") * float(p.attrs["alpha"])),
    "nn.selu": elementwise(_selu),
    "nn.celu": _below_zero(lambda p, x: (x / float(p.attrs["alpha"])).apply("exp")),
    "nn.hard_sigmoid": elementwise(_hard_sigmoid),
    "nn.hard_swish": _times(_hard_swish),
    "nn.swish": _times(_swish),
    "nn.mish": _times(_mish),
    "nn.thresholded_relu": elementwise(_thresholded_relu),
    "nn.shrink": elementwise(_shrink),
    "nn.prelu": elementwise(_prelu, _prelu_by_slope),
}
"""The family's rules, by op."""
