"""Rules for elementwise arithmetic, functions of a number, casts, and choices between values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from byoc_core.transform.gradients.pullback import Derivative, Pullback, Rule, constant_between_steps, elementwise
from byoc_core.transform.gradients.terms import Term, choose

__all__ = ["RULES"]

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


_Formula = Callable[[Term], Term]


def _times(of_operand: _Formula) -> Rule:
    """Return the rule of a function of a number from its derivative, a formula in the operand."""
    return elementwise(lambda p: p.cotangent() * of_operand(p.operand()))


def _times_result(of_result: _Formula) -> Rule:
    """Return the rule of a function of a number from its derivative, a formula in the result."""
    return elementwise(lambda p: p.cotangent() * of_result(p.result()))


def _over(of_operand: _Formula) -> Rule:
    """Return the rule of a function of a number from the inverse of its derivative, a formula in the operand."""
    return elementwise(lambda p: p.cotangent() / of_operand(p.operand()))


def _keep(pullback: Pullback) -> Term:
    return pullback.cotangent()


def _negate(pullback: Pullback) -> Term:
    return -pullback.cotangent()


def _times_operand(index: int) -> Derivative:
    return lambda p: p.cotangent() * p.operand(index)


def _divide_by_divisor(pullback: Pullback) -> Term:
    return -(pullback.cotangent() * pullback.result() / pullback.operand(1))


def _share_of_extreme(op: str, index: int) -> Derivative:
    """Return the derivative of an extreme by an operand; of two equal numbers, each has half of the cotangent."""

    def derivative(pullback: Pullback) -> Term:
        own, other, cotangent = pullback.operand(index), pullback.operand(1 - index), pullback.cotangent()
        half = (cotangent * 0.5).where(own.apply("equal", other))
        return cotangent.where(own.apply(op, other), half)

    return derivative


def _power_by_base(pullback: Pullback) -> Term:
    """Return ``y * x ** (y - 1)``: 0 for an exponent of 0, even for a base of 0."""
    base, exponent = pullback.operand(0), pullback.operand(1)
    is_zero = exponent.apply("equal", 0)
    reduced = choose(is_zero, exponent.convert(1), exponent - 1)
    return pullback.cotangent() * (exponent * base.apply("power", reduced))


def _power_by_exponent(pullback: Pullback) -> Term:
    """Return ``x ** y * log(x)``: 0 for a base of 0 and a positive exponent."""
    base = pullback.operand(0)
    logarithm = choose(base.apply("equal", 0), base.convert(1), base).apply("log")
    return pullback.cotangent() * (pullback.result() * logarithm)


def _remainder_by_divisor(pullback: Pullback) -> Term:
    """Return the negated whole quotient; the rounding removes the error of the division."""
    quotient = (pullback.operand(0) - pullback.result()) / pullback.operand(1)
    return -(pullback.cotangent() * quotient.apply("round"))


def _clip(pullback: Pullback) -> Term:
    """Return the cotangent inside the limits, and at the limits."""
    cotangent, x = pullback.cotangent(), pullback.operand()
    for name, op in (("min", "greater_equal"), ("max", "less_equal")):
        limit = pullback.attrs[name]
        if limit is not None:
            cotangent = cotangent.where(x.apply(op, float(limit)))
    return cotangent


def _choose_x(pullback: Pullback) -> Term:
    return pullback.cotangent().where(pullback.operand(0))


def _choose_y(pullback: Pullback) -> Term:
    cotangent = pullback.cotangent()
    return choose(pullback.operand(0), cotangent.convert(0), cotangent)


def _cast(pullback: Pullback) -> Term:
    return pullback.cotangent().cast(pullback.operand().dtype)


RULES: Mapping[str, Rule] = {
    "add": elementwise(_keep, _keep),
    "subtract": elementwise(_keep, _negate),
    "multiply": elementwise(_times_operand(1), _times_operand(0)),
    "divide": elementwise(lambda p: p.cotangent() / p.operand(1), _divide_by_divisor),
    "maximum": elementwise(_share_of_extreme("greater", 0), _share_of_extreme("greater", 1)),
    "minimum": elementwise(_share_of_extreme("less", 0), _share_of_extreme("less", 1)),
    "power": elementwise(_power_by_base, _power_by_exponent),
    "mod": elementwise(_keep, _remainder_by_divisor),
    "negative": elementwise(_negate),
    "abs": _times(lambda x: x.apply("sign")),
    "exp": _times_result(lambda y: y),
    "log": _over(lambda x: x),
    "sqrt": elementwise(lambda p: p.cotangent() / (p.result() * 2)),
    "tanh": _times_result(lambda y: 1 - y * y),
    "sigmoid": _times_result(lambda y: y * (1 - y)),
    "erf": _times(lambda x: (-(x * x)).apply("exp") * _TWO_OVER_ROOT_PI),
    "reciprocal": _times_result(lambda y: -(y * y)),
    "sin": _times(lambda x: x.apply("cos")),
    "cos": _times(lambda x: -x.apply("sin")),
    "tan": _times_result(lambda y: 1 + y * y),
    "asin": _over(lambda x: ((1 - x) * (1 + x)).apply("sqrt")),
    "acos": _over(lambda x: -((1 - x) * (1 + x)).apply("sqrt")),
    "atan": _over(lambda x: 1 + x * x),
    "sinh": _times(lambda x: x.apply("cosh")),
    "cosh": _times(lambda x: x.apply("sinh")),
    "asinh": _over(lambda x: (1 + x * x).apply("sqrt")),
    "acosh": _over(lambda x: ((x - 1) * (x + 1)).apply("sqrt")),
    "atanh": _over(lambda x: (1 - x) * (1 + x)),
    "floor": constant_between_steps,
    "ceil": constant_between_steps,
    "round": constant_between_steps,
    "sign": constant_between_steps,
    "clip": elementwise(_clip),
    "cast": elementwise(_cast),
    "where": elementwise(None, _choose_x, _choose_y),
}
"""The family's rules, by op."""
