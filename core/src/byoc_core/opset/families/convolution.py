"""Convolution and transposed convolution over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from byoc_core.dims import Dim, product
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.opset.attributes import AttrKind, AttrSpec, AttrValue
from byoc_core.opset.cases import OpCase, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.families import convolution_kernels as kernels
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORMWISE_SUM
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, require_rank, require_same_dtype
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import ValueFacts, dot_bound
from byoc_core.opset.windows import (
    DATA_LAYOUTS,
    RANKS,
    axes_of,
    axis_letters,
    axis_names,
    canonicalise_windows,
    count_windows,
    example_image,
    layout_text,
)

__all__ = ["OPS"]


def _infer_conv(context: TypeContext) -> tuple[Type, ...]:
    image, weight, kernel_axes, dtype = _read_operands(context, "OI")
    attrs = context.attrs
    batch, channels, *sizes = image
    out_channels, in_channels, *window = weight
    _check_groups(context, (0, channels, "input channels"), (1, out_channels, "output channels"))
    groups = attrs["groups"]
    difference = in_channels * groups - channels
    if isinstance(difference, int) and difference != 0:
        per_group = f" in {groups} groups" if groups != 1 else ""
        raise context.error(
            f"axis {kernel_axes[1]} (input channels{' per group' if groups != 1 else ''}) has size {in_channels}",
            operand=1,
            expected=f"{channels // groups}, because operand `{_name(context, 0)}` has {channels} channels{per_group} "
            f"(axis {axes_of(attrs['data_layout'], 'NC')[1]})",
        )
    return _image_type(context, (batch, out_channels, *count_windows(context, sizes, window)), dtype)


def _infer_conv_transpose(context: TypeContext) -> tuple[Type, ...]:
    image, weight, kernel_axes, dtype = _read_operands(context, "IO")
    attrs = context.attrs
    batch, channels, *sizes = image
    in_channels, per_group, *window = weight
    _check_groups(context, (0, channels, "input channels"))
    difference = in_channels - channels
    if isinstance(difference, int) and difference != 0:
        raise context.error(
            f"axis {kernel_axes[0]} (input channels) has size {in_channels}",
            operand=1,
            expected=f"{channels}, because operand `{_name(context, 0)}` has {channels} channels "
            f"(axis {axes_of(attrs['data_layout'], 'NC')[1]})",
        )
    out_sizes: list[Dim] = []
    for axis, name in enumerate(axis_names(len(sizes))):
        begin, end = attrs["padding"][axis], attrs["padding"][axis + len(sizes)]
        reach = (window[axis] - 1) * attrs["dilation"][axis] + 1
        full_size = (sizes[axis] - 1) * attrs["strides"][axis] + reach + attrs["output_padding"][axis]
        if isinstance(full_size, int) and full_size <= begin + end:
            raise context.error(
                f"attribute `padding` leaves nothing of the {name}", got=begin + end, expected=f"less than {full_size}"
            )
        out_sizes.append(full_size - begin - end)
    return _image_type(context, (batch, per_group * attrs["groups"], *out_sizes), dtype)


def _read_operands(
    context: TypeContext, channels: str
) -> tuple[tuple[Dim, ...], tuple[Dim, ...], tuple[int, ...], str]:
    """Return the image's sizes (N, C, ...), the filter's (channels, ...), the filter's axes, and the dtype."""
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, 1)
    data_layout, kernel_layout = context.attrs["data_layout"], context.attrs["kernel_layout"]
    data_axes, kernel_axes = axes_of(data_layout, "NC"), axes_of(kernel_layout, channels)
    shape = require_rank(context, 0, len(data_layout), layout_text(data_layout))
    weight = require_rank(context, 1, len(kernel_layout), layout_text(kernel_layout))
    return tuple(shape[axis] for axis in data_axes), tuple(weight[axis] for axis in kernel_axes), kernel_axes, dtype


def _check_groups(context: TypeContext, *counted: tuple[int, Dim, str]) -> None:
    groups = context.attrs["groups"]
    if groups < 1:
        raise context.error("attribute `groups` is too small", got=groups, expected="1 or more")
    for operand, count, name in counted:
        if isinstance(count, int) and count % groups:
            raise context.error(f"has {count} {name}, not divisible into {groups} groups", operand=operand)


