"""Two-dimensional pooling."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dims import Dim, product
from byoc_core.ir.opdef import AttrKind, AttrSpec, AttrValue, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.ir.types import TensorType, Type
from byoc_core.kernels import KERNELS
from byoc_core.ops.convolution import LAYOUT_AXES, canonicalise_windows, count_windows
from byoc_core.ops.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, require_rank

__all__ = ["OPS"]

_WINDOW_ATTRS = (
    AttrSpec("pool_size", AttrKind.INTS, doc="Size of a window: height, width."),
    AttrSpec("strides", AttrKind.INTS, None, doc="Step between windows: height, width; ``None``: the window's size."),
    AttrSpec(
        "padding", AttrKind.INTS, (0, 0, 0, 0), doc="Rows and columns around the image: top, left, bottom, right."
    ),
    AttrSpec("dilation", AttrKind.INTS, (1, 1), doc="Step between the taps of a window: height, width."),
    AttrSpec("ceil_mode", AttrKind.BOOL, False, doc="Whether a last, partial window counts."),
)
_LAYOUT_ATTR = AttrSpec("layout", AttrKind.STR, "NCHW", tuple(LAYOUT_AXES), doc="Axes of ``x`` and of the result.")
_SHAPES_DOC = (
    "Shapes (``NCHW``): ``(N, C, H, W) -> (N, C, OH, OW)`` with ``OH = (H + top + bottom - (dilation * (KH - 1) + 1)) "
    "// stride + 1``; with ``ceil_mode`` the quotient is rounded up, as long as the last window starts inside the "
    "image or its leading padding."
)


def _infer_pool(context: TypeContext, kinds: tuple[str, ...]) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, kinds)
    attrs = context.attrs
    shape = require_rank(context, 0, 4, "(" + ", ".join(attrs["layout"]) + ")")
    axes = LAYOUT_AXES[attrs["layout"]]
    for axis, name in enumerate(("height", "width")):
        reach = (attrs["pool_size"][axis] - 1) * attrs["dilation"][axis] + 1
        for side, padding in (("begin", attrs["padding"][axis]), ("end", attrs["padding"][axis + 2])):
            if padding >= reach:
                raise context.error(
                    f"attribute `padding` at the {side} of the {name} is not smaller than the window",
                    got=padding,
                    expected=f"less than {reach}",
                )
    height, width = count_windows(context, (shape[axes[2]], shape[axes[3]]), attrs["pool_size"])
    result = list(shape)
    result[axes[2]], result[axes[3]] = height, width
    return (TensorType(tuple(result), type_.dtype),)


def _infer_max_pool(context: TypeContext) -> tuple[Type, ...]:
    return _infer_pool(context, NUMBER_KINDS)


def _infer_avg_pool(context: TypeContext) -> tuple[Type, ...]:
    return _infer_pool(context, FLOAT_KINDS)


def _pool_flops(context: CostContext) -> Dim:
    return context.elements() * product(context.attrs["pool_size"])


def _canonicalise_max_pool(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    return canonicalise_windows("nn.max_pool2d", attrs, strides_default="pool_size")


def _canonicalise_avg_pool(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    return canonicalise_windows("nn.avg_pool2d", attrs, strides_default="pool_size")


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.max_pool2d",
        (OperandSpec("x"),),
        _infer_max_pool,
        attrs=(*_WINDOW_ATTRS, _LAYOUT_ATTR),
        flops=_pool_flops,
        kernel=KERNELS["nn.max_pool2d"],
        canonicalise=_canonicalise_max_pool,
        doc=f"Gives the largest element of every window; padding never wins; NaN does.\n\n{_SHAPES_DOC}",
    ),
    OpDef(
        "nn.avg_pool2d",
        (OperandSpec("x"),),
        _infer_avg_pool,
        attrs=(
            *_WINDOW_ATTRS,
            AttrSpec("count_include_pad", AttrKind.BOOL, False, doc="Whether padding counts as zeros, or not at all."),
            _LAYOUT_ATTR,
        ),
        flops=_pool_flops,
        kernel=KERNELS["nn.avg_pool2d"],
        canonicalise=_canonicalise_avg_pool,
        doc="Gives the mean of every window. What ``ceil_mode`` adds beyond the padding never counts; a window without "
        f"any element gives 0.\n\n{_SHAPES_DOC}",
    ),
)
"""The family's ops."""
