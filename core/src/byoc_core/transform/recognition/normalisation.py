"""Decomposed forms of layer normalisation, RMS normalisation and softmax."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.ir import Constant, TensorType, Value
from byoc_core.pattern import Match, Pattern, is_const, is_op, wildcard
from byoc_core.transform.recognition.conditions import holds, is_computed_in, kept_axes
from byoc_core.transform.rewriter import RewriteGraph, Rule, pattern_rule
from byoc_core.transform.tensors import dtype_of, rank_of, shape_of

__all__ = [
    "layer_norm_rules",
    "plain_layer_norm_rules",
    "plain_rms_norm_rules",
    "rms_norm_rules",
    "scaled_layer_norm_rules",
    "softmax_rules",
]


def softmax_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.softmax``, each with the root op of the pattern."""
    x = wildcard().named("x")
    powers = is_op("exp")(is_op("subtract")(x, is_op("max")(x).named("max")))
    total = is_op("sum")(powers).named("sum")
    yield "divide", pattern_rule(is_op("divide")(powers, total), _build_softmax)
    inverse = is_op("reciprocal")(total) | is_op("divide")(is_const().named("one"), total)
    yield "multiply", pattern_rule(is_op("multiply")(powers, inverse), _build_softmax)


def _build_softmax(match: Match, graph: RewriteGraph) -> Value | None:
    axes = kept_axes(match, "max")
    if axes is None or len(axes) != 1 or axes != kept_axes(match, "sum") or not holds(match, graph, one=1.0):
        return None
    return graph.emit("nn.softmax", (match["x"],), {"axis": axes[0]})


class _Norm:
    """The parts of a normalisation over the root mean square of ``value``, for composing patterns."""

    def __init__(self, value: Pattern) -> None:
        self.value = value
        square = is_op("power")(value, is_const().named("two")) | is_op("multiply")(value, value)
        variance = is_op("add")(is_op("mean")(square).named("mean_square"), is_const().named("epsilon"))
        root = is_op("sqrt")(variance) | is_op("power")(variance, is_const().named("half"))
        self.inverse = (
            is_op("divide")(is_const().named("one"), root)
            | is_op("reciprocal")(root)
            | is_op("power")(variance, is_const().named("minus_half"))
        )
        self.quotient = is_op("divide")(value, root)
        self.product = is_op("multiply")(value, self.inverse)
        self.normalised = self.quotient | self.product
        self.gamma = wildcard().named("gamma")
        self.factor = is_op("multiply")(self.inverse, self.gamma)
        self.scaled = is_op("multiply")(self.normalised, self.gamma) | is_op("multiply")(value, self.factor)


def _centred() -> tuple[Pattern, Pattern, Pattern]:
    """Return the patterns of ``x``, its mean, and ``x - mean``."""
    x = wildcard().named("x")
    mean = is_op("mean")(x).named("mean")
    return x, mean, is_op("subtract")(x, mean)


def layer_norm_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.layer_norm`` with scale and shift, each with the root op of the pattern."""
    x, mean, centred = _centred()
    norm, beta = _Norm(centred), wildcard().named("beta")
    rule = pattern_rule(is_op("add", "nn.bias_add")(norm.scaled, beta), _build_layer_norm)
    yield "add", rule
    yield "nn.bias_add", rule
    # The form of Keras: the mean is scaled together with x, not subtracted first.
    shift = is_op("subtract")(beta, is_op("multiply")(mean, norm.factor))
    yield "add", pattern_rule(is_op("add")(is_op("multiply")(x, norm.factor), shift), _build_layer_norm)


def scaled_layer_norm_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.layer_norm`` without shift."""
    yield "multiply", pattern_rule(_Norm(_centred()[2]).scaled, _build_layer_norm)


def plain_layer_norm_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.layer_norm`` without scale and shift."""
    norm = _Norm(_centred()[2])
    yield "divide", pattern_rule(norm.quotient, _build_layer_norm)
    yield "multiply", pattern_rule(norm.product, _build_layer_norm)


def rms_norm_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.rms_norm`` with scale, each with the root op of the pattern."""
    x = wildcard().named("x")
    yield "multiply", pattern_rule(_Norm(x).scaled, _build_rms_norm)
    wide = _Norm(is_op("cast")(x).named("wide"))
    narrow = is_op("cast")(wide.normalised)
    yield "multiply", pattern_rule(is_op("multiply")(narrow, wide.gamma), _build_rms_norm)


def plain_rms_norm_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.rms_norm`` without scale."""
    norm = _Norm(wildcard().named("x"))
    yield "divide", pattern_rule(norm.quotient, _build_rms_norm)
    yield "multiply", pattern_rule(norm.product, _build_rms_norm)


def _build_layer_norm(match: Match, graph: RewriteGraph) -> Value | None:
    rank = rank_of(match["x"])
    if rank is None or kept_axes(match, "mean") != kept_axes(match, "mean_square"):
        return None
    if match.root.op.name == "nn.bias_add" and match.root.attrs["axis"] not in (-1, rank - 1):
        return None
    return _build_norm("nn.layer_norm", match, graph, gamma=1.0, beta=0.0)


def _build_rms_norm(match: Match, graph: RewriteGraph) -> Value | None:
    if "wide" in match.captures and not is_computed_in(dtype_of(match["x"]), dtype_of(match["wide"])):
        return None
    return _build_norm("nn.rms_norm", match, graph, gamma=1.0)


def _build_norm(op: str, match: Match, graph: RewriteGraph, **parameters: float) -> Value | None:
    """Emit a normalisation; a parameter missing in the match is filled with the given number."""
    axes, shape, epsilon = kept_axes(match, "mean_square"), shape_of(match["x"]), graph.scalar(match["epsilon"])
    if not axes or shape is None or axes != tuple(range(axes[0], len(shape))) or epsilon is None:
        return None
    if not holds(match, graph, two=2.0, one=1.0, half=0.5, minus_half=-0.5):
        return None
    inner = TensorType(shape[axes[0] :], dtype_of(match["x"]))
    operands = [match["x"]]
    for name, number in parameters.items():
        captured = match.captures.get(name)
        value = _filled(inner, number, graph) if captured is None else _without_leading_ones(captured, inner, graph)
        if value is None:
            return None
        operands.append(value)
    return graph.emit(op, operands, {"axes": axes, "epsilon": epsilon})


def _filled(type_: TensorType, number: float, graph: RewriteGraph) -> Constant | None:
    sizes = [size for size in type_.shape or () if isinstance(size, int)]
    dtype = to_numpy(type_.dtype)
    if type_.shape is None or len(sizes) != len(type_.shape) or not graph.may_add(prod(sizes) * dtype.itemsize):
        return None
    return graph.const(np.full(sizes, number, dtype))


def _without_leading_ones(value: Value, type_: TensorType, graph: RewriteGraph) -> Value | None:
    """Return a value of this type: the value itself, or a constant without leading axes of size 1; else ``None``."""
    if value.type == type_:
        return value
    array, shape = graph.array(value), shape_of(value)
    if array is None or shape is None or type_.shape is None or len(shape) < len(type_.shape):
        return None
    front = len(shape) - len(type_.shape)
    if shape[front:] != type_.shape or set(shape[:front]) - {1}:
        return None
    return graph.const(array.reshape(array.shape[front:]))
