"""Importers for quantisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.elementwise import SMALL_FLOATS, emit_saturated_cast
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


def _zero_point(node: NodeContext, dtype: str, shape: tuple[Dim, ...]) -> Value:
    if node.has_input(2):
        return node.reshape(node.value(2), shape)
    zero = node.constant(np.zeros((), to_numpy(dtype)))
    return zero if not shape else node.emit("broadcast_to", zero, shape=shape)


def _scale(node: NodeContext) -> tuple[Value, tuple[Dim, ...]]:
    """Return the scale and its shape; a list of a single scale becomes a scalar, except for blocks."""
    shape = () if node.shape(1) == (1,) and not node.attr_int("block_size", 0) else node.shape(1)
    return node.reshape(node.value(1), shape), shape


def _granularity(node: NodeContext) -> dict[str, int]:
    block_size = node.attr_int("block_size", 0)
    if block_size < 0:
        raise node.error("attribute `block_size` is negative", got=block_size)
    return {"axis": node.attr_int("axis", 1), "block_size": block_size}


def _import_quantize(node: NodeContext) -> Sequence[Imported]:
    saturate = node.attr_flag("saturate", default=True)
    granularity = _granularity(node)
    scale, shape = _scale(node)
    element_type = node.attr_int("output_dtype", 0)
    dtype = dtype_of(element_type, f"{node.label}, attribute `output_dtype`") if element_type else "uint8"
    if node.has_input(2):
        dtype = node.type(2).dtype
    if dtype.startswith(SMALL_FLOATS):
        broadcast_scale, zero = _small_float_parameters(node, scale, shape, **granularity)
        quotient = node.emit("divide", node.value(0), broadcast_scale)
        if zero is not None:
            quotient = node.emit("add", quotient, node.emit("cast", zero, dtype=node.type(0).dtype))
        return (emit_saturated_cast(node, quotient, dtype, saturate=saturate),)
    zero = _zero_point(node, dtype, shape)
    return (node.emit("quantize", node.value(0), scale, zero, **granularity),)


def _import_dequantize(node: NodeContext) -> Sequence[Imported]:
    granularity = _granularity(node)
    scale, shape = _scale(node)
    dtype = node.type(0).dtype
    if dtype.startswith(SMALL_FLOATS):
        broadcast_scale, zero = _small_float_parameters(node, scale, shape, **granularity)
        wide = node.emit("cast", node.value(0), dtype="float32")
        if zero is not None:
            wide = node.emit("subtract", wide, node.emit("cast", zero, dtype="float32"))
        product = node.emit("multiply", wide, node.emit("cast", broadcast_scale, dtype="float32"))
        return (node.emit("cast", product, dtype=node.type(1).dtype),)
    zero = _zero_point(node, dtype, shape)
    return (node.emit("dequantize", node.value(0), scale, zero, **granularity),)


def _small_float_parameters(
    node: NodeContext, scale: Value, shape: tuple[Dim, ...], axis: int, block_size: int
) -> tuple[Value, Value | None]:
    """Return scale and zero point in shapes broadcasting in 8-bit float arithmetic; ``None`` for a zero point of 0."""
    if block_size:
        raise node.error(
            "has blocks of 8-bit floats with a shared scale", expected="a single scale, or a scale for each index"
        )
    if shape:
        rank = len(node.shape(0))
        channel = node.axis(axis, rank)
        size = node.shape(0)[channel]
        if isinstance(size - shape[0], int) and size != shape[0]:
            raise node.error(
                f"the number of scales differs from the size of axis {channel}", got=shape[0], expected=size
            )
        shape = tuple(shape[0] if index == channel else 1 for index in range(rank))
    zero = node.array(2) if node.has_input(2) else None
    is_zero = not node.has_input(2) or (zero is not None and not zero.astype(np.float32).any())
    return node.reshape(scale, shape), None if is_zero else node.reshape(node.value(2), shape)


def _import_dynamic_quantize(node: NodeContext) -> Sequence[Imported]:
    """Import dynamic quantisation: the range of the tensor, zero included, becomes 0 to 255."""
    x, none = node.value(0), node.scalar(0.0, 0)
    high = node.emit("maximum", node.emit("max", x), none)
    # The negated lower end: the largest of the negated elements, or zero.
    depth = node.emit("maximum", node.emit("max", node.emit("negative", x)), none)
    reach = node.emit("divide", node.emit("add", high, depth), node.scalar(255.0, 0))
    scale = node.emit("where", node.emit("equal", reach, none), node.scalar(1.0, 0), reach)
    zero = node.emit("quantize", depth, scale, node.constant(np.zeros((), np.uint8)))
    return (node.emit("quantize", x, scale, zero), scale, zero)


IMPORTERS: dict[str, NodeImporter] = {
    "DequantizeLinear": _import_dequantize,
    "DynamicQuantizeLinear": _import_dynamic_quantize,
    "QuantizeLinear": _import_quantize,
}
"""The family's importers, by ONNX name."""