def _image_type(context: TypeContext, sizes: tuple[Dim, ...], dtype: str) -> tuple[Type, ...]:
    """Return the type of an image of sizes ``(N, C, ...)`` in the op's data layout."""
    result: list[Dim] = [0] * len(sizes)
    for axis, size in zip(axes_of(context.attrs["data_layout"], "NC"), sizes, strict=True):
        result[axis] = size
    return (TensorType(tuple(result), dtype),)


def _name(context: TypeContext, index: int) -> str:
    return context.operand_names[index] if index < len(context.operand_names) else str(index)


def _conv_flops(context: OpContext) -> Dim:
    """Return two operations for each element of the result and each tap of the filter."""
    return context.elements() * _taps(context, "OI") * 2


def _conv_transpose_flops(context: OpContext) -> Dim:
    """Return two operations for each element of the image and each tap of the filter."""
    return context.operand_elements(0) * _taps(context, "IO") * 2


def _taps(context: OpContext, channels: str) -> Dim:
    weight = context.operands[1]
    if not isinstance(weight, TensorType) or weight.shape is None:
        return 0
    axes = axes_of(context.attrs["kernel_layout"], channels)
    return product(weight.shape[axis] for axis in axes[1:])


def _num_rounds(context: OpContext) -> int:
    """Return the groups times the taps of a filter within a channel."""
    sizes = zip(context.attrs["kernel_layout"], context.operand_shape(1), strict=False)
    window = (size for letter, size in sizes if letter not in "OI" and isinstance(size, int))
    return math.prod((*context.ints("groups"), *window))


