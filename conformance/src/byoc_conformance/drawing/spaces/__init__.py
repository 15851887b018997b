"""The spaces of op cases: the varied factors of each op, and the case built from a choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.ir import OpDef, Trait

from byoc_conformance.drawing.spaces import axes, indexing, movement, pointwise, products, resampling, windows
from byoc_conformance.drawing.spaces.canonical import canonical
from byoc_conformance.drawing.spaces.space import Space, has_indices, has_sizes_among_elements

__all__ = ["Space", "has_indices", "has_sizes_among_elements", "space_of"]

_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp", "all", "any")
_ALONG_AXIS = (
    *("nn.softmax", "nn.log_softmax", "nn.stepwise_softmax", "sort", "argsort"),
    *("cumsum", "cumprod", "argmin", "argmax", "flip"),
)
_RANKS = (1, 2, 3)

_SPACES: Mapping[str, Callable[[OpDef], Space]] = {
    **dict.fromkeys(_REDUCTIONS, axes.reduction),
    **dict.fromkeys(_ALONG_AXIS, axes.along_axis),
    "topk": axes.topk,
    "unique": axes.unique,
    "compress": axes.compress,
    "nn.layer_norm": axes.norm_over_axes,
    "nn.rms_norm": axes.norm_over_axes,
    "nn.batch_norm": axes.batch_norm,
    "nn.bias_add": axes.bias_add,
    "nn.instance_norm": axes.channel_norm,
    "nn.group_norm": axes.group_norm,
    "nn.lrn": axes.lrn,
    **{f"nn.conv{rank}d": windows.convolution for rank in _RANKS},
    **{f"nn.conv{rank}d_transpose": windows.transposed_convolution for rank in _RANKS},
    **{f"nn.{kind}_pool{rank}d": windows.pool for kind in ("max", "avg", "lp") for rank in _RANKS},
    **{f"nn.adaptive_{kind}_pool{rank}d": windows.adaptive_pool for kind in ("max", "avg") for rank in _RANKS},
    "reshape": movement.reshape,
    "squeeze": movement.squeeze,
    "expand_dims": movement.expand_dims,
    "permute_dims": movement.permute_dims,
    "broadcast_to": movement.broadcast_to,
    "concat": movement.concat,
    "split": movement.split,
    "strided_slice": movement.strided_slice,
    "nn.pad": movement.pad,
    "nn.border_pad": movement.pad,
    "tile": movement.tile,
    "roll": movement.roll,
    "stack": movement.stack,
    "trilu": movement.trilu,
    "depth_to_space": movement.blocks,
    "space_to_depth": movement.blocks,
    "take": indexing.take,
    "gather_elements": indexing.gather_elements,
    "gather_nd": indexing.gather_nd,
    "one_hot": indexing.one_hot,
    "scatter_elements": indexing.scatter_elements,
    "scatter_nd": indexing.scatter_nd,
    "scatter_slice": indexing.scatter_slice,
    "reverse_sequence": indexing.reverse_sequence,
    "einsum": products.einsum,
    **dict.fromkeys(("nn.rnn", "nn.gru", "nn.lstm"), products.recurrence),
    "nn.attention": products.attention,
    "nn.resize": resampling.resize,
    "quantize": resampling.quantise,
    "dequantize": resampling.quantise,
    "arange": resampling.arange,
    "cast": pointwise.cast,
    "where": pointwise.where,
    "nn.prelu": pointwise.prelu,
}
"""Ops with operands dependent on attributes; other ops are drawn from their schema, or from their canonical cases."""


def space_of(op: OpDef) -> Space:
    """Return the space of an op with canonical cases."""
    found = _SPACES.get(op.name)
    if found is not None:
        return found(op)
    if op.has_trait(Trait.ELEMENTWISE) and 1 <= len(op.operands) <= 2:
        return pointwise.elementwise(op)
    return canonical(op)
