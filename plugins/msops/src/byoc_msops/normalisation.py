"""Importers of normalisation: of sums with a skip connection, by the root mean square, and of embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.activations import add_bias
from byoc_msops.operands import cast_to, number_like

__all__ = ["IMPORTERS", "STANDARD_IMPORTERS"]

_EPSILON = 1e-12
"""The default of ``epsilon`` of the operators of ``com.microsoft``."""


def _parameter(node: NodeContext, index: int, x: Value, axes: Sequence[int]) -> Value:
    """Return an input in the sizes of the normalised axes; zeros for an omitted input."""
    inner = tuple(node.shape_of(x)[axis] for axis in axes)
    value: Value = node.value(index) if node.has_input(index) else number_like(node, x, 0.0)
    return value if node.shape_of(value) == inner else node.emit("broadcast_to", value, shape=inner)


def _inverse_deviation(node: NodeContext, variance: Value, epsilon: float) -> Value:
    root = node.emit("sqrt", node.emit("add", variance, number_like(node, variance, epsilon)))
    return node.emit("divide", number_like(node, root, 1.0), root)


def _mean_square(node: NodeContext, x: Value, axes: Sequence[int]) -> Value:
    return node.emit("mean", node.emit("multiply", x, x), axis=tuple(axes), keepdims=True)


def _skip_sum(node: NodeContext, bias: int) -> Value:
    """Return ``input + skip``, plus a bias if present; the skip may lack the batch, or have a batch of 1.

    Raises:
        FrontendError: the skip has another rank or other sizes.
    """
    shape, skip = node.shape(0), node.shape(1)
    if not 2 <= len(skip) <= len(shape) or skip[-2:] != shape[-2:]:
        raise node.error("input 1, the skip, has an unsupported shape", got=skip, expected=shape)
    return add_bias(node, node.emit("add", node.value(0), node.value(1)), bias)


def _import_skip_layer_norm(node: NodeContext) -> Sequence[Imported]:
    epsilon, x = node.attr_float("epsilon", _EPSILON), _skip_sum(node, 4)
    axes = (len(node.shape_of(x)) - 1,)
    gamma, beta = (_parameter(node, index, x, axes) for index in (2, 3))
    result = node.emit("nn.layer_norm", x, gamma, beta, axes=axes, epsilon=epsilon)
    if not any(node.output_names[1:3]):
        return (result, x, x, x)  # the second and the third output are omitted
    wide = cast_to(node, x, "float32")
    mean = node.emit("mean", wide, axis=axes, keepdims=True)
    deviation = _inverse_deviation(node, _mean_square(node, node.emit("subtract", wide, mean), axes), epsilon)
    return (result, mean, deviation, x)


def _import_skip_rms_norm(node: NodeContext) -> Sequence[Imported]:
    """Import RMS norm of a sum; the mean, an output without meaning, is refused."""
    epsilon, x = node.attr_float("epsilon", _EPSILON), _skip_sum(node, 3)
    axes = (len(node.shape_of(x)) - 1,)
    if any(node.output_names[1:2]):
        raise node.error("has the output of the mean, unused by this norm")
    result = node.emit("nn.rms_norm", x, _parameter(node, 2, x, axes), axes=axes, epsilon=epsilon)
    if not any(node.output_names[2:3]):
        return (result, x, x, x)
    deviation = _inverse_deviation(node, _mean_square(node, cast_to(node, x, "float32"), axes), epsilon)
    return (result, x, deviation, x)


def _import_rms_norm(node: NodeContext) -> Sequence[Imported]:
    """Import ``SimplifiedLayerNormalization``; the result has the dtype of the scale."""
    rank = len(node.shape(0))
    axis, epsilon = node.axis(node.attr_int("axis", -1), rank), node.attr_float("epsilon", 1e-5)
    if node.attr_int("stash_type", 1) != 1:
        raise node.error("attribute `stash_type` has an unsupported value", expected="1")
    axes, dtype = tuple(range(axis, rank)), node.type(1).dtype
    x = node.value(0) if node.type(0).dtype == dtype else node.emit("cast", node.value(0), dtype=dtype)
    result = node.emit("nn.rms_norm", x, _parameter(node, 1, x, axes), axes=axes, epsilon=epsilon)
    if node.num_outputs < 2:
        return (result,)
    wide = cast_to(node, node.value(0), "float32")
    return (result, _inverse_deviation(node, _mean_square(node, wide, axes), epsilon))


def _import_embed_layer_norm(node: NodeContext) -> Sequence[Imported]:
    """Import the sum of the embeddings of words, positions and segments, and its layer norm."""
    epsilon = node.attr_float("epsilon", _EPSILON)
    node.ignore_attrs("mask_index_type")
    batch, steps = _ids_shape(node)
    if node.has_input(8):
        positions: Value = node.emit("take", node.value(3), node.value(8), axis=0)
    else:
        positions = node.emit("strided_slice", node.value(3), axes=(0,), begin=(0,), end=(steps,), strides=(1,))
    x = node.emit("add", node.emit("take", node.value(2), node.value(0), axis=0), positions)
    if node.has_input(1) != node.has_input(4):
        raise node.error("has either segments or their embeddings, but not both")
    if node.has_input(1):
        x = node.emit("add", x, node.emit("take", node.value(4), node.value(1), axis=0))
    gamma, beta = (_parameter(node, index, x, (2,)) for index in (5, 6))
    result = node.emit("nn.layer_norm", x, gamma, beta, axes=(2,), epsilon=epsilon)
    if node.has_input(7):
        counted = node.emit("equal", node.value(7), number_like(node, node.value(7), 1))
        lengths: Value = node.emit("sum", node.emit("cast", counted, dtype="int32"), axis=(1,))
    else:
        lengths = node.emit("broadcast_to", node.constant(np.int32(0)), shape=(batch,))
    return (result, lengths, x)


def _ids_shape(node: NodeContext) -> Sequence[object]:
    shape = node.shape(0)
    if len(shape) != 2:
        raise node.error("input 0, the words, is no matrix", got=shape, expected="(batch, steps)")
    return shape


IMPORTERS: Mapping[str, NodeImporter] = {
    "EmbedLayerNormalization": _import_embed_layer_norm,
    "SkipLayerNormalization": _import_skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _import_skip_rms_norm,
}
"""The module's importers, by operator."""

STANDARD_IMPORTERS: Mapping[str, NodeImporter] = {"SimplifiedLayerNormalization": _import_rms_norm}
"""Importers of ONNX Runtime's additions to the standard domain, by operator."""
