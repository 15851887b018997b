"""Products and convolutions of quantised tensors, computed on the integers themselves.

The rewrite takes products of 8-bit integers less their zero points in int32, and products of floats equal to such
integers times a scale, with a constant operand. The sum of the products of floats is the sum of the products of
integers times both scales, and is nearer to the exact result than a sum of rounded floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from byoc_core.ir import Binding, Constant, IRModule, OpDef, Value
from byoc_core.ops import axes_of
from byoc_core.runtime.module import NDArray
from byoc_core.transform import RewriteGraph, evaluate_binding, rewrite_module
from byoc_core.transform.byte_weights import MAX_TERMS, to_bytes

from byoc_ccompiler.attributes import axis_of, int_of, ints_of
from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.kernels.byte_products import MAX_DEPTH
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["use_byte_products"]

_PRODUCTS = ("nn.conv2d", "matmul", "nn.dense")
_BYTES = ("int8", "uint8")
_MOVES = ("permute_dims", "reshape")
_FOLDED = (*_MOVES, "cast", "subtract")
"""The ops producing weights, present in a region if their result was too large for a constant."""


def use_byte_products(module: IRModule) -> IRModule:
    """Return the module with products of quantised tensors computed on integers, if supported by their kernels."""
    return rewrite_module(module, dict.fromkeys(_PRODUCTS, (_use_bytes,)))


def _use_bytes(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    product = _Product(binding, graph)
    operands = product.match()
    return None if operands is None else product.write(*operands)


class _Image(NamedTuple):
    """The non-constant operand: ``(integers - zero) * scale``; no scale if the operand is made of integers alone.

    Attributes:
        shift: a zero point known only in a call; ``zero`` is then 0.
        border: the same in the dtype of ``integers``, if the zero point is a scalar of the dtype.
        moves: later ops moving the elements, the last op first.
    """

    integers: Value
    zero: int
    scale: np.float32 | None
    shift: Value | None = None
    border: Value | None = None
    moves: tuple[Binding, ...] = ()


class _Weight(NamedTuple):
    """The constant operand: ``(integers - zero) * scale``; the scale is a number, or a number for each output channel.

    Attributes:
        integers: of int8, output channels first.
        scale: ``None`` if the operand is made of integers alone.
        zero: int32, of shape ``(1,)`` or ``(N,)``; ``None`` if the weights fit in int8 unchanged.
    """

    integers: NDArray
    scale: NDArray | None
    zero: NDArray | None = None


class _Product:
    """A product and the makers of the operands."""

    def __init__(self, binding: Binding, graph: RewriteGraph) -> None:
        self._binding = binding
        self._graph = graph

    def match(self) -> tuple[_Image, _Weight] | None:
        """Return the operands of the product if computable on integers; ``None`` otherwise."""
        binding = self._binding
        axes = _ordered_axes(binding)
        if dtype_of(binding.result) not in ("int32", "float32") or axes is None:
            return None
        image = self._find_image(binding.operands[0])
        weight = self._find_weight(binding.operands[1], axes) if image is not None else None
        if image is None or weight is None or (image.scale is None) != (weight.scale is None):
            return None
        depth = weight.integers[0].size
        if not 0 < depth <= (MAX_DEPTH if weight.zero is None else MAX_TERMS) or len(weight.integers) == 0:
            return None
        if image.scale is not None and not _are_normal(_factor(image, weight)):
            return None
        if image.shift is not None and image.border is None and binding.op.name == "nn.conv2d":
            return None  # the value beyond the borders is a byte
        return image, weight

    def write(self, image: _Image, weight: _Weight) -> Sequence[Value]:
        """Emit the product on integers."""
        binding, graph = self._binding, self._graph
        attrs: dict[str, object] = {"zero_point": image.zero}
        if binding.op.name == "nn.conv2d":
            attrs |= {**binding.attrs, "kernel_layout": "OIHW"}
        op = BYTE_CONVOLUTION if binding.op.name == "nn.conv2d" else BYTE_PRODUCT
        integers = image.integers
        for move in reversed(image.moves):
            integers = graph.emit(move.op, (integers,), move.attrs)
        operands = [integers, graph.const(np.ascontiguousarray(weight.integers))]
        if image.border is not None and op is BYTE_CONVOLUTION:
            operands.append(image.border)
        # Shares of zero points are computed before the sums, and so at hand in their epilogue.
        shares = []
        if image.shift is not None:
            rows = weight.integers.reshape(len(weight.integers), -1)
            totals = graph.const(rows.sum(axis=1, dtype=np.int32))
            shares.append(graph.emit("multiply", (image.shift, totals)))
        if weight.zero is not None:
            row_sums = self._row_sums(op, operands, attrs, image)
            shares.append(graph.emit("multiply", (row_sums, graph.const(weight.zero))))
        sums = graph.emit(op, operands, attrs, schedule=binding.schedule)
        for share in shares:
            sums = graph.emit("subtract", (sums, share))
        if image.scale is not None:
            wide = graph.emit("cast", (sums,), {"dtype": "float32"})
            sums = graph.emit("multiply", (wide, graph.const(_factor(image, weight))))
        return (sums,)

    def _row_sums(self, op: OpDef, operands: Sequence[Value], attrs: Mapping[str, object], image: _Image) -> Value:
        """Emit the product with weights of 1: the sum of each row, or window, of ``integers - zero - shift``.

        Shapes: ``(..., 1)``, int32.
        """
        graph = self._graph
        integers, weight, *border = operands
        shape = [size for size in shape_of(weight)[1:] if isinstance(size, int)]
        depth = prod(shape)
        if op is BYTE_CONVOLUTION:
            totals = graph.emit(op, (integers, graph.const(np.ones((1, *shape), np.int8)), *border), attrs)
        else:
            wide = graph.emit("cast", (integers,), {"dtype": "int32"})
            totals = graph.emit("sum", (wide,), {"axis": (-1,), "keepdims": True})
            if image.zero:
                totals = graph.emit("subtract", (totals, graph.const(np.asarray(image.zero * depth, np.int32))))
        if image.shift is not None:
            product = graph.emit("multiply", (image.shift, graph.const(np.asarray(depth, np.int32))))
            totals = graph.emit("subtract", (totals, product))
        return totals

    def _find_image(self, value: Value) -> _Image | None:
        maker, moves = self._maker(value), []
        while maker is not None and maker.op.name in _MOVES:
            moves.append(maker)
            maker = self._maker(maker.operands[0])
        found = None if maker is None else self._find_bytes(maker)
        return None if found is None else found._replace(moves=tuple(moves))

    def _find_bytes(self, maker: Binding) -> _Image | None:
        if maker.op.name == "dequantize":
            integers, *parameters = maker.operands
            scale, zero = map(self._array, parameters)
            if dtype_of(integers) not in _BYTES or scale is None or zero is None or scale.ndim:
                return None
            return _Image(integers, int(zero), np.float32(scale)) if scale.dtype == np.float32 else None
        cast, centre, shift = maker, 0, None
        if maker.op.name == "subtract":
            value, moved = maker.operands
            zero, producer = self._array(moved), self._maker(value)
            if (
                producer is None
                or any(dim != 1 for dim in shape_of(moved))
                or shape_of(value) != shape_of(maker.result)
            ):
                return None
            cast = producer
            if zero is not None:
                centre = int(zero.reshape(()))
            elif shape_of(moved) == ():
                shift = moved
            else:
                return None
        if cast.op.name != "cast" or dtype_of(cast.operands[0]) not in _BYTES or dtype_of(cast.result) != "int32":
            return None
        limits = np.iinfo(dtype_of(cast.operands[0]))
        widened = self._maker(shift)
        border = widened.operands[0] if widened is not None and widened.op.name == "cast" else None
        if border is not None and dtype_of(border) != dtype_of(cast.operands[0]):
            border = None
        return _Image(cast.operands[0], centre, None, shift, border) if limits.min <= centre <= limits.max else None

    def _find_weight(self, value: Value, axes: tuple[int, ...]) -> _Weight | None:
        """Return the weights with these axes in this order, the axis of the output channels first."""
        if dtype_of(value) == "int32":
            array = self._array(value)
            return None if array is None else _narrow(array.transpose(axes), None)
        maker = self._maker(value)
        while maker is not None and maker.op.name == "permute_dims":
            order = ints_of(maker, "axes") or tuple(reversed(range(len(axes))))  # Without axes, all are reversed.
            axes = tuple(order[axis] for axis in axes)
            maker = self._maker(maker.operands[0])
        if maker is None or maker.op.name != "dequantize" or int_of(maker, "block_size"):
            return None
        integers, scale, zero = map(self._array, maker.operands)
        if integers is None or scale is None or zero is None or scale.dtype != np.float32:
            return None
        if scale.ndim:
            channel = axis_of(maker, integers.ndim)
            if channel != axes[0]:
                return None
            zero = zero.reshape([-1 if axis == channel else 1 for axis in range(integers.ndim)])
        return _narrow((integers.astype(np.int64) - zero.astype(np.int64)).transpose(axes), scale)

    def _maker(self, value: Value | None) -> Binding | None:
        found = None if value is None else self._graph.producer(value)
        return None if found is None else found[0]

    def _array(self, value: Value) -> NDArray | None:
        """Return the array of a constant, or of a value made of constants by ops of :data:`_FOLDED`."""
        if isinstance(value, Constant):
            return self._graph.array(value)
        maker = self._maker(value)
        if maker is None or maker.op.name not in _FOLDED:
            return None
        operands = [self._array(operand) for operand in maker.operands]
        arrays = [operand for operand in operands if operand is not None]
        return evaluate_binding(maker, arrays, {})[0] if len(arrays) == len(operands) else None


def _ordered_axes(binding: Binding) -> tuple[int, ...] | None:
    """Return the axes of the weights in the order of their kernel; ``None`` if there is no kernel for the product."""
    x, weight = (shape_of(operand) for operand in binding.operands)
    if binding.op.name == "nn.dense":
        return (0, 1)
    if binding.op.name == "matmul":
        return (1, 0) if len(weight) == 2 and len(x) > 1 else None
    if int_of(binding, "groups") != 1 or binding.attrs["data_layout"] != "NHWC":
        return None
    return axes_of(str(binding.attrs["kernel_layout"]), "OI")


def _narrow(array: NDArray, scale: NDArray | None) -> _Weight | None:
    """Return weights as int8, with a zero point for all or for each output channel only if needed to fit."""
    found = to_bytes(array, channel=0)
    if found is None:
        return None
    integers, zero = found
    return _Weight(integers, scale, zero.astype(np.int32).reshape(-1) if zero.any() else None)


def _factor(image: _Image, weight: _Weight) -> NDArray:
    """Return the factor of the sums: both scales, rounded once."""
    assert image.scale is not None
    assert weight.scale is not None
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.float64(image.scale) * weight.scale.astype(np.float64)).astype(np.float32)


def _are_normal(factor: NDArray) -> bool:
    """Return whether all factors are normal numbers: the unit roundoff bounds no rounding error of others."""
    sizes = np.abs(factor)
    return bool(np.all(np.isfinite(sizes) & (sizes >= np.finfo(np.float32).tiny)))