def _bound(facts: ValueFacts) -> float:
    """Return the bound of sums with each weight of the output channel taken at most once."""
    sizes = facts.sizes(1)
    out_axis = facts.context.attrs["kernel_layout"].index("O")
    return dot_bound(facts, out_axis, math.prod(sizes) // max(1, sizes[out_axis]))


def _conv_cases(rank: int) -> Iterator[OpCase]:
    ones, twos, threes, last = (1,) * rank, (2,) * rank, (3,) * rank, DATA_LAYOUTS[rank][1]
    channels_first, channels_last = (example_image(layout) for layout in DATA_LAYOUTS[rank])
    weight = (32, 16, *threes)
    yield example(channels_first, weight)
    yield example(channels_first, weight, padding=ones)
    yield example(channels_first, weight, strides=twos, padding=ones)
    if rank < 3:  # one image; channels in the units of vector and matrix engines
        size = channels_first[2:]
        yield example((1, 32, *size), (64, 32, *threes), padding=ones)
        yield example((1, 3, *size), (64, 3, *(7,) * rank), strides=twos, padding=threes)
        yield example(channels_first, weight, strides=twos, padding=(0,) * rank + ones)
    yield example(channels_first, weight, dilation=twos)
    yield example(channels_first, (32, 16, *ones))
    yield example(channels_first, (32, 8, *threes), groups=2)
    yield example(channels_first, (16, 1, *threes), groups=16, padding=ones)
    yield example(channels_last, weight, data_layout=last)
    hwio = f"{axis_letters(rank)}IO"
    yield example(channels_last, (*threes, 16, 32), data_layout=last, kernel_layout=hwio)


def _conv_transpose_cases(rank: int) -> Iterator[OpCase]:
    ones, twos, threes = (1,) * rank, (2,) * rank, (3,) * rank
    channels_first, channels_last = (example_image(layout) for layout in DATA_LAYOUTS[rank])
    weight = (16, 32, *threes)
    yield example(channels_first, weight)
    yield example(channels_first, weight, strides=twos, padding=ones, output_padding=ones)
    yield example(channels_first, (16, 8, *threes), groups=2)
    yield example(channels_last, weight, data_layout=DATA_LAYOUTS[rank][1])


def _canonicalise(op: str, rank: int) -> Callable[[Mapping[str, AttrValue]], Mapping[str, AttrValue]]:
    return lambda attrs: canonicalise_windows(op, rank, attrs)


def _shared_attrs(rank: int) -> tuple[AttrSpec, ...]:
    names = ", ".join(axis_names(rank))
    ones, zeros = (1,) * rank, (0,) * (2 * rank)
    return (
        AttrSpec("strides", AttrKind.INTS, ones, doc=f"Step between windows: {names}."),
        AttrSpec("padding", AttrKind.INTS, zeros, doc=f"Zeros before {names}, then zeros after."),
        AttrSpec("dilation", AttrKind.INTS, ones, doc=f"Step between the taps of the filter: {names}."),
        AttrSpec(
            "groups", AttrKind.INT, 1, doc="The number of groups of channels, each with an independent convolution."
        ),
        AttrSpec(
            "data_layout",
            AttrKind.STR,
            DATA_LAYOUTS[rank][0],
            DATA_LAYOUTS[rank],
            doc="Axes of ``x`` and of the result.",
        ),
    )


def _shapes(letters: str, prefix: str = "") -> str:
    return ", ".join(prefix + letter for letter in letters)


def _conv_op(rank: int) -> OpDef:
    letters, name = axis_letters(rank), f"nn.conv{rank}d"
    layouts = (f"OI{letters}", f"IO{letters}", f"{letters}IO")
    return OpDef(
        name,
        (OperandSpec("x"), OperandSpec("weight")),
        _infer_conv,
        attrs=(
            *_shared_attrs(rank),
            AttrSpec("kernel_layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``weight``."),
        ),
        flops=_conv_flops,
        kernel=NumpyKernel(kernels.conv, fresh=True, scratch=kernels.scratch_nbytes),
        rounds=_num_rounds,
        canonicalise=_canonicalise(name, rank),
        rounding=NORMWISE_SUM,
        bound=_bound,
        cases=lambda: _conv_cases(rank),
        doc="Return the cross-correlation of images with filters.\n\n"
        f"Shapes (``NC{letters}``, ``OI{letters}``): ``(N, C, {_shapes(letters)}), (O, C // groups, "
        f"{_shapes(letters, 'K')}) -> (N, O, {_shapes(letters, 'O')})`` with "
        "``OW = (W + before + after - (dilation * (KW - 1) + 1)) // stride + 1``. "
        f"In ``IO{letters}`` the first axis is ``C // groups``, the second ``O``.",
    )


def _conv_transpose_op(rank: int) -> OpDef:
    letters, name = axis_letters(rank), f"nn.conv{rank}d_transpose"
    layouts = (f"IO{letters}", f"OI{letters}", f"{letters}IO")
    names = ", ".join(axis_names(rank))
    return OpDef(
        name,
        (OperandSpec("x"), OperandSpec("weight")),
        _infer_conv_transpose,
        attrs=(
            *_shared_attrs(rank),
            AttrSpec("output_padding", AttrKind.INTS, (0,) * rank, doc=f"The additional size of the result: {names}."),
            AttrSpec("kernel_layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``weight``."),
        ),
        flops=_conv_transpose_flops,
        kernel=NumpyKernel(kernels.conv_transpose, fresh=True),
        rounds=_num_rounds,
        canonicalise=_canonicalise(name, rank),
        rounding=NORMWISE_SUM,
        bound=_bound,
        cases=lambda: _conv_transpose_cases(rank),
        doc="Return the transposed convolution (the gradient of a convolution): every element of the image adds a "
        "scaled filter to the result, then ``padding`` is cut off.\n\n"
        f"Shapes (``NC{letters}``, ``IO{letters}``): ``(N, C, {_shapes(letters)}), (C, O // groups, "
        f"{_shapes(letters, 'K')}) -> (N, O, {_shapes(letters, 'O')})`` with "
        "``OW = (W - 1) * stride + dilation * (KW - 1) + 1 + output_padding - before - after``.",
    )


OPS: tuple[OpDef, ...] = (*map(_conv_op, RANKS), *map(_conv_transpose_op, RANKS))
"""The family's ops."""
