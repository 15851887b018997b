"""The importer of attention of separate or packed queries, keys and values (MultiHeadAttention)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.attention import read_scale
from byoc_msops.masks import MaskReader, add_terms
from byoc_msops.operands import join_heads, split_axis, split_heads

__all__ = ["IMPORTERS"]

_BIAS, _MASK, _TERM, _PAST = 3, 4, 5, 6


def _import_attention(node: NodeContext) -> Sequence[Imported]:
    """Import queries ``(B, S, H * D)`` with keys and values, or packed forms of rank 5.

    Keys and values of rank 4 are heads already, of an encoder, and get no bias.
    """
    for index in (8, 9):
        if node.has_input(index):
            raise node.error(f"has input {index}, of a cache shared by past and present, an unsupported feature")
    query, key, value = _read_operands(node, node.attr_int("num_heads"))
    batch, _, steps, _ = node.shape_of(query)
    offset: Dim = 0
    if node.has_input(_PAST) != node.has_input(_PAST + 1):
        raise node.error("has past keys or past values, but not both")
    if node.has_input(_PAST):
        past = node.value(_PAST), node.value(_PAST + 1)
        offset = node.shape_of(past[0])[2]
        key, value = (node.emit("concat", old, new, axis=2) for old, new in zip(past, (key, value), strict=True))
    total = node.shape_of(key)[2]
    reader = MaskReader(node, _MASK, query, (batch, steps, total), offset)
    mask = reader.read(node.attr_float("mask_filter_value", -10000.0))
    if node.has_input(_TERM):
        mask = add_terms(node, mask, node.value(_TERM))
    attrs: dict[str, object] = {"scale": read_scale(node)}
    if node.attr_flag("unidirectional") and steps != 1:  # a single step sees all keys
        if total != offset + steps:
            raise node.error("is unidirectional with other numbers of steps and keys", got=(steps, total - offset))
        attrs |= {"causal": True, "offset": offset}
    if node.num_outputs > 3:
        if "causal" in attrs:
            raise node.error("has the output of the scores, and is unidirectional", expected="only one")
        attrs["scores"] = "masked"
    operands = (query, key, value) if mask is None else (query, key, value, mask)
    result, *scores = node.emit_all("nn.attention", operands, attrs)
    return (join_heads(node, result), key, value, *scores)


def _read_operands(node: NodeContext, heads: int) -> tuple[Value, Value, Value]:
    """Return queries, keys and values as heads ``(B, H, S, D)``, after the addition of the bias."""
    if not node.has_input(1):
        query, key, value = (_with_flat_heads(node, part) for part in _unpacked(node, 0, 3))
    elif not node.has_input(2):
        query, (key, value) = node.value(0), (_with_flat_heads(node, part) for part in _unpacked(node, 1, 2))
    else:
        query, key, value = (node.value(index) for index in range(3))
    are_heads = len(node.shape_of(key)) == 4
    if are_heads and len(node.shape_of(value)) != 4:
        raise node.error("keys and values have different ranks", got=(4, len(node.shape_of(value))))
    parts = [query, key, value]
    if node.has_input(_BIAS):
        sizes = [_width(node, part) for part in parts]
        biases = split_axis(node, node.value(_BIAS), sizes, 0)
        biased = parts[:1] if are_heads else parts
        parts[: len(biased)] = [
            node.emit("nn.bias_add", part, bias, axis=2) for part, bias in zip(biased, biases, strict=False)
        ]
    forms = [
        part if len(node.shape_of(part)) == 4 else split_heads(node, part, heads, name)
        for part, name in zip(parts, ("the queries", "the keys", "the values"), strict=True)
    ]
    return forms[0], forms[1], forms[2]


def _width(node: NodeContext, part: Value) -> Dim:
    shape = node.shape_of(part)
    return shape[1] * shape[3] if len(shape) == 4 else shape[-1]


def _unpacked(node: NodeContext, index: int, count: int) -> tuple[Value, ...]:
    """Return the parts of an input ``(B, S, H, count, D)``, each ``(B, S, H, 1, D)``.

    Raises:
        FrontendError: the input has another shape.
    """
    shape = node.shape(index)
    if len(shape) != 5 or shape[3] != count:
        raise node.error(f"input {index} is not packed", got=shape, expected=f"(batch, steps, heads, {count}, size)")
    return split_axis(node, node.value(index), (1,) * count, 3)


def _with_flat_heads(node: NodeContext, part: Value) -> Value:
    batch, steps, heads, _, size = node.shape_of(part)
    return node.reshape(part, (batch, steps, heads * size))


IMPORTERS: Mapping[str, NodeImporter] = {"MultiHeadAttention": _import_attention}
"""The module's importers, by operator."""
