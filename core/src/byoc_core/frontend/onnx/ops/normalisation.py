"""Importers of normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


def _import_batch_norm(node: NodeContext) -> Sequence[Imported]:
    node.ignore_attrs("momentum")
    if not node.attr_flag("spatial", default=True):
        raise node.error("normalises every position by itself (`spatial=0`), which is not imported")
    if node.attr_flag("training_mode"):
        raise node.error("is in training mode", expected="a model exported for inference")
    return (node.emit("nn.batch_norm", *node.values(), axis=1, epsilon=node.attr_float("epsilon", 1e-5)),)


def _import_layer_norm(node: NodeContext) -> Sequence[Imported]:
    shape = node.shape(0)
    axis = node.axis(node.attr_int("axis", -1), len(shape))
    # The kernel computes narrow types in float32, which is what `stash_type=1` asks for.
    if node.attr_int("stash_type", 1) != 1:
        raise node.error("attribute `stash_type` is not imported", expected="1")
    inner = shape[axis:]

    def parameter(index: int) -> Value:
        value = node.value(index) if node.has_input(index) else node.scalar(0.0, 0)
        given = node.shape(index) if node.has_input(index) else ()
        return value if given == inner else node.emit("broadcast_to", value, shape=inner)

    axes = tuple(range(axis, len(shape)))
    epsilon = node.attr_float("epsilon", 1e-5)
    return (node.emit("nn.layer_norm", node.value(0), parameter(1), parameter(2), axes=axes, epsilon=epsilon),)


def _import_softmax(node: NodeContext) -> Sequence[Imported]:
    """Before opset 13 all axes from ``axis`` (default 1) on count as one."""
    shape = node.shape(0)
    axis = node.axis(node.attr_int("axis", -1 if node.opset >= 13 else 1), len(shape))
    if node.opset >= 13 or axis == len(shape) - 1:
        return (node.emit("nn.softmax", node.value(0), axis=axis),)
    flat = node.reshape(node.value(0), (*shape[:axis], product(shape[axis:])))
    return (node.reshape(node.emit("nn.softmax", flat, axis=-1), shape),)


IMPORTERS: dict[str, NodeImporter] = {
    "BatchNormalization": _import_batch_norm,
    "LayerNormalization": _import_layer_norm,
    "Softmax": _import_softmax,
}
"""The family's importers, by ONNX name."""
