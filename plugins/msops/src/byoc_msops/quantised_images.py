"""Importers of convolution and pooling of quantised images, with channels first or last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.image_attributes import CONVOLUTION, POOLING, channels_first, channels_last, read_attributes
from byoc_msops.operands import emit_standard
from byoc_msops.quantised_tensors import dequantised, quantised

__all__ = ["IMPORTERS"]


def _in_floats(node: NodeContext, compute: Callable[[Value], Value]) -> Sequence[Imported]:
    """Return a quantised image, computed from the floats of an image with channels first."""
    is_last = node.attr_flag("channels_last")
    x = dequantised(node, 0)
    result = compute(channels_first(node, x) if is_last else x)
    return (quantised(node, channels_last(node, result) if is_last else result, 3, node.type(0).dtype),)


def _import_global_pool(node: NodeContext) -> Sequence[Imported]:
    return _in_floats(node, lambda x: emit_standard(node, "GlobalAveragePool", [x]))


def _import_pool(node: NodeContext) -> Sequence[Imported]:
    attributes = read_attributes(node, (*POOLING, "count_include_pad"))
    return _in_floats(node, lambda x: emit_standard(node, "AveragePool", [x], attributes))


def _import_mean(node: NodeContext) -> Sequence[Imported]:
    rank = len(node.shape(0))
    axes = sorted({node.axis(axis, rank) for axis in node.attr_ints("axes", range(rank))})
    keepdims = node.attr_flag("keepdims", default=True)
    result = node.emit("mean", dequantised(node, 0), axis=tuple(axes), keepdims=keepdims)
    return (quantised(node, result, 3, node.type(0).dtype),)


def _import_conv(node: NodeContext) -> Sequence[Imported]:
    """Import ``QLinearConv`` with the additional attribute ``channels_last``; filters are ``(O, I, ...)`` always."""
    attributes, is_last = read_attributes(node, CONVOLUTION), node.attr_flag("channels_last")
    inputs: list[Imported | None] = [node.imported(index) for index in range(node.num_inputs)]
    if is_last:
        inputs[0] = channels_first(node, node.value(0))
    result = emit_standard(node, "QLinearConv", inputs, attributes)
    return (channels_last(node, result) if is_last else result,)


IMPORTERS: Mapping[str, NodeImporter] = {
    "QLinearAveragePool": _import_pool,
    "QLinearConv": _import_conv,
    "QLinearGlobalAveragePool": _import_global_pool,
    "QLinearReduceMean": _import_mean,
}
"""The module's importers, by operator."""
