"""The importer of attention with shared heads of keys and a cache (GroupQueryAttention).

The cache ``(B, G, C, D)`` holds the keys of the past, and gets the keys of the new steps of sequence ``b`` from
position ``seqlens_k[b] + 1 - S`` on. Step ``s`` stands at this position plus ``s``, and sees the keys up to its own.
Rows of the cache behind the keys, and steps behind the end of a sequence, are unspecified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from byoc_core.dims import Dim, dim_max
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import TensorType, Value

from byoc_msops.attention import read_scale
from byoc_msops.masks import add_terms
from byoc_msops.operands import cast_to, join_heads, number_like, size_value, split_axis, split_heads
from byoc_msops.rotary import rotate

__all__ = ["IMPORTERS"]

_PAST, _LENGTHS, _TOTAL, _CACHES, _POSITIONS, _TERM, _SINK = 3, 5, 6, (7, 8), 9, 10, 11
_UNSUPPORTED = {
    12: "the scales of quantised keys",
    13: "the scales of quantised values",
    14: "weights of norms of queries",
    15: "weights of norms of keys",
    16: "the lengths of queries",
}
"""Unsupported inputs."""


def _import_attention(node: NodeContext) -> Sequence[Imported]:
    _refuse_variants(node)
    query, key, value = _read_operands(node)
    steps = node.shape_of(query)[2]
    total = _read_total(node) if node.has_input(_PAST) else steps
    starts = _read_starts(node, steps)
    if node.attr_flag("do_rotary"):
        positions, interleaved = _read_positions(node, starts, steps, total), node.attr_flag("rotary_interleaved")
        query, key = (rotate(node, x, positions, _CACHES, interleaved=interleaved) for x in (query, key))
    else:
        node.ignore_attrs("rotary_interleaved")
    if node.has_input(_PAST):
        key, value = (_extended(node, _PAST + index, new, starts, total) for index, new in enumerate((key, value)))
    seen = [_front(node, cache, total) for cache in (key, value)]
    visible = None if _is_plain(node) else _visible(node, starts, steps, node.shape_of(seen[0])[2])
    result, *scores = _attend(node, query, seen[0], seen[1], visible)
    return (join_heads(node, result), key, value, *scores)


def _refuse_variants(node: NodeContext) -> None:
    for index, name in _UNSUPPORTED.items():
        if node.has_input(index):
            raise node.error(f"has {name} (input {index}), an unsupported feature")
    for name in ("k_quant_type", "v_quant_type"):
        if node.attr_string(name, "NONE") != "NONE":
            raise node.error(f"attribute `{name}` has an unsupported value", got=node.attr_string(name))
    if node.attr_flag("sliding_window_cache"):
        raise node.error("attribute `sliding_window_cache` has an unsupported value", got=1, expected=0)
    if node.has_input(_PAST) != node.has_input(_PAST + 1):
        raise node.error("has past keys or past values, but not both")
    node.ignore_attrs("kv_cache_bit_width", "qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon")


def _read_operands(node: NodeContext) -> tuple[Value, Value, Value]:
    """Return queries ``(B, H, S, D)``, and keys and values ``(B, G, S, D)``; without key input, the query has all."""
    heads, groups = node.attr_int("num_heads"), node.attr_int("kv_num_heads")
    if groups < 1 or heads < 1 or heads % groups:
        raise node.error("the numbers of heads do not fit", got=(heads, groups), expected="a multiple, and its divisor")
    if node.has_input(1) != node.has_input(2):
        raise node.error("has keys or values, but not both")
    if node.has_input(1):
        parts = [node.value(index) for index in range(3)]
    else:
        width = node.shape(0)[-1]
        size = width // (heads + groups * 2)
        parts = list(split_axis(node, node.value(0), (size * heads, size * groups, size * groups), 2))
    names = ("the queries", "the keys", "the values")
    query, key, value = (
        split_heads(node, part, count, name)
        for part, count, name in zip(parts, (heads, groups, groups), names, strict=True)
    )
    if node.shape_of(key)[2] != node.shape_of(query)[2]:
        raise node.error("has different numbers of queries and keys", got=node.shape(1), expected=node.shape(0))
    return query, key, value


def _read_total(node: NodeContext) -> Dim:
    """Return the largest number of keys of the batch, a number known from shapes or computed at run time."""
    shape_value = node.shape_value(_TOTAL)
    if shape_value is not None and shape_value.dims is not None and len(shape_value.dims) == 1:
        return shape_value.dims[0]
    number = cast_to(node, node.reshape(node.value(_TOTAL), ()), "int64")
    size = node.fresh_size("total")
    node.emit_all("as_size", (number,), {}, out_types=(TensorType((size, 0), "bool"),))
    return size


def _read_starts(node: NodeContext, steps: Dim) -> Value:
    """Return the number of earlier keys of each sequence, ``(B,)``; zero for shorter sequences than steps."""
    if len(node.shape(_LENGTHS)) not in (1, 2):
        raise node.error("input `seqlens_k` has the wrong rank", got=node.shape(_LENGTHS), expected="(batch,)")
    lengths = cast_to(node, node.reshape(node.value(_LENGTHS), (node.shape(0)[0],)), "int64")
    before = node.emit("subtract", lengths, size_value(node, steps - 1))
    return node.emit("maximum", before, node.constant(np.int64(0)))


def _read_positions(node: NodeContext, starts: Value, steps: Dim, total: Dim) -> Value:
    """Return the positions of all steps ``(B, S)``.

    Given positions count; in a first prompt only the first number counts, as in ONNX Runtime.
    """
    batch, own = node.shape(0)[0], node.emit("arange", stop=steps)
    if not node.has_input(_POSITIONS):
        return node.emit("add", node.reshape(starts, (batch, 1)), own)
    positions = cast_to(node, node.value(_POSITIONS), "int64")
    window = {"axes": (0, 1), "begin": (0, 0), "end": (1, 1), "strides": (1, 1)}
    first = node.emit_all("strided_slice", (positions,), dict(window))[0]
    prompt = node.emit("broadcast_to", node.emit("add", first, own), shape=(batch, steps))
    if steps == total:
        return prompt
    is_prompt = node.emit("equal", size_value(node, steps), size_value(node, total))
    return node.emit("where", is_prompt, prompt, positions)


def _extended(node: NodeContext, index: int, new: Value, starts: Value, total: Dim) -> Value:
    """Return the cache with new steps; the cache grows if there are more keys than rows."""
    past: Value = node.value(index)
    shape = node.shape(index)
    if len(shape) != 4:
        raise node.error(f"input {index}, the cache, has the wrong rank", got=shape, expected="(B, G, C, D)")
    if node.type(index).dtype != node.tensor_type(new).dtype:
        dtype = node.tensor_type(new).dtype
        raise node.error(f"input {index}, the cache, has another dtype", got=node.type(index).dtype, expected=dtype)
    added = dim_max(shape[2], total) - shape[2]
    if added != 0:
        rows = node.emit("broadcast_to", number_like(node, past, 0.0), shape=(*shape[:2], added, shape[3]))
        past = node.emit("concat", past, rows, axis=2)
    return node.emit("scatter_slice", past, new, starts, axis=2)


def _front(node: NodeContext, cache: Value, total: Dim) -> Value:
    """Return the first rows of a cache, without rows behind all keys."""
    if node.shape_of(cache)[2] == total:
        return cache
    return node.emit("strided_slice", cache, axes=(2,), begin=(0,), end=(total,), strides=(1,))


def _is_plain(node: NodeContext) -> bool:
    """Return whether the mask is the causal mask of ``nn.attention``; a sink would be hidden by this mask."""
    has_sink = node.has_input(_SINK) or node.attr_int("smooth_softmax", 0) > 0
    has_window = node.attr_int("local_window_size", -1) > 0
    is_masked = has_sink or has_window or node.has_input(_PAST) or node.attr_int("qk_output", 0) != 0
    return node.attr_flag("causal", default=True) and not is_masked


def _visible(node: NodeContext, starts: Value, steps: Dim, length: Dim) -> Value:
    """Return whether each step sees each key: ``(B, 1, S, length)``, or ``(B, 1, 1, length)`` without causality.

    A key is visible if not behind the step, and within the window before the step; without causality, if within the
    sequence. (Keys behind the sequence are behind its steps too.)
    """
    batch, window = node.shape(0)[0], node.attr_int("local_window_size", -1)
    keys = node.emit("arange", stop=length)
    if not node.attr_flag("causal", default=True):
        if window > 0:
            raise node.error("has a window without causality", got=window, expected=-1)
        lengths = cast_to(node, node.reshape(node.value(_LENGTHS), (batch, 1, 1, 1)), "int64")
        return node.emit("less_equal", keys, lengths)
    own = node.emit(
        "add", node.reshape(starts, (batch, 1, 1, 1)), node.reshape(node.emit("arange", stop=steps), (steps, 1))
    )
    visible = node.emit("less_equal", keys, own)
    if window > 0:
        oldest = node.emit("subtract", own, node.constant(np.int64(window)))
        visible = node.emit("logical_and", visible, node.emit("greater", keys, oldest))
    return visible


@dataclass(frozen=True)
class _Sink:
    """A key of score ``term`` and value zero, behind all keys: its exponential joins the sum of the softmax."""

    term: Value

    def extend(self, node: NodeContext, cache: Value) -> Value:
        batch, groups, _, size = node.shape_of(cache)
        row = node.emit("broadcast_to", number_like(node, cache, 0.0), shape=(batch, groups, 1, size))
        return node.emit("concat", cache, row, axis=2)

    def extend_mask(self, node: NodeContext, mask: Value) -> Value:
        batch, _, steps, length = node.shape_of(mask)
        heads = node.attr_int("num_heads")
        wide = node.emit("broadcast_to", mask, shape=(batch, heads, steps, length))
        column = node.emit("broadcast_to", self.term, shape=(batch, heads, steps, 1))
        return node.emit("concat", wide, column, axis=3)


def _read_sink(node: NodeContext, like: Value) -> _Sink | None:
    heads, smooth = node.attr_int("num_heads"), node.attr_int("smooth_softmax", 0) > 0
    if node.has_input(_SINK):
        return _Sink(node.reshape(cast_to(node, node.value(_SINK), node.tensor_type(like).dtype), (1, heads, 1, 1)))
    return _Sink(number_like(node, like, 0.0)) if smooth else None


def _attend(node: NodeContext, query: Value, key: Value, value: Value, visible: Value | None) -> tuple[Value, ...]:
    """Return the attention, and the scores requested by ``qk_output``: 0 for invisible keys.

    Args:
        node: the attention.
        query: the queries.
        key: the keys.
        value: the values.
        visible: whether a step sees a key; ``None``: the causal mask of ``nn.attention``.
    """
    stage = {0: None, 1: "masked", 2: "weights"}.get(node.attr_int("qk_output", 0), "")
    if stage == "" or (node.num_outputs > 3) != (stage is not None):
        problem = "attribute `qk_output` does not fit the number of outputs"
        raise node.error(problem, got=(node.attr_int("qk_output", 0), node.num_outputs))
    zero, lowest = (number_like(node, query, number) for number in (0.0, float("-inf")))
    mask: Value | None = None if visible is None else node.emit("where", visible, zero, lowest)
    if node.has_input(_TERM):
        mask = add_terms(node, mask, cast_to(node, node.value(_TERM), node.tensor_type(query).dtype))
    attrs: dict[str, object] = {"scale": read_scale(node), "softcap": node.attr_float("softcap", 0.0)}
    attrs |= {"causal": True} if visible is None else {"scores": stage}
    sink, length = _read_sink(node, query), node.shape_of(key)[2]
    if sink is not None and mask is not None:
        key, value, mask = sink.extend(node, key), sink.extend(node, value), sink.extend_mask(node, mask)
    operands = (query, key, value) if mask is None else (query, key, value, mask)
    result, *scores = node.emit_all("nn.attention", operands, attrs)
    if visible is None or not scores:
        return (result,)
    weights: Value = scores[0]
    if sink is not None:
        weights = node.emit("strided_slice", weights, axes=(3,), begin=(0,), end=(length,), strides=(1,))
    return result, node.emit("where", visible, weights, zero)


IMPORTERS: Mapping[str, NodeImporter] = {"GroupQueryAttention": _import_attention}
"""The module's importers, by operator."""
