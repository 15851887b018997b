"""Decomposed forms of attention: scaled and masked products, a softmax, repeated keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.ir import Binding, Trait, Value
from byoc_core.transform.rewriter import RewriteGraph, Rule
from byoc_core.transform.tensors import dtype_of, rank_of, shape_of

__all__ = ["attention_rules"]

_FLOATS = ("float32", "float64")
"""The dtypes of recognised attention."""

_MAX_STEPS = 6
"""The most ops of scaling and masking between the product and the softmax."""


def attention_rules() -> Iterable[tuple[str, Rule]]:
    """Yield the rules of ``nn.attention``, each with the root op of the pattern."""
    yield "matmul", _recognise


def _recognise(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Match ``softmax(query @ key.T * scale + mask) @ value``, starting from the last matrix product.

    Narrow floats stay decomposed: their stages are rounded separately, but ``nn.attention`` rounds once.
    """
    weights, value = binding.operands
    if rank_of(weights) != 4 or rank_of(value) != 4 or dtype_of(value) not in _FLOATS:
        return None
    scores = _find_scores(weights, graph)
    if scores is None:
        return None
    query, query_scale = _without_scale(scores.query, graph)
    keys = _find_keys(scores.keys, graph)
    if keys is None:
        return None
    heads = _shared_heads(query, keys, value, graph)
    if heads is None:
        return None
    key, value = heads[0].emit(graph), heads[1].emit(graph)
    scale = scores.scale * query_scale * keys.scale
    masks = [mask.emit(graph, dtype_of(query)) for mask in scores.masks]
    while len(masks) > 1:
        masks[:2] = [graph.emit("add", masks[:2])]
    operands = (query, key, value, *masks)
    return (graph.emit("nn.attention", operands, {"scale": scale}, schedule=binding.schedule),)


@dataclass(frozen=True, slots=True)
class _Mask:
    """A term to add to scores, or a condition for hiding scores.

    With a number ``hidden``, ``value`` is a condition: the number replaces the scores if the condition is false, or
    with ``hides_true`` if the condition is true.
    """

    value: Value
    hidden: float | None = None
    hides_true: bool = False

    def emit(self, graph: RewriteGraph, dtype: str) -> Value:
        """Return the mask as a term to add."""
        if self.hidden is None:
            return self.value
        hidden, shown = (graph.const(np.array(number).astype(to_numpy(dtype))) for number in (self.hidden, 0.0))
        return graph.emit("where", (self.value, hidden, shown) if self.hides_true else (self.value, shown, hidden))


@dataclass(frozen=True, slots=True)
class _Scores:
    """Scores in the form of a scaled product of queries and (transposed) keys, plus masks."""

    query: Value
    keys: Value
    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()

    def masked(self, mask: _Mask) -> _Scores | None:
        """Return the scores with a further mask; ``None`` if one of several masks puts a finite number over scores."""
        if self.masks and mask.hidden not in (None, -np.inf):
            return None
        if any(earlier.hidden not in (None, -np.inf) for earlier in self.masks):
            return None
        return replace(self, masks=(*self.masks, mask))


def _sole_use_producer(value: Value, graph: RewriteGraph, *ops: str) -> Binding | None:
    """Return the binding producing a value with a single read, if its op is among these ops."""
    return graph.maker(value, *ops) if graph.num_uses(value) == 1 else None


def _find_scores(weights: Value, graph: RewriteGraph) -> _Scores | None:
    """Return the scores under the softmax along the last axis producing the weights."""
    softmax = _sole_use_producer(weights, graph, "nn.softmax")
    if softmax is None or softmax.attrs["axis"] not in (-1, 3):
        return None
    return _read_scores(softmax.operands[0], graph, _MAX_STEPS)


def _read_scores(value: Value, graph: RewriteGraph, steps: int) -> _Scores | None:
    """Trace scaling and masking backwards up to the product of queries and keys."""
    producer = _sole_use_producer(value, graph, "matmul", "add", "where", "multiply", "divide")
    if producer is None or steps == 0:
        return None
    if producer.op.name == "matmul":
        query, keys = producer.operands
        return _Scores(query, keys) if rank_of(query) == rank_of(keys) == 4 else None
    for inner, read in _score_candidates(producer, graph):
        scores = _read_scores(inner, graph, steps - 1) if shape_of(inner) == shape_of(value) else None
        if scores is None:
            continue
        if isinstance(read, _Mask):
            return scores.masked(read)
        return None if scores.masks else replace(scores, scale=scores.scale * read)
    return None


def _score_candidates(producer: Binding, graph: RewriteGraph) -> Iterable[tuple[Value, _Mask | float]]:
    """Yield the candidates for scores among the operands, each with the effect of the op."""
    if producer.op.name == "add":
        left, right = producer.operands
        yield left, _Mask(right)
        yield right, _Mask(left)
    elif producer.op.name == "where":
        condition, if_true, if_false = producer.operands
        for scores, number, hides_true in ((if_true, if_false, False), (if_false, if_true, True)):
            hidden = graph.scalar(number)
            if hidden is not None and hidden in _hiding_numbers(dtype_of(scores)):
                yield scores, _Mask(condition, hidden, hides_true)
    else:
        inner, factor = _split_factor(producer, graph)
        if factor is not None:
            yield inner, factor


def _hiding_numbers(dtype: str) -> tuple[float, ...]:
    """Return the numbers left unchanged by adding any score."""
    return -np.inf, float(np.finfo(np.float64 if dtype == "float64" else np.float32).min)


