"""Ops that rearrange a matrix or an image: triangles, and blocks of pixels as channels."""

from __future__ import annotations

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef, OperandSpec, TypeContext, no_flops
from byoc_core.opset.type_rules import require_rank
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _infer_trilu(context: TypeContext) -> tuple[Type, ...]:
    shape = context.shape(0)
    if len(shape) < 2:
        raise context.error(
            f"has rank {len(shape)}", operand=0, got=context.tensor(0), expected="rank 2 or more: (..., M, N)"
        )
    return (context.tensor(0),)


def _blocks(context: TypeContext, axis: int, size: Dim, divisor: int) -> Dim:
    """Gives how many blocks an axis has.

    Raises:
        IRTypeError: it is no whole number of them.
    """
    rest = size % divisor
    if isinstance(rest, int) and rest:
        raise context.error(
            f"axis {axis} is no whole number of blocks", operand=0, got=size, expected=f"a multiple of {divisor}"
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
    doc="What a channel's number counts, slowest first: ``DCR`` the row in the block, the column, the depth; ``CRD`` "
    "the depth, the row, the column.",
)

OPS: tuple[OpDef, ...] = (
    OpDef(
        "trilu",
        (OperandSpec("x"),),
        _infer_trilu,
        attrs=(
            AttrSpec("k", AttrKind.DIM, 0, doc="The diagonal that bounds it: 0 the main one, above it 1, below it -1."),
            AttrSpec("upper", AttrKind.BOOL, True, doc="Whether what is above the diagonal stays, not what is below."),
        ),
        flops=no_flops,
        kernel=KERNELS["trilu"],
        doc="Gives the matrices of the last two axes with zeros on one side of a diagonal, which stays itself.\n\n"
        "Shapes: ``(..., M, N) -> (..., M, N)``.",
    ),
    OpDef(
        "depth_to_space",
        (OperandSpec("x"),),
        _infer_depth_to_space,
        attrs=(_BLOCK_SIZE, _MODE),
        flops=no_flops,
        kernel=KERNELS["depth_to_space"],
        doc="Gives an image with blocks of pixels in place of channels.\n\n"
        "Shapes: ``(N, C*B*B, H, W) -> (N, C, H*B, W*B)``.",
    ),
    OpDef(
        "space_to_depth",
        (OperandSpec("x"),),
        _infer_space_to_depth,
        attrs=(_BLOCK_SIZE, _MODE),
        flops=no_flops,
        kernel=KERNELS["space_to_depth"],
        doc="Gives an image with channels in place of blocks of pixels: undoes ``depth_to_space``.\n\n"
        "Shapes: ``(N, C, H*B, W*B) -> (N, C*B*B, H, W)``.",
    ),
)
"""The family's ops."""
