"""Recognition of ops that exporters spell out: layer and RMS normalisation, softmax, GELU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import Constant, IRModule, TensorType, Value
from byoc_core.pattern import Match, Pattern, is_const, is_op, wildcard
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rule, Rules, pattern_rule, rewrite_module

__all__ = ["RECOGNISED_OPS", "RecogniseComposites"]

RECOGNISED_OPS = ("nn.layer_norm", "nn.softmax", "nn.gelu", "nn.rms_norm")
"""The ops that :class:`RecogniseComposites` can find."""


@dataclass(frozen=True)
class RecogniseComposites(Pass):
    """Replaces groups of ops that spell out one op by that op, where nothing else reads what lies between.

    - ``nn.layer_norm``: ``(x - mean(x)) / sqrt(mean((x - mean(x))**2) + epsilon) * gamma + beta`` over trailing axes;
      the square as a power or a product, the quotient as a quotient or a product with the reciprocal.
    - ``nn.rms_norm``: ``x / sqrt(mean(x**2) + epsilon) * gamma``, likewise.
    - ``nn.softmax``: ``exp(x - max(x)) / sum(exp(x - max(x)))`` along one axis. Without the shift by the maximum it
      overflows where ``nn.softmax`` does not, and is left alone.
    - ``nn.gelu``: ``x/2 * (1 + erf(x / sqrt(2)))`` and ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))``, with
      the factors in any order. Constants must be these numbers rounded to the dtype (or to float32 first, where the
      dtype is narrower). At minus infinity the spelled-out forms give NaN, ``nn.gelu`` its limit 0.

    The result is the same in real numbers. Values that stand twice must be one value: run
    ``EliminateCommonSubexpressions`` before.

    Attributes:
        ops: which ops to look for.
    """

    ops: Sequence[str] = RECOGNISED_OPS

    def __post_init__(self) -> None:
        for name in self.ops:
            if name not in RECOGNISED_OPS:
                hint = near_names(name, RECOGNISED_OPS) or None
                raise OptionsError("ops", f"`{name}` is not recognised", expected=", ".join(RECOGNISED_OPS), hint=hint)

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the module with single ops. Cost: linear."""
        # A layer norm holds an RMS norm of the centred values, so that is looked for last.
        first = tuple(name for name in self.ops if name != "nn.rms_norm")
        module = rewrite_module(module, _rules(first)) if first else module
        return rewrite_module(module, _rules(("nn.rms_norm",))) if "nn.rms_norm" in self.ops else module


@cache
def _rules(ops: tuple[str, ...]) -> Rules:
    rules: dict[str, list[Rule]] = {}
    for op in RECOGNISED_OPS:
        for root, rule in _RULES_OF[op]() if op in ops else ():
            rules.setdefault(root, []).append(rule)
    return rules


def _softmax_rules() -> Iterable[tuple[str, Rule]]:
    x = wildcard().named("x")
    powers = is_op("exp")(is_op("subtract")(x, is_op("max")(x).named("max")))
    pattern = is_op("divide")(powers, is_op("sum")(powers).named("sum"))
    yield "divide", pattern_rule(pattern, _build_softmax)


def _build_softmax(match: Match, graph: RewriteGraph) -> Value | None:
    axes = _kept_axes(match, "max")
    if axes is None or len(axes) != 1 or axes != _kept_axes(match, "sum"):
        return None
    return graph.emit("nn.softmax", (match["x"],), {"axis": axes[0]})


def _kept_axes(match: Match, capture: str) -> tuple[int, ...] | None:
    """Gives the axes of a reduction, counted from the front and in order; ``None`` unless they stay with size 1."""
    attrs: dict[str, Any] = dict(match.binding(capture).attrs)
    rank = _shape_rank(match["x"])
    if rank is None or not attrs["keepdims"]:
        return None
    return tuple(range(rank)) if attrs["axis"] is None else tuple(sorted(axis % rank for axis in attrs["axis"]))


def _shape_rank(value: Value) -> int | None:
    return value.type.rank if isinstance(value.type, TensorType) else None


def _layer_norm_rules() -> Iterable[tuple[str, Rule]]:
    x = wildcard().named("x")
    centred = is_op("subtract")(x, is_op("mean")(x).named("mean"))
    scaled = is_op("multiply")(_over_root_mean_square(centred), wildcard().named("gamma"))
    shifted = is_op("add", "nn.bias_add")(scaled, wildcard().named("beta"))
    rule = pattern_rule(shifted, _build_layer_norm)
    yield "add", rule
    yield "nn.bias_add", rule


def _rms_norm_rules() -> Iterable[tuple[str, Rule]]:
    pattern = is_op("multiply")(_over_root_mean_square(wildcard().named("x")), wildcard().named("gamma"))
    yield "multiply", pattern_rule(pattern, _build_rms_norm)


def _over_root_mean_square(value: Pattern) -> Pattern:
    """Gives the pattern of ``value / sqrt(mean(value**2) + epsilon)``."""
    square = is_op("power")(value, is_const().named("two")) | is_op("multiply")(value, value)
    mean_square = is_op("mean")(square).named("mean_square")
    spread = is_op("sqrt")(is_op("add")(mean_square, is_const().named("epsilon")))
    inverse = is_op("divide")(is_const().named("one"), spread) | is_op("reciprocal")(spread)
    return is_op("divide")(value, spread) | is_op("multiply")(value, inverse)