def _split_factor(scaling: Binding, graph: RewriteGraph) -> tuple[Value, float | None]:
    """Return the operand scaled by a constant, and the factor; the factor is ``None`` without a constant."""
    left, right = scaling.operands
    if scaling.op.name == "divide":
        divisor = graph.scalar(right)
        return left, None if not divisor else 1 / divisor
    factor = graph.scalar(right)
    return (left, factor) if factor is not None else (right, graph.scalar(left))


def _without_scale(value: Value, graph: RewriteGraph) -> tuple[Value, float]:
    scaling = graph.maker(value, "multiply", "divide")
    inner, factor = (value, None) if scaling is None else _split_factor(scaling, graph)
    if factor is None or shape_of(inner) != shape_of(value):
        return value, 1.0
    return inner, factor


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys before their transpose; permuted by ``axes``, ``value`` has lengths before elements."""

    value: Value
    axes: tuple[int, ...]
    scale: float

    def emit(self, graph: RewriteGraph) -> Value:
        """Return the keys with lengths before elements."""
        if self.axes == (0, 1, 2, 3):
            return self.value
        return graph.emit("permute_dims", (self.value,), {"axes": self.axes})


def _find_keys(value: Value, graph: RewriteGraph) -> _Keys | None:
    """Return the keys before scaling and transposition."""
    value, outer = _without_scale(value, graph)
    transpose = graph.maker(value, "permute_dims")
    if transpose is None:
        return None
    axes_attr: Any = transpose.attrs["axes"]
    axes = (3, 2, 1, 0) if axes_attr is None else tuple(axis % 4 for axis in axes_attr)
    inner, scale = _without_scale(transpose.operands[0], graph)
    return _Keys(inner, (axes[0], axes[1], axes[3], axes[2]), outer * scale)


@dataclass(frozen=True, slots=True)
class _Heads:
    """Keys or values shared by groups of heads."""

    value: Value
    shape: tuple[Any, ...]
    keys: _Keys | None = None

    def emit(self, graph: RewriteGraph) -> Value:
        """Return the keys or values with the axes (B, G, T, D)."""
        if self.keys is not None:
            return self.keys.emit(graph)
        return self.value if shape_of(self.value) == self.shape else _reshape(graph, self.value, self.shape)


def _reshape(graph: RewriteGraph, value: Value, shape: tuple[Any, ...]) -> Value:
    return graph.emit("reshape", (value,), {"shape": shape})


def _shared_heads(query: Value, keys: _Keys, value: Value, graph: RewriteGraph) -> tuple[_Heads, _Heads] | None:
    """Return keys and values, without repeats if both are repeated alike; ``None`` if the shapes do not fit."""
    key_shape, value_shape, query_shape = shape_of(keys.value), shape_of(value), shape_of(query)
    if key_shape is None or value_shape is None or query_shape is None:
        return None
    turned = tuple(key_shape[axis] for axis in keys.axes)
    if not (turned[:3] == value_shape[:3] and turned[:2] == query_shape[:2] and turned[3] == query_shape[3]):
        return None
    plain = keys.axes == (0, 1, 2, 3)
    key_groups = _without_repeats(keys.value, graph) if plain else None
    value_groups = _without_repeats(value, graph)
    if key_groups is not None and value_groups is not None and key_groups.shape[1] == value_groups.shape[1]:
        return key_groups, value_groups
    return _Heads(keys.value, turned, keys), _Heads(value, value_shape)


def _without_repeats(value: Value, graph: RewriteGraph) -> _Heads | None:
    """Return keys or values ``(B, G, T, D)`` whose groups are each repeated consecutively in ``(B, H, T, D)``."""
    gather = graph.maker(value, "take")
    if gather is not None:
        return _without_gathered_repeats(gather, graph)
    joined = graph.maker(value, Trait.RESHAPING)
    parts = None if joined is None else graph.maker(joined.operands[0], "broadcast_to", "concat", "tile")
    if joined is None or parts is None or len(joined.operands) != 1:
        return None
    repeated_shape, shape = shape_of(value), shape_of(parts.results[0])
    single = parts.operands[0]
    if any(operand is not single for operand in parts.operands):
        return None
    if parts.op.name == "concat" and parts.attrs["axis"] not in (2, -3):
        return None
    if repeated_shape is None or shape is None or len(shape) != 5 or len(repeated_shape) != 4:
        return None
    batch, groups, repeats, length, size = shape
    if shape_of(single) != (batch, groups, 1, length, size) or repeated_shape != (
        batch,
        groups * repeats,
        length,
        size,
    ):
        return None
    expanded = graph.maker(single, Trait.RESHAPING)
    inner = single if expanded is None else expanded.operands[0]
    return _Heads(inner, (batch, groups, length, size))


def _without_gathered_repeats(gather: Binding, graph: RewriteGraph) -> _Heads | None:
    source, indices = gather.operands
    array, shape = graph.array(indices), shape_of(source)
    if array is None or shape is None or array.ndim != 1 or len(shape) != 4 or gather.attrs["axis"] not in (1, -3):
        return None
    groups = shape[1]
    if not isinstance(groups, int) or groups < 1 or array.size % groups or not array.size:
        return None
    in_turn = np.repeat(np.arange(groups), array.size // groups)
    return _Heads(source, shape) if np.array_equal(array.astype(np.int64), in_turn) else None
