"""Weights of 4 or 8 bits with scales, and the private op multiplying by such weights.

:mod:`byoc_ccompiler.patterns` claims products of floats by dequantised weights if :func:`reject_weights` accepts the
weights; :mod:`byoc_ccompiler.regions.quantised_products` emits the op, and
:mod:`byoc_ccompiler.kernels.quantised_products` computes the op.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import AttrKind, AttrSpec, Binding, OpDef, OperandSpec, TensorType, Type, TypeContext
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.attributes import axis_of, int_of, ints_of
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["NUM_BITS", "QUANTISED_DENSE", "BlockWeights", "depth_axis_of", "reject_weights"]

NUM_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
"""The bits of a weight, by dtype."""

_WIDEST = 255
"""The largest difference of a weight and a zero point."""


def _infer(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType((*context.shape(0)[:-1], context.shape(1)[1]), "float32"),)


QUANTISED_DENSE = OpDef(
    "ccompiler.block_quantised_dense",
    (OperandSpec("x"), OperandSpec("weight"), OperandSpec("scale"), OperandSpec("zero_point", variadic=True)),
    _infer,
    attrs=(
        AttrSpec("num_bits", AttrKind.INT, 8, doc="The bits of a weight: 4 or 8."),
        AttrSpec("block_size", AttrKind.INT, 1, doc="Rows of ``weight`` sharing a scale."),
    ),
    doc="Return ``x @ ((weight - zero_point) * scale)`` in float32; without ``zero_point``, the zero points are 0.\n\n"
    "Shapes: ``x`` ``(..., K)`` of float32; ``weight`` ``(K, N)`` of int8, with values of ``num_bits`` bits; ``scale`` "
    "``(ceil(K / block_size), N)`` of float32; ``zero_point`` as ``scale``, of int8.",
)
"""A product with a constant matrix of weights with scales. The type rule does not check dtypes."""


class BlockWeights(NamedTuple):
    """The matrix ``(weight - zero) * scale`` in the form of the operands of :data:`QUANTISED_DENSE`.

    Attributes:
        weight: ``(K, N)``, int8, of ``num_bits`` bits with sign.
        scale: ``(S, N)``, float32, with ``S`` blocks.
        zero: ``(S, N)``, int8; ``None`` if all are 0.
        block_size: rows of a block.
        num_bits: the bits of a weight.
    """

    weight: NDArray
    scale: NDArray
    zero: NDArray | None
    block_size: int
    num_bits: int

    @classmethod
    def of(cls, dequantize: Binding, depth_axis: int, arrays: tuple[NDArray, NDArray, NDArray]) -> BlockWeights:
        """Return the weights in an accepted ``dequantize`` of constants.

        Args:
            dequantize: the op.
            depth_axis: the axis of the weights along the sums of the product.
            arrays: the operands of the op.
        """
        integers, scale, zero = arrays
        dtype = dtype_of(dequantize.operands[0])
        # Numbers without a sign lose half of their range, and so do their zero points.
        centre = 1 << (NUM_BITS[dtype] - 1) if dtype.startswith("uint") else 0
        weight = (integers.astype(np.int16) - centre).astype(np.int8)
        zeros = (zero.astype(np.int16) - centre).astype(np.int8)
        depth, columns = (weight.shape[axis] for axis in (depth_axis, 1 - depth_axis))
        block_size = int_of(dequantize, "block_size")
        if block_size == 0:
            scale, zeros = (np.broadcast_to(array.reshape(1, -1), (1, columns)) for array in (scale, zeros))
        if depth_axis == 1:
            weight = weight.T
            scale, zeros = (scale.T, zeros.T) if block_size else (scale, zeros)
        size = min(block_size or depth, depth)
        weight, scale, zeros = (np.ascontiguousarray(array) for array in (weight, scale, zeros))
        return cls(weight, scale, zeros if zeros.any() else None, size, NUM_BITS[dtype])


def depth_axis_of(product: Binding, permutations: Iterable[Binding]) -> int:
    """Return the axis of a matrix of weights along the sums of a product.

    Args:
        product: ``nn.dense`` or ``matmul``, with the weights on the right.
        permutations: ``permute_dims`` between the weights and the product, in any order.
    """
    axis = 1 if product.op.name == "nn.dense" else 0
    for permutation in permutations:
        if ints_of(permutation, "axes") != (0, 1):
            axis = 1 - axis
    return axis


def reject_weights(dequantize: Binding, depth_axis: int, scale: NDArray | None) -> Rejection | None:
    """Return the reason against weights of :data:`QUANTISED_DENSE`, or ``None`` if there is no reason.

    Args:
        dequantize: the op making the weights out of constants, in float32.
        depth_axis: the axis of the weights along the sums of the product.
        scale: the scale; ``None`` if not constant.
    """
    shape, dtype = shape_of(dequantize.result), dtype_of(dequantize.operands[0])
    if dtype not in NUM_BITS:
        return Rejection("dtype", f"weights of {dtype} stay packed in no kernel, only weights of {', '.join(NUM_BITS)}")
    if len(shape) != 2:
        return Rejection("rank", f"the weights have rank {len(shape)}, not 2")
    if 0 in shape:
        return Rejection("shape", "the weights are empty")
    if scale is None:
        return Rejection("constant", "the scale is not constant")
    if scale.ndim and (axis_of(dequantize, 2) == depth_axis) != (int_of(dequantize, "block_size") > 0):
        return Rejection(
            "axis", "the scales change along the sums without blocks, or are in blocks along the output channels"
        )
    with np.errstate(over="ignore"):
        is_finite = bool(np.isfinite(scale * np.float32(_WIDEST)).all())
    return None if is_finite else Rejection("value", "a scale makes weights beyond the range of float32")