def _build_layer_norm(match: Match, graph: RewriteGraph) -> Value | None:
    rank = _shape_rank(match["x"])
    if _kept_axes(match, "mean") != _kept_axes(match, "mean_square"):
        return None
    if rank is None or (match.root.op.name == "nn.bias_add" and match.root.attrs["axis"] not in (-1, rank - 1)):
        return None
    return _build_norm("nn.layer_norm", match, graph, "gamma", "beta")


def _build_rms_norm(match: Match, graph: RewriteGraph) -> Value | None:
    return _build_norm("nn.rms_norm", match, graph, "gamma")


def _build_norm(op: str, match: Match, graph: RewriteGraph, *parameters: str) -> Value | None:
    axes, x, epsilon = _kept_axes(match, "mean_square"), match["x"].type, graph.scalar(match["epsilon"])
    if not axes or not isinstance(x, TensorType) or x.shape is None or axes != tuple(range(axes[0], len(x.shape))):
        return None
    if epsilon is None or not _holds(match, graph, two=2.0, one=1.0):
        return None
    inner = TensorType(x.shape[axes[0] :], x.dtype)
    operands = [match["x"]]
    for name in parameters:
        value = _without_leading_ones(match[name], inner, graph)
        if value is None:
            return None
        operands.append(value)
    return graph.emit(op, operands, {"axes": axes, "epsilon": epsilon})


def _without_leading_ones(value: Value, type_: TensorType, graph: RewriteGraph) -> Value | None:
    """Gives a value as one of this type: itself, or a constant without axes of size 1 in front; else ``None``."""
    if value.type == type_:
        return value
    array = graph.array(value)
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    if array is None or shape is None or type_.shape is None or len(shape) < len(type_.shape):
        return None
    front = len(shape) - len(type_.shape)
    if shape[front:] != type_.shape or set(shape[:front]) - {1}:
        return None
    return graph.const(array.reshape(array.shape[front:]))


def _gelu_rules() -> Iterable[tuple[str, Rule]]:
    x = wildcard().named("x")
    scaled = is_op("divide")(x, is_const().named("sqrt_2")) | is_op("multiply")(x, is_const().named("sqrt_half"))
    for bell, build in ((is_op("erf")(scaled), _build_gelu), *((form, _build_tanh_gelu) for form in _tanh_forms(x))):
        for pattern in _half_products(x, is_op("add")(bell, is_const().named("one"))):
            yield "multiply", pattern_rule(pattern, build)


def _half_products(x: Pattern, factor: Pattern) -> Iterable[Pattern]:
    """Yields the ways to write ``x * factor / 2``."""
    half = is_const().named("half")
    half_x = is_op("multiply")(x, half) | is_op("divide")(x, is_const().named("two"))
    half_factor = is_op("multiply")(factor, half)
    yield is_op("multiply")(half_x, factor)
    yield is_op("multiply")(is_op("multiply")(x, factor), half)
    yield is_op("multiply")(x, half_factor)


def _tanh_forms(x: Pattern) -> Iterable[Pattern]:
    """Yields the ways to write ``tanh(sqrt(2/pi) * (x + 0.044715 * x**3))``."""
    factor, cubic = is_const().named("sqrt_2_over_pi"), is_const().named("cubic")
    square = is_op("multiply")(x, x)
    cube = is_op("power")(x, is_const().named("three")) | is_op("multiply")(x, square)
    yield is_op("tanh")(is_op("multiply")(is_op("add")(x, is_op("multiply")(cube, cubic)), factor))
    growth = is_op("multiply")(is_op("multiply")(x, cubic), x) | is_op("multiply")(square, cubic)
    one_plus = is_op("add")(growth, is_const().named("unit"))
    yield is_op("tanh")(is_op("multiply")(is_op("multiply")(x, factor), one_plus))
    yield is_op("tanh")(is_op("multiply")(x, is_op("multiply")(one_plus, factor)))


def _build_gelu(match: Match, graph: RewriteGraph) -> Value | None:
    fits = _holds(match, graph, sqrt_2=math.sqrt(2), sqrt_half=math.sqrt(0.5), one=1.0, half=0.5, two=2.0)
    return graph.emit("nn.gelu", (match["x"],)) if fits else None


def _build_tanh_gelu(match: Match, graph: RewriteGraph) -> Value | None:
    ideal = {"sqrt_2_over_pi": math.sqrt(2 / math.pi), "cubic": 0.044715}
    fits = _holds(match, graph, **ideal, three=3.0, unit=1.0, one=1.0, half=0.5, two=2.0)
    return graph.emit("nn.gelu", (match["x"],), {"approximate": "tanh"}) if fits else None


def _holds(match: Match, graph: RewriteGraph, **ideal: float) -> bool:
    """Tells whether the captured constants are these numbers, rounded once; captures that are not there are passed."""
    return all(_is_rounded(match[name], graph, ideal[name]) for name in match.captures if name in ideal)


def _is_rounded(value: Value, graph: RewriteGraph, ideal: float) -> bool:
    number = graph.scalar(value)
    if number is None or not isinstance(value, Constant):
        return False
    dtype = to_numpy(value.type.dtype)
    steps = (dtype,) if dtype.itemsize >= 4 else (dtype, np.dtype(np.float32))
    return number in [float(np.array(ideal).astype(step).astype(dtype)) for step in steps]


_RULES_OF: dict[str, Callable[[], Iterable[tuple[str, Rule]]]] = {
    "nn.layer_norm": _layer_norm_rules,
    "nn.softmax": _softmax_rules,
    "nn.gelu": _gelu_rules,
    "nn.rms_norm": _rms_norm_rules,
}
