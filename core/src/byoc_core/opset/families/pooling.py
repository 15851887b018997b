"""Pooling over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.dims import Dim, product
from byoc_core.kernels.numpy_kernel import as_numpy_kernel
from byoc_core.opset.attributes import AttrKind, AttrSpec, AttrValue
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families.pooling_kernels import KERNELS
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, require_rank
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.windows import (
    DATA_LAYOUTS,
    RANKS,
    axes_of,
    axis_letters,
    axis_names,
    canonicalise_windows,
    count_windows,
    layout_text,
)

__all__ = ["OPS"]


def _infer_pool(context: TypeContext, kinds: tuple[str, ...]) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, kinds)
    attrs = context.attrs
    layout = attrs["layout"]
    shape = require_rank(context, 0, len(layout), layout_text(layout))
    axes = axes_of(layout, "NC")[2:]
    for axis, name in enumerate(axis_names(len(axes))):
        reach = (attrs["pool_size"][axis] - 1) * attrs["dilation"][axis] + 1
        for side, padding in (("begin", attrs["padding"][axis]), ("end", attrs["padding"][axis + len(axes)])):
            if padding >= reach:
                raise context.error(
                    f"attribute `padding` at the {side} of the {name} is not smaller than the window",
                    got=padding,
                    expected=f"less than {reach}",
                )
    result = list(shape)
    for axis, count in zip(axes, count_windows(context, [shape[a] for a in axes], attrs["pool_size"]), strict=True):
        result[axis] = count
    return (TensorType(tuple(result), type_.dtype),)


def _infer_max_pool(context: TypeContext) -> tuple[Type, ...]:
    return _infer_pool(context, NUMBER_KINDS)


def _infer_float_pool(context: TypeContext) -> tuple[Type, ...]:
    return _infer_pool(context, FLOAT_KINDS)


def _infer_lp_pool(context: TypeContext) -> tuple[Type, ...]:
    if context.attrs["p"] < 1:
        raise context.error("attribute `p` is too small", got=context.attrs["p"], expected="1 or more")
    return _infer_pool(context, FLOAT_KINDS)


def _pool_flops(context: OpContext) -> Dim:
    return context.elements() * product(context.attrs["pool_size"])


def _lp_pool_flops(context: OpContext) -> Dim:
    return context.elements() * (product(context.attrs["pool_size"]) + 1) * 2


def _canonicalise(op: str, rank: int) -> Callable[[Mapping[str, AttrValue]], Mapping[str, AttrValue]]:
    return lambda attrs: canonicalise_windows(op, rank, attrs, strides_default="pool_size")


def _pool_op(
    kind: str,
    rank: int,
    doc: str,
    infer: Callable[[TypeContext], tuple[Type, ...]],
    *,
    attrs: tuple[AttrSpec, ...] = (),
    flops: Callable[[OpContext], Dim] = _pool_flops,
) -> OpDef:
    name, letters, names = f"nn.{kind}_pool{rank}d", axis_letters(rank), ", ".join(axis_names(rank))
    layouts = DATA_LAYOUTS[rank]
    sizes, out_sizes = ", ".join(letters), ", ".join(f"O{letter}" for letter in letters)
    return OpDef(
        name,
        (OperandSpec("x"),),
        infer,
        attrs=(
            AttrSpec("pool_size", AttrKind.INTS, doc=f"Size of a window: {names}."),
            AttrSpec(
                "strides", AttrKind.INTS, None, doc=f"Step between windows: {names}; ``None``: the window's size."
            ),
            AttrSpec(
                "padding", AttrKind.INTS, (0,) * (2 * rank), doc=f"Widths before {names}, then the widths after them."
            ),
            AttrSpec("dilation", AttrKind.INTS, (1,) * rank, doc=f"Step between the taps of a window: {names}."),
            AttrSpec("ceil_mode", AttrKind.BOOL, False, doc="Whether a last, partial window counts."),
            *attrs,
            AttrSpec("layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``x`` and of the result."),
        ),
        flops=flops,
        kernel=as_numpy_kernel(KERNELS[name]),
        canonicalise=_canonicalise(name, rank),
        doc=f"{doc}\n\nShapes (``NC{letters}``): ``(N, C, {sizes}) -> (N, C, {out_sizes})`` with "
        "``OW = (W + before + after - (dilation * (KW - 1) + 1)) // stride + 1``; with ``ceil_mode`` the quotient is "
        "rounded up, as long as the last window starts inside the image or its leading padding.",
    )


def _pool_ops(rank: int) -> tuple[OpDef, ...]:
    return (
        _pool_op(
            "max", rank, "Gives the largest element of every window; padding never wins; NaN does.", _infer_max_pool
        ),
        _pool_op(
            "avg",
            rank,
            "Gives the mean of every window. What ``ceil_mode`` adds beyond the padding never counts; a window without "
            "any element gives 0.",
            _infer_float_pool,
            attrs=(
                AttrSpec(
                    "count_include_pad", AttrKind.BOOL, False, doc="Whether padding counts as zeros, or not at all."
                ),
            ),
        ),
        _pool_op(
            "lp",
            rank,
            "Gives ``sum(|x| ** p) ** (1/p)`` of every window; padding counts as zeros.",
            _infer_lp_pool,
            attrs=(AttrSpec("p", AttrKind.INT, 2, doc="The exponent."),),
            flops=_lp_pool_flops,
        ),
    )


OPS: tuple[OpDef, ...] = tuple(op for rank in RANKS for op in _pool_ops(rank))
"""The family's ops."""
