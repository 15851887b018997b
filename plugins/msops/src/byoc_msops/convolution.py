"""Importers of convolution with an activation or with channels last, and of pooling with channels last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.fused_activations import apply_activation, parameter_names
from byoc_msops.image_attributes import CONVOLUTION, POOLING, channels_first, channels_last, read_attributes
from byoc_msops.operands import emit_standard

__all__ = ["IMPORTERS"]


def _convolve(node: NodeContext, image: Value) -> Value:
    """Return the convolution of an image with the filters in input 1, plus the bias in input 2."""
    bias = node.imported(2) if node.has_input(2) else None
    return emit_standard(node, "Conv", [image, node.imported(1), bias], read_attributes(node, CONVOLUTION))


def _activated(node: NodeContext, result: Value) -> Value:
    """Return a result plus input 3, if present, after the activation."""
    if node.has_input(3):
        result = node.emit("add", result, node.value(3))
    values = node.attr_floats("activation_params") if node.has_attr("activation_params") else ()
    return apply_activation(node, result, dict(zip(parameter_names(node), values, strict=False)))


def _import_fused_conv(node: NodeContext) -> Sequence[Imported]:
    return (_activated(node, _convolve(node, node.value(0))),)


def _with_image_last(node: NodeContext) -> Value:
    """Return the convolution of an image ``(N, ..., C)``; filters are ``(O, ..., I)``."""
    image, weight = (channels_first(node, node.value(index)) for index in (0, 1))
    bias = node.imported(2) if node.has_input(2) else None
    attributes = read_attributes(node, CONVOLUTION)
    return channels_last(node, emit_standard(node, "Conv", [image, weight, bias], attributes))


def _import_conv_of_last(node: NodeContext) -> Sequence[Imported]:
    return (_with_image_last(node),)


def _import_fused_conv_of_last(node: NodeContext) -> Sequence[Imported]:
    return (_activated(node, _with_image_last(node)),)


def _import_max_pool_of_last(node: NodeContext) -> Sequence[Imported]:
    attributes = read_attributes(node, (*POOLING, "dilations"))
    image = channels_first(node, node.value(0))
    return (channels_last(node, emit_standard(node, "MaxPool", [image], attributes)),)


IMPORTERS: Mapping[str, NodeImporter] = {
    "FusedConv": _import_fused_conv,
    "NhwcConv": _import_conv_of_last,
    "NhwcFusedConv": _import_fused_conv_of_last,
    "NhwcMaxPool": _import_max_pool_of_last,
}
"""The module's importers, by operator."""
