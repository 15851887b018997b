"""Resizing of images and other tensors by interpolation."""

from __future__ import annotations

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, resolve_axes
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_FLOPS_PER_AXIS = {"nearest": 0, "linear": 3, "cubic": 7}


def _infer_resize(context: TypeContext) -> tuple[Type, ...]:
    attrs = context.attrs
    type_ = require_kind(context, 0, (*NUMBER_KINDS, "bool") if attrs["method"] == "nearest" else FLOAT_KINDS)
    result = list(context.shape(0))
    axes = resolve_axes(context, attrs["axes"], len(result), attribute="axes")
    if list(axes) != list(attrs["axes"]):
        raise context.error("attribute `axes` counts from the end", got=attrs["axes"], expected=axes)
    for name in ("sizes", "scales"):
        values = attrs[name]
        if values is not None and len(values) != len(axes):
            raise context.error(
                f"attribute `{name}` has {len(values)} values", got=values, expected=f"one for each of {len(axes)} axes"
            )
    if attrs["scales"] is not None and min(attrs["scales"], default=1.0) <= 0:
        problem = "attribute `scales` has a value that is too small"
        raise context.error(problem, got=attrs["scales"], expected="above 0")
    for axis, size in zip(axes, attrs["sizes"], strict=True):
        if isinstance(size, int) and size < 1:
            raise context.error("attribute `sizes` has a value that is too small", got=size, expected="1 or more")
        result[axis] = size
    return (TensorType(tuple(result), type_.dtype),)


def _resize_flops(context: CostContext) -> Dim:
    return context.elements() * (_FLOPS_PER_AXIS[context.attrs["method"]] * len(context.attrs["axes"]))


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.resize",
        (OperandSpec("x"),),
        _infer_resize,
        attrs=(
            AttrSpec("axes", AttrKind.INTS, doc="The axes that get other sizes, counted from the front."),
            AttrSpec("sizes", AttrKind.DIMS, doc="The new size of each axis."),
            AttrSpec(
                "scales",
                AttrKind.FLOATS,
                None,
                doc="The factor of each axis by which places are computed; ``None``: the new size over the old one.",
            ),
            AttrSpec("method", AttrKind.STR, "nearest", tuple(_FLOPS_PER_AXIS), doc="How values between are found."),
            AttrSpec(
                "coordinates",
                AttrKind.STR,
                "half_pixel",
                (
                    "half_pixel",
                    "half_pixel_symmetric",
                    "half_pixel_or_first",
                    "half_pixel_for_nearest",
                    "align_corners",
                    "asymmetric",
                ),
                doc="Which place an index ``i`` of the result samples: ``(i + 0.5) / scale - 0.5``; the same around "
                "the middle of the axis; the same but 0 for a single index; ``(i + 0.5) / scale``; ``i * (old - 1) / "
                "(new - 1)``; ``i / scale``.",
            ),
            AttrSpec(
                "rounding",
                AttrKind.STR,
                "half_down",
                ("half_down", "half_up", "floor", "ceil"),
                doc="Which neighbour ``nearest`` takes.",
            ),
            AttrSpec("cubic_coefficient", AttrKind.FLOAT, -0.75, doc="The slope parameter of ``cubic``."),
            AttrSpec(
                "exclude_outside",
                AttrKind.BOOL,
                False,
                doc="Whether ``cubic`` leaves out neighbours beyond the ends, in place of repeating the last one.",
            ),
        ),
        flops=_resize_flops,
        kernel=KERNELS["nn.resize"],
        doc="Gives ``x`` resampled along axes to other sizes, one axis after the other.\n\n"
        "Shapes: that of ``x``, with ``sizes[i]`` in place of the size of ``axes[i]``.",
    ),
)
"""The family's ops."""
