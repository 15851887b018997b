"""Ops rearranging a matrix or an image: triangles, and blocks of pixels as channels."""

from __future__ import annotations

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import SELECTING, OpDef, OperandSpec
from byoc_core.opset.type_rules import require_rank
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import bound_of_any

__all__ = ["OPS"]


def _trilu(x: NDArray, *, k: int, upper: bool) -> NDArray:
    """Return ``x`` with zeros below (``upper``) or above diagonal ``k`` of the last two axes; the diagonal is kept."""
    rows, columns = x.shape[-2:]
    offset = np.arange(columns) - np.arange(rows)[:, None]
    is_kept = offset >= k if upper else offset <= k
    return np.where(is_kept, x, np.zeros((), x.dtype))


def _depth_to_space(x: NDArray, *, block_size: int, mode: str) -> NDArray:
    """Return an image (N, C, H, W) with blocks of pixels in place of channels.

    Raises:
        ExecutionError: the square of the block size does not divide the channels.
    """
    n, c, h, w = x.shape
    b = block_size
    _check_blocks("depth_to_space", (c,), b * b)
    depth = c // (b * b)
    if mode == "DCR":
        blocks = x.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, depth, h * b, w * b)


def _space_to_depth(x: NDArray, *, block_size: int, mode: str) -> NDArray:
    """Return an image (N, C, H, W) with channels in place of blocks of pixels: the inverse of :func:`_depth_to_space`.

    Raises:
        ExecutionError: the block size does not divide height and width.
    """
    n, c, h, w = x.shape
    b = block_size
    _check_blocks("space_to_depth", (h, w), b)
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    blocks = blocks.transpose(0, 3, 5, 1, 2, 4) if mode == "DCR" else blocks.transpose(0, 1, 3, 5, 2, 4)
    return blocks.reshape(n, c * b * b, h // b, w // b)


def _check_blocks(op: str, sizes: tuple[int, ...], divisor: int) -> None:
    for size in sizes:
        if size % divisor:
            raise ExecutionError(
                f"op `{op}`", "an axis is not divisible into blocks", got=size, expected=f"a multiple of {divisor}"
            )


def _infer_trilu(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    if len(shape) < 2:
        raise context.error(
            f"has rank {len(shape)}", operand=0, got=context.tensor(0), expected="rank 2 or more: (..., M, N)"
        )
    return (context.tensor(0),)


def _blocks(context: TypeContext, axis: int, size: Dim, divisor: int) -> Dim:
    """Return the number of blocks of an axis.

    Raises:
        IRTypeError: the axis is not divisible into blocks.
    """
    rest = size % divisor
    if isinstance(rest, int) and rest:
        raise context.error(
            f"axis {axis} is not divisible into blocks", operand=0, got=size, expected=f"a multiple of {divisor}"
        )
    return size // divisor


def _block_size(context: TypeContext) -> int:
    block: int = context.attrs["block_size"]
    if block < 1:
        raise context.error("attribute `block_size` is too small", got=block, expected="1 or more")
    return block


def _infer_depth_to_space(context: TypeContext) -> tuple[Type, ...]:
    n, c, h, w = require_rank(context, 0, 4, "(N, C, H, W)")
    block = _block_size(context)
    depth = _blocks(context, 1, c, block * block)
    return (TensorType((n, depth, h * block, w * block), context.tensor(0).dtype),)


def _infer_space_to_depth(context: TypeContext) -> tuple[Type, ...]:
    n, c, h, w = require_rank(context, 0, 4, "(N, C, H, W)")
    block = _block_size(context)
    height, width = _blocks(context, 2, h, block), _blocks(context, 3, w, block)
    return (TensorType((n, c * block * block, height, width), context.tensor(0).dtype),)


_BLOCK_SIZE = AttrSpec("block_size", AttrKind.INT, doc="The height and width B of a block.")
_MODE = AttrSpec(
    "mode",
    AttrKind.STR,
    "DCR",
    ("DCR", "CRD"),
    doc="The order of the parts of a channel's number, slowest first: ``DCR``: row in the block, column, depth; "
    "``CRD``: depth, row, column.",
)

OPS: tuple[OpDef, ...] = (
    OpDef(
        "trilu",
        (OperandSpec("x"),),
        _infer_trilu,
        attrs=(
            AttrSpec(
                "k",
                AttrKind.DIM,
                0,
                doc="The bounding diagonal: 0 for the main diagonal, 1 for the next above, -1 for the next below.",
            ),
            AttrSpec(
                "upper",
                AttrKind.BOOL,
                True,
                doc="Whether to keep the elements above the diagonal, instead of the elements below.",
            ),
        ),
        flops=no_flops,
        kernel=NumpyKernel(_trilu),
        cases=lambda: (example((4, 5)), example((2, 4, 5), upper=False, k=1)),
        doc="Return the matrices of the last two axes with zeros on one side of a diagonal; the diagonal itself is "
        "kept.\n\n"
        "Shapes: ``(..., M, N) -> (..., M, N)``.",
    ),
    OpDef(
        "depth_to_space",
        (OperandSpec("x"),),
        _infer_depth_to_space,
        attrs=(_BLOCK_SIZE, _MODE),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(_depth_to_space),
        bound=bound_of_any,
        cases=lambda: (example((2, 8, 3, 5), block_size=2),),
        doc="Return an image with channels rearranged into blocks of pixels.\n\n"
        "Shapes: ``(N, C*B*B, H, W) -> (N, C, H*B, W*B)``.",
    ),
    OpDef(
        "space_to_depth",
        (OperandSpec("x"),),
        _infer_space_to_depth,
        attrs=(_BLOCK_SIZE, _MODE),
        traits=SELECTING,
        flops=no_flops,
        kernel=NumpyKernel(_space_to_depth),
        bound=bound_of_any,
        cases=lambda: (example((2, 3, 4, 6), block_size=2),),
        doc="Return an image with blocks of pixels rearranged into channels: the inverse of ``depth_to_space``.\n\n"
        "Shapes: ``(N, C, H*B, W*B) -> (N, C*B*B, H, W)``.",
    ),
)
"""The family's ops."""
