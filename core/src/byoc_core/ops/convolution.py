"""Two-dimensional convolution, and what convolution and pooling share: window attributes and window counts."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dims import Dim, ceildiv, dim_min, product
from byoc_core.errors import IRTypeError
from byoc_core.ir.opdef import AttrKind, AttrSpec, AttrValue, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.ir.types import TensorType, Type
from byoc_core.kernels import KERNELS
from byoc_core.ops.type_rules import NUMBER_KINDS, require_kind, require_rank, require_same_dtype

__all__ = ["LAYOUT_AXES", "OPS", "canonicalise_windows", "count_windows"]

LAYOUT_AXES: Mapping[str, tuple[int, int, int, int]] = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 3, 1, 2)}
"""Where the batch, channel, height and width axes stand in each data layout."""

_KERNEL_AXES: Mapping[str, tuple[int, int, int, int]] = {
    "OIHW": (0, 1, 2, 3),
    "IOHW": (1, 0, 2, 3),
    "HWIO": (3, 2, 0, 1),
}


def canonicalise_windows(op: str, attrs: Mapping[str, AttrValue], *, strides_default: str = "") -> dict[str, AttrValue]:
    """Gives window attributes in one form: two strides, two dilations, four paddings (top, left, bottom, right).

    One value stands for all; two paddings stand for height and width, both sides.

    Args:
        op: the op's name, for messages.
        attrs: normalised attributes.
        strides_default: the attribute that ``strides`` of ``None`` copies.

    Raises:
        IRTypeError: an attribute has another number of values, or a value that is too small.
    """
    result = dict(attrs)
    if strides_default and result["strides"] is None:
        result["strides"] = result[strides_default]
    for name in ("pool_size", "strides", "dilation"):
        if name in result:
            result[name] = _repeated(op, name, result[name], {1: 2, 2: 1}, minimum=1)
    result["padding"] = _repeated(op, "padding", result["padding"], {1: 4, 2: 2, 4: 1}, minimum=0)
    return result


def _repeated(op: str, name: str, value: AttrValue, repeats: Mapping[int, int], *, minimum: int) -> tuple[int, ...]:
    values = tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()
    if len(values) not in repeats:
        counts = " or ".join(map(str, repeats))
        raise IRTypeError(
            f"op `{op}`, attribute `{name}`", "has the wrong number of values", got=value, expected=counts
        )
    if min(values) < minimum:
        raise IRTypeError(
            f"op `{op}`, attribute `{name}`", "has a value that is too small", got=value, expected=f"{minimum} or more"
        )
    return values * repeats[len(values)]


def count_windows(context: TypeContext, image: tuple[Dim, Dim], window: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
    """Gives how many windows fit along height and width, from the op's attributes.

    Args:
        context: the rule's context; its attributes are canonical.
        image: height and width of the image.
        window: height and width of the window.

    Raises:
        IRTypeError: the window is larger than the padded image; the axis is named.
    """
    attrs = context.attrs
    counts: list[Dim] = []
    for axis, name in enumerate(("height", "width")):
        begin, end, stride = attrs["padding"][axis], attrs["padding"][axis + 2], attrs["strides"][axis]
        reach = (window[axis] - 1) * attrs["dilation"][axis] + 1
        room = image[axis] + begin + end - reach
        if isinstance(room, int) and room < 0:
            raise context.error(
                f"{name} of the padded image is smaller than the window",
                operand=0,
                got=image[axis] + begin + end,
                expected=f"{reach} or more",
            )
        if attrs.get("ceil_mode"):
            counts.append(dim_min(ceildiv(room, stride) + 1, ceildiv(image[axis] + begin, stride)))
        else:
            counts.append(room // stride + 1)
    return counts[0], counts[1]


def _infer_conv2d(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, 1)
    attrs = context.attrs
    data_axes, kernel_axes = LAYOUT_AXES[attrs["data_layout"]], _KERNEL_AXES[attrs["kernel_layout"]]
    shape = require_rank(context, 0, 4, "(" + ", ".join(attrs["data_layout"]) + ")")
    weight = require_rank(context, 1, 4, "(" + ", ".join(attrs["kernel_layout"]) + ")")
    batch, channels, height, width = (shape[axis] for axis in data_axes)
    out_channels, in_channels, kernel_height, kernel_width = (weight[axis] for axis in kernel_axes)
    groups = attrs["groups"]
    if groups < 1:
        raise context.error("attribute `groups` is too small", got=groups, expected="1 or more")
    for operand, count, name in ((0, channels, "input channels"), (1, out_channels, "output channels")):
        if isinstance(count, int) and count % groups:
            raise context.error(f"has {count} {name}, which {groups} groups do not divide", operand=operand)
    difference = in_channels * groups - channels
    if isinstance(difference, int) and difference != 0:
        per_group = f" in {groups} groups" if groups != 1 else ""
        raise context.error(
            f"axis {kernel_axes[1]} (input channels{' per group' if groups != 1 else ''}) has size {in_channels}",
            operand=1,
            expected=f"{channels // groups}, because operand `{_name(context, 0)}` has {channels} channels{per_group} "
            f"(axis {data_axes[1]})",
        )
    out_height, out_width = count_windows(context, (height, width), (kernel_height, kernel_width))
    result: list[Dim] = [0, 0, 0, 0]
    for axis, size in zip(data_axes, (batch, out_channels, out_height, out_width), strict=True):
        result[axis] = size
    return (TensorType(tuple(result), dtype),)


def _name(context: TypeContext, index: int) -> str:
    return context.operand_names[index] if index < len(context.operand_names) else str(index)


def _conv2d_flops(context: CostContext) -> Dim:
    weight = context.operands[1]
    if not isinstance(weight, TensorType) or weight.shape is None:
        return 0
    axes = _KERNEL_AXES[context.attrs["kernel_layout"]]
    return context.elements() * product(weight.shape[axis] for axis in axes[1:]) * 2


def _canonicalise_conv2d(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    return canonicalise_windows("nn.conv2d", attrs)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.conv2d",
        (OperandSpec("x"), OperandSpec("weight")),
        _infer_conv2d,
        attrs=(
            AttrSpec("strides", AttrKind.INTS, (1, 1), doc="Step between windows: height, width."),
            AttrSpec(
                "padding", AttrKind.INTS, (0, 0, 0, 0), doc="Rows and columns of zeros: top, left, bottom, right."
            ),
            AttrSpec("dilation", AttrKind.INTS, (1, 1), doc="Step between the taps of the filter: height, width."),
            AttrSpec("groups", AttrKind.INT, 1, doc="Channels are split into so many independent convolutions."),
            AttrSpec("data_layout", AttrKind.STR, "NCHW", tuple(LAYOUT_AXES), doc="Axes of ``x`` and of the result."),
            AttrSpec("kernel_layout", AttrKind.STR, "OIHW", tuple(_KERNEL_AXES), doc="Axes of ``weight``."),
        ),
        flops=_conv2d_flops,
        kernel=KERNELS["nn.conv2d"],
        canonicalise=_canonicalise_conv2d,
        doc="Gives the cross-correlation of images with filters.\n\n"
        "Shapes (``NCHW``, ``OIHW``): ``(N, C, H, W), (O, C // groups, KH, KW) -> (N, O, OH, OW)`` with "
        "``OH = (H + top + bottom - (dilation * (KH - 1) + 1)) // stride + 1``. In ``IOHW`` the first axis is "
        "``C // groups``, the second ``O``.",
    ),
)
"""The family's ops."""
