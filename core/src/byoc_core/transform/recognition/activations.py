"""Decomposed forms of GELU, swish and hard swish."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from byoc_core.ir import Value
from byoc_core.pattern import Match, Pattern, is_const, is_op, wildcard
from byoc_core.transform.recognition.conditions import holds
from byoc_core.transform.rewriter import RewriteGraph, Rule, pattern_rule
from byoc_core.transform.tensors import dtype_of

__all__ = ["gelu_rules", "hard_swish_rules", "swish_rules"]


def gelu_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.gelu``, each with the root op of the pattern."""
    x = wildcard().named("x")
    scaled = is_op("divide")(x, is_const().named("sqrt_2")) | is_op("multiply")(x, is_const().named("sqrt_half"))
    for bell, build in ((is_op("erf")(scaled), _build_gelu), *((form, _build_tanh_gelu) for form in _tanh_forms(x))):
        for root, pattern in _half_products(x, is_op("add")(bell, is_const().named("one"))):
            yield root, pattern_rule(pattern, build)


def _half_products(x: Pattern, factor: Pattern) -> Iterator[tuple[str, Pattern]]:
    """Yield the forms of ``x * factor / 2``, each with its last op."""
    yield "multiply", is_op("multiply")(_halved(x), factor)
    yield "multiply", is_op("multiply")(x, _halved(factor))
    product = is_op("multiply")(x, factor)
    yield "multiply", is_op("multiply")(product, is_const().named("half"))
    yield "divide", is_op("divide")(product, is_const().named("two"))


def _halved(value: Pattern) -> Pattern:
    return is_op("multiply")(value, is_const().named("half")) | is_op("divide")(value, is_const().named("two"))


def _tanh_forms(x: Pattern) -> Iterable[Pattern]:
    """Yield the forms of ``tanh(sqrt(2/pi) * (x + 0.044715 * x**3))``."""
    factor, cubic = is_const().named("sqrt_2_over_pi"), is_const().named("cubic")
    square = is_op("multiply")(x, x) | is_op("power")(x, is_const().named("exponent"))
    growth = is_op("multiply")(is_op("multiply")(x, cubic), x) | is_op("multiply")(square, cubic)
    cube = is_op("power")(x, is_const().named("three")) | is_op("multiply")(x, square)
    scaled_cube = is_op("multiply")(cube, cubic) | is_op("multiply")(growth, x)
    yield is_op("tanh")(is_op("multiply")(is_op("add")(x, scaled_cube), factor))
    one_plus = is_op("add")(growth, is_const().named("unit"))
    yield is_op("tanh")(is_op("multiply")(is_op("multiply")(x, factor), one_plus))
    yield is_op("tanh")(is_op("multiply")(x, is_op("multiply")(one_plus, factor)))


def _build_gelu(match: Match, graph: RewriteGraph) -> Value | None:
    fits = holds(match, graph, sqrt_2=math.sqrt(2), sqrt_half=math.sqrt(0.5), one=1.0, half=0.5, two=2.0)
    return graph.emit("nn.gelu", (match["x"],)) if fits else None


def _build_tanh_gelu(match: Match, graph: RewriteGraph) -> Value | None:
    ideal = {"sqrt_2_over_pi": math.sqrt(2 / math.pi), "cubic": 0.044715}
    fits = holds(match, graph, **ideal, exponent=2.0, three=3.0, unit=1.0, one=1.0, half=0.5, two=2.0)
    return graph.emit("nn.gelu", (match["x"],), {"approximate": "tanh"}) if fits else None


def swish_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.swish``, each with the root op of the pattern."""
    x = wildcard().named("x")
    argument = is_op("multiply")(x, is_const().named("alpha")) | x
    yield "multiply", pattern_rule(is_op("multiply")(x, is_op("sigmoid")(argument)), _build_swish)
    denominator = is_op("add")(is_op("exp")(is_op("negative")(argument)), is_const().named("one"))
    yield "divide", pattern_rule(is_op("divide")(x, denominator), _build_swish)


def _build_swish(match: Match, graph: RewriteGraph) -> Value | None:
    alpha = graph.scalar(match["alpha"]) if "alpha" in match.captures else 1.0
    if alpha is None or not math.isfinite(alpha) or not holds(match, graph, one=1.0):
        return None
    return graph.emit("nn.swish", (match["x"],), {"alpha": alpha})


def hard_swish_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.hard_swish``, each with the root op of the pattern."""
    x = wildcard().named("x")
    gate = is_op("nn.hard_sigmoid")(x).named("gate")
    yield "multiply", pattern_rule(is_op("multiply")(x, gate), _build_gated)
    shifted = is_op("add")(x, is_const().named("shift"))
    limited = (
        is_op("clip")(shifted).named("clip")
        | is_op("minimum")(is_op("nn.relu")(shifted), is_const().named("limit"))
        | is_op("minimum")(is_op("maximum")(shifted, is_const().named("floor")), is_const().named("limit"))
        | is_op("clip")(is_op("nn.relu")(shifted)).named("cut")
    )
    for number, op in (("six", "divide"), ("sixth", "multiply")):
        constant = is_const().named(number)
        yield op, pattern_rule(is_op(op)(is_op("multiply")(x, limited), constant), _build_hard_swish)
        yield "multiply", pattern_rule(is_op("multiply")(x, is_op(op)(limited, constant)), _build_hard_swish)
        yield "multiply", pattern_rule(is_op("multiply")(is_op(op)(x, constant), limited), _build_hard_swish)


def _build_gated(match: Match, graph: RewriteGraph) -> Value | None:
    attrs = match.binding("gate").attrs
    slopes = (1 / 6,) if dtype_of(match["x"]) == "float64" else (1 / 6, float(np.float32(1 / 6)))
    fits = attrs["alpha"] in slopes and attrs["beta"] == 0.5
    return graph.emit("nn.hard_swish", (match["x"],)) if fits else None


def _build_hard_swish(match: Match, graph: RewriteGraph) -> Value | None:
    for name, lower_ends in (("clip", (0.0,)), ("cut", (None, 0.0))):
        attrs = match.binding(name).attrs if name in match.captures else None
        if attrs is not None and (attrs["max"] != 6.0 or attrs["min"] not in lower_ends):
            return None
    fits = holds(match, graph, shift=3.0, floor=0.0, limit=6.0, six=6.0, sixth=1 / 6)
    return graph.emit("nn.hard_swish", (match["x"],)) if fits else None
