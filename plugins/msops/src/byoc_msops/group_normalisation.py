"""Importers of normalisation of groups of channels, with an activation (GroupNorm, SkipGroupNorm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.image_attributes import channels_first, channels_last
from byoc_msops.operands import cast_to

__all__ = ["IMPORTERS"]


def _normalise(node: NodeContext, x: Value) -> Value:
    """Return the normalised image, with channels last by default; parameters may be float32 beside float16."""
    is_last, groups = node.attr_flag("channels_last", default=True), node.attr_int("groups")
    activation = node.attr_int("activation")
    if activation not in (0, 1):
        raise node.error("attribute `activation` is unknown", got=activation, expected="0 or 1")
    dtype = node.tensor_type(x).dtype
    gamma, beta = (cast_to(node, node.value(index), dtype) for index in (1, 2))
    image = channels_first(node, x) if is_last else x
    epsilon = node.attr_float("epsilon", 1e-5)
    result: Value = node.emit("nn.group_norm", image, gamma, beta, groups=groups, epsilon=epsilon)
    result = channels_last(node, result) if is_last else result
    return node.emit("nn.swish", result) if activation else result


def _import_group_norm(node: NodeContext) -> Sequence[Imported]:
    return (_normalise(node, node.value(0)),)


def _import_skip_group_norm(node: NodeContext) -> Sequence[Imported]:
    """Import the norm of ``X + skip + bias``; the skip may lack the spatial axes."""
    shape, skip, terms = node.shape(0), node.shape(3), [node.value(3)]
    channel = len(shape) - 1 if node.attr_flag("channels_last", default=True) else 1
    if len(skip) == 2:
        terms[0] = _broadcastable(node, terms[0], shape[:1], channel, len(shape))
    if node.has_input(4):
        terms.append(_broadcastable(node, node.value(4), (1,), channel, len(shape)))
    x: Value = node.value(0)
    for term in terms:
        x = node.emit("add", x, term)
    return (_normalise(node, x), x)


def _broadcastable(node: NodeContext, value: Value, outer: Sequence[Dim], channel: int, rank: int) -> Value:
    """Return a value ``(N, C)`` or ``(C,)`` in a shape broadcasting to images."""
    sizes: dict[int, Dim] = {0: outer[0], channel: node.shape_of(value)[-1]}
    return node.reshape(value, [sizes.get(axis, 1) for axis in range(rank)])


IMPORTERS: Mapping[str, NodeImporter] = {"GroupNorm": _import_group_norm, "SkipGroupNorm": _import_skip_group_norm}
"""The module's importers, by operator."""
