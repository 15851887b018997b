"""Importers for elementwise ops without a direct spelling in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dtypes import float_limits, is_float, to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS", "SMALL_FLOATS", "emit_cast", "emit_saturated_cast"]

SMALL_FLOATS = ("float8", "float4")
"""The beginnings of the names of floats of at most 8 bits."""


def _folded(op: str) -> NodeImporter:
    """Build the importer of ops on any number of inputs, imported as a chain of binary ops."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        return (_fold(node, op),)

    return import_node


def _fold(node: NodeContext, op: str) -> Value:
    first, *rest = node.values()
    result: Value = first
    for other in rest:
        result = node.emit(op, result, other)
    return result


def _import_mean(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("divide", _fold(node, "add"), node.scalar(node.num_inputs, 0)),)


def _import_power(node: NodeContext) -> Sequence[Imported]:
    base, exponent = node.values()
    base_dtype, exponent_dtype = node.type(0).dtype, node.type(1).dtype
    if base_dtype == exponent_dtype:
        return (node.emit("power", base, exponent),)
    if is_float(exponent_dtype) and not is_float(base_dtype):
        result = node.emit("power", node.emit("cast", base, dtype=exponent_dtype), exponent)
        return (node.emit("cast", result, dtype=base_dtype),)
    return (node.emit("power", base, _cast_to(node, 1, base_dtype)),)


def _cast_to(node: NodeContext, index: int, dtype: str) -> Value:
    array = node.array(index)
    if array is not None:
        return node.constant(array.astype(to_numpy(dtype)))
    return node.emit("cast", node.value(index), dtype=dtype)


def _import_clip(node: NodeContext) -> Sequence[Imported]:
    dtype = node.type(0).dtype
    if node.opset < 11:
        ends = [node.attr_float(name) if node.has_attr(name) else None for name in ("min", "max")]
        return (node.emit("clip", node.value(0), min=ends[0], max=ends[1]),)
    arrays = [node.array(index) if node.has_input(index) else None for index in (1, 2)]
    is_constant = all(
        array is not None or not node.has_input(index) for index, array in zip((1, 2), arrays, strict=True)
    )
    if is_constant and is_float(dtype):
        low, high = (None if array is None else _single(node, array) for array in arrays)
        return (node.emit("clip", node.value(0), min=low, max=high),)
    result = node.value(0)
    for index, op in ((1, "maximum"), (2, "minimum")):
        if node.has_input(index):
            result = node.emit(op, result, node.value(index))
    return (result,)


def _single(node: NodeContext, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> float:
    if array.size != 1:
        raise node.error("a bound is not a scalar", got=array.shape)
    return float(array.astype(np.float64).item())


def _import_cast(node: NodeContext) -> Sequence[Imported]:
    return (emit_cast(node, dtype_of(node.attr_int("to"), f"{node.label}, attribute `to`")),)


def emit_cast(node: NodeContext, dtype: str) -> Imported:
    """Return the first input in another dtype; attribute ``saturate`` controls numbers beyond the dtype's range."""
    rounding, saturate = node.attr_string("round_mode", "up"), node.attr_flag("saturate", default=True)
    if node.type(0).dtype == dtype:
        return node.imported(0)
    if dtype == "float8_e8m0fnu" and is_float(node.type(0).dtype):
        return _cast_to_powers(node, rounding, saturate=saturate)
    return emit_saturated_cast(node, node.value(0), dtype, saturate=saturate)


def _cast_to_powers(node: NodeContext, rounding: str, *, saturate: bool) -> Value:
    """Return the first input as powers of two: a float32 without its mantissa, rounded up, down or to the nearest."""
    if rounding not in ("up", "down", "nearest"):
        raise node.error("attribute `round_mode` is unknown", got=rounding, expected="up, down or nearest")
    x = node.value(0) if node.type(0).dtype == "float32" else node.emit("cast", node.value(0), dtype="float32")
    bits = node.emit("bitcast", x, dtype="int32")
    added = {"up": (1 << 23) - 1, "nearest": 1 << 22, "down": 0}[rounding]
    bits = node.emit("add", bits, node.constant(np.int32(added)))
    power = node.emit("bitcast", node.emit("bitwise_and", bits, node.constant(np.int32(255 << 23))), dtype="float32")
    power = node.emit("where", node.emit("isnan", x), x, power)
    if saturate:
        least, largest = node.constant(np.float32(2.0**-127)), node.constant(np.float32(2.0**127))
        power = node.emit("where", node.emit("less_equal", x, least), least, node.emit("minimum", power, largest))
    return node.emit("cast", power, dtype="float8_e8m0fnu")


def emit_saturated_cast(node: NodeContext, value: Value, dtype: str, *, saturate: bool) -> Value:
    """Return a value in another dtype; with ``saturate`` numbers beyond the range of a small float become its largest.

    The numbers are clipped before the cast; NaN stays NaN. All other floats can represent the largest numbers of these
    types.
    """
    source = node.tensor_type(value).dtype
    if saturate and dtype.startswith(SMALL_FLOATS):
        is_wide = is_float(source) and not source.startswith(SMALL_FLOATS)
        largest = float_limits(dtype).largest
        value = node.emit(
            "clip", value if is_wide else node.emit("cast", value, dtype="float32"), min=-largest, max=largest
        )
    return node.emit("cast", value, dtype=dtype)


def _import_gelu(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("nn.gelu", node.value(0), approximate=node.attr_string("approximate", "none")),)


def _import_identity(node: NodeContext) -> Sequence[Imported]:
    return (node.imported(0),)


IMPORTERS: dict[str, NodeImporter] = {
    "Cast": _import_cast,
    "Clip": _import_clip,
    "Gelu": _import_gelu,
    "Identity": _import_identity,
    "Max": _folded("maximum"),
    "Mean": _import_mean,
    "Min": _folded("minimum"),
    "Pow": _import_power,
    "Sum": _folded("add"),
}
"""The family's importers, by ONNX name."""
