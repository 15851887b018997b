"""Importers of weights of 2, 4 or 8 bits, quantised in blocks: MatMulNBits and GatherBlockQuantized.

Several weights share a byte, the first in the low bits. A block along an axis shares a scale and a zero point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import is_float
from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

from byoc_msops.activations import add_bias
from byoc_msops.operands import cast_to, number_like

__all__ = ["IMPORTERS"]

NDArray = npt.NDArray[Any]

_BITS = (2, 4, 8)


def _read_bits(node: NodeContext) -> int:
    bits = node.attr_int("bits", 4)
    if bits not in _BITS:
        raise node.error("attribute `bits` has an unsupported value", got=bits, expected="2, 4 or 8")
    return bits


def _read_block_size(node: NodeContext, default: int | None = None) -> int:
    size = node.attr_int("block_size", default)
    if size < 1:
        raise node.error("attribute `block_size` is not positive", got=size)
    return size


def _unpack_array(packed: NDArray, bits: int) -> NDArray:
    """Return the integers of the bytes along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts))


def _unpack(node: NodeContext, packed: Value, bits: int) -> Value:
    """Return the integers of the bytes along the last axis, by ops."""
    if bits == 8:
        return packed
    *outer, size = node.shape_of(packed)
    bytes_ = node.reshape(packed, (*outer, size, 1))
    shifts = node.constant(np.arange(0, 8, bits, dtype=np.uint8))
    parts = node.emit(
        "bitwise_and", node.emit("right_shift", bytes_, shifts), number_like(node, packed, (1 << bits) - 1)
    )
    return node.reshape(parts, (*outer, size * (8 // bits)))


def _integers(node: NodeContext, index: int, bits: int, shape: tuple[int, int], width: int) -> Value:
    """Return an input of packed integers as uint8 ``(rows, width)``; constants are unpacked during import.

    Args:
        node: the node.
        index: the input.
        bits: the size of an integer.
        shape: rows and bytes of a row.
        width: the number of integers of a row, without padding.

    Raises:
        FrontendError: the input has another number of bytes.
    """
    found = node.type(index).num_elements
    if not isinstance(found, int) or found != shape[0] * shape[1] or node.type(index).dtype != "uint8":
        raise node.error(f"input {index} has another size", got=node.type(index), expected=f"{shape} bytes")
    array = node.array(index)
    if array is not None:
        return node.constant(np.ascontiguousarray(_unpack_array(array.reshape(shape), bits)[:, :width]))
    unpacked = _unpack(node, node.reshape(node.value(index), shape), bits)
    if shape[1] * (8 // bits) == width:
        return unpacked
    return node.emit("strided_slice", unpacked, axes=(1,), begin=(0,), end=(width,), strides=(1,))


def _import_matmul(node: NodeContext) -> Sequence[Imported]:
    """Import the product with weights ``(N, K)``, dequantised in blocks along ``K``."""
    node.ignore_attrs("accuracy_level")  # the products are of the dtype of A
    if node.attr_int("weight_prepacked", 0):
        raise node.error("attribute `weight_prepacked` has an unsupported value", expected="0")
    rows, width, block_size = node.attr_int("N"), node.attr_int("K"), _read_block_size(node)
    _check_groups(node, width, block_size)
    weight = _weights(node, rows, width, block_size)
    return (add_bias(node, node.emit("nn.dense", node.value(0), weight), 5),)


def _check_groups(node: NodeContext, width: int, block_size: int) -> None:
    """Raise an error for blocks other than consecutive weights."""
    if not node.has_input(4):
        return
    groups = node.array(4)
    if groups is None or not np.array_equal(groups.reshape(-1), np.arange(width) // block_size):
        raise node.error("has an order of weights (input `g_idx`), an unsupported feature")


def _weights(node: NodeContext, rows: int, width: int, block_size: int) -> Value:
    bits, blocks = _read_bits(node), -(-width // block_size)
    weight = _integers(node, 1, bits, (rows, blocks * (block_size * bits // 8)), width)
    scale = node.reshape(node.value(2), (rows, blocks))
    if node.has_input(3) and is_float(node.type(3).dtype):
        return _with_float_zeros(node, weight, scale, node.reshape(node.value(3), (rows, blocks)), block_size)
    if node.has_input(3):
        zero = _integers(node, 3, bits, (rows, -(-blocks * bits // 8)), blocks)
    else:
        zero = node.constant(np.full((rows, blocks), 1 << (bits - 1), np.uint8))
    return node.emit("dequantize", weight, scale, zero, axis=1, block_size=block_size)


def _with_float_zeros(node: NodeContext, weight: Value, scale: Value, zero: Value, block_size: int) -> Value:
    """Return ``(weight - zero) * scale`` for zero points between integers."""
    width = node.shape_of(weight)[1]
    dtype = node.tensor_type(scale).dtype
    block = node.constant(np.arange(int(str(width))) // block_size)
    scales, zeros = (node.emit("take", value, block, axis=1) for value in (scale, cast_to(node, zero, dtype)))
    return node.emit("multiply", node.emit("subtract", cast_to(node, weight, dtype), zeros), scales)


def _import_gather(node: NodeContext) -> Sequence[Imported]:
    """Import the choice of slices, and then the dequantisation of the chosen slices.

    Bytes hold integers along the last axis; types of 4 bits hold a single integer.
    """
    bits, block_size = _read_bits(node), _read_block_size(node, 128)
    shape, indices = node.shape(0), node.shape(1)
    gather_axis = node.axis(node.attr_int("gather_axis", 0), len(shape))
    quantise_axis = node.axis(node.attr_int("quantize_axis", 1), len(shape))
    dtype = node.type(0).dtype
    if dtype not in ("uint8", "uint4", "int4"):
        raise node.error("has data of an unsupported dtype", got=dtype, expected="uint8, uint4 or int4")
    is_packed = dtype == "uint8" and bits < 8
    if gather_axis == quantise_axis or (is_packed and gather_axis == len(shape) - 1):
        raise node.error("gathers along the axis of blocks or of bytes", got=gather_axis)
    if is_packed and quantise_axis != len(shape) - 1:
        raise node.error("has blocks along another axis than bytes", got=quantise_axis, expected=len(shape) - 1)
    parts = {0: _take(node, 0, gather_axis), 2: _take(node, 2, gather_axis)}
    if node.has_input(3):
        parts[3] = _take(node, 3, gather_axis)
    if is_packed:
        size = shape[-1] * (8 // bits)
        parts = {index: part if index == 2 else _unpack(node, part, bits) for index, part in parts.items()}
        if 3 in parts:
            parts[3] = _first(node, parts[3], ceildiv(size, block_size))
    scale = parts[2]
    default = (1 << (bits - 1)) if dtype == "uint8" else 0
    zero = parts.get(3)
    if zero is None:
        number = number_like(node, parts[0], default)
        zero = node.emit("broadcast_to", number, shape=node.shape_of(scale))
    axis = quantise_axis + (len(indices) - 1 if quantise_axis > gather_axis else 0)
    return (node.emit("dequantize", parts[0], scale, zero, axis=axis, block_size=block_size),)


def _first(node: NodeContext, value: Value, count: Dim) -> Value:
    """Return the first integers of the last axis, without padding."""
    axis = len(node.shape_of(value)) - 1
    if node.shape_of(value)[axis] == count:
        return value
    return node.emit("strided_slice", value, axes=(axis,), begin=(0,), end=(count,), strides=(1,))


def _take(node: NodeContext, index: int, axis: int) -> Value:
    """Return the chosen slices of an input, integers of 4 bits in bytes."""
    wide = {"uint4": "uint8", "int4": "int8"}.get(node.type(index).dtype)
    array = node.array(index)
    if wide is not None and array is not None:
        value: Value = node.constant(array.astype(wide))
    else:
        value = node.value(index) if wide is None else node.emit("cast", node.value(index), dtype=wide)
    return node.emit("take", value, node.value(1), axis=axis)


IMPORTERS: Mapping[str, NodeImporter] = {
    "GatherBlockQuantized": _import_gather,
    "MatMulNBits": _import_matmul,
}
"""The module's importers, by operator."""
