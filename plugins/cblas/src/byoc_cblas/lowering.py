"""The lowering of layers to calls of the C in the folder ``c``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from byoc_core.backend.hooks import CValue, LoweringBuilder
from byoc_core.backend.lowering import Buffer
from byoc_core.dims import Dim, product
from byoc_core.ir import Value, tensor

from byoc_cblas.layer import Layer, shape_of
from byoc_cblas.source import C_TYPES

__all__ = ["lower_layer"]

_LANES = 8
"""The largest number of threads expanding patches of a convolution at once."""

_PATCHES = 2**18
"""The wanted number of elements of the patches of a block: a megabyte of float32, to stay in the cache."""

_LEAST_PIXELS = 256
"""The least number of pixels of a block: for each block, the BLAS packs the filters again."""


def lower_layer(layer: Layer, builder: LoweringBuilder) -> None:
    """Add the calls of a layer."""
    if layer.op == "nn.conv2d":
        _lower_convolution(layer, builder)
    elif layer.op == "nn.dense":
        x, weight = shape_of(layer.x), shape_of(layer.weight)
        _multiply(layer, builder, [_Axis(1, False, False)], product(x[:-1]), weight[0], x[-1], transposed=True)
    else:
        _lower_matmul(layer, builder)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A batch axis of a product: the size of the result, and the operands with this axis."""

    size: Dim
    in_x: bool
    in_y: bool


def _lower_matmul(layer: Layer, builder: LoweringBuilder) -> None:
    x, y = shape_of(layer.x), shape_of(layer.weight)
    rows: Dim = x[-2] if len(x) > 1 else 1
    columns: Dim = y[-1] if len(y) > 1 else 1
    _multiply(layer, builder, _join_axes(x[:-2], y[:-2]), rows, columns, x[-1])


def _join_axes(x: Sequence[Dim], y: Sequence[Dim]) -> list[_Axis]:
    """Return the batch axes of a product; neighbouring axes in the same operands are a single axis."""
    rank = max(len(x), len(y))
    axes: list[_Axis] = []
    for left, right in zip((1,) * (rank - len(x)) + (*x,), (1,) * (rank - len(y)) + (*y,), strict=True):
        axis = _Axis(left if right == 1 else right, left != 1, right != 1)
        if axis.size == 1:
            continue
        if axes and (axes[-1].in_x, axes[-1].in_y) == (axis.in_x, axis.in_y):
            axis = _Axis(axes.pop().size * axis.size, axis.in_x, axis.in_y)
        axes.append(axis)
    return axes or [_Axis(1, False, False)]


def _multiply(
    layer: Layer,
    builder: LoweringBuilder,
    axes: Sequence[_Axis],
    rows: Dim,
    columns: Dim,
    inner: Dim,
    *,
    transposed: bool = False,
) -> None:
    """Add a call for the innermost batch axis, in loops over the others."""
    x, y, out = builder.buffer(layer.x), builder.buffer(layer.weight), builder.buffer(layer.result)
    *outer, last = axes
    strides = (rows * inner if last.in_x else 0, inner * columns if last.in_y else 0)
    sizes = [
        rows * inner * (last.size if last.in_x else 1),
        inner * columns * (last.size if last.in_y else 1),
        rows * columns * last.size,
    ]
    with ExitStack() as loops:
        indexes = [loops.enter_context(builder.loop(axis.size)) for axis in outer]
        used = ([axis.in_x for axis in outer], [axis.in_y for axis in outer], [True] * len(outer))
        offsets = [
            _offset(indexes, [axis.size for axis in outer], own, size) for own, size in zip(used, sizes, strict=True)
        ]
        builder.call_extern(
            f"byoc_cblas_matmul_{C_TYPES[layer.dtype]}",
            x.part(offsets[0], sizes[0]),
            y.part(offsets[1], sizes[1]),
            _bias(layer, builder),
            out.part(offsets[2], sizes[2]).written(),
            last.size,
            *strides,
            rows,
            columns,
            inner,
            int(transposed),
            int(layer.relu),
            returns_status=True,
        )


def _offset(indexes: Sequence[Dim], sizes: Sequence[Dim], used: Sequence[bool], size: Dim) -> Dim:
    """Return the offset of a part of an operand with some of the axes."""
    offset: Dim = 0
    for index, extent, is_used in zip(indexes, sizes, used, strict=True):
        if is_used:
            offset = offset * extent + index
    return offset * size


def _bias(layer: Layer, builder: LoweringBuilder) -> Buffer | CValue:
    if layer.bias is None:
        return CValue("NULL", f"const {C_TYPES[layer.dtype]} *")
    return builder.buffer(layer.bias)


def _lower_convolution(layer: Layer, builder: LoweringBuilder) -> None:
    attrs = layer.attrs
    is_last, filters_last = attrs["data_layout"] == "NHWC", attrs["kernel_layout"] == "HWIO"
    batch, channels, height, width = _image(layer.x, is_last=is_last)
    _, filters, out_height, out_width = _image(layer.result, is_last=is_last)
    sizes = shape_of(layer.weight)
    window = sizes[:2] if filters_last else sizes[2:]
    (groups,) = _ints(attrs["groups"])
    strides, dilation, padding = _ints(attrs["strides"]), _ints(attrs["dilation"]), _ints(attrs["padding"])
    is_direct = (*window, *strides) == (1, 1, 1, 1) and not any(padding)
    if is_direct and is_last and groups == 1:
        rows = batch * out_height * out_width
        axes = [_Axis(1, False, False)]
        _multiply(layer, builder, axes, rows, filters, channels, transposed=not filters_last)
        return
    pixels = out_height * out_width
    taps = product(sizes) // filters
    block, lanes = _blocks(taps, pixels, batch * groups)
    patches: Buffer | None = None
    if not is_direct:
        patches = builder.allocate(tensor((lanes * taps * block,), layer.dtype), "patches")
    builder.call_extern(
        f"byoc_cblas_conv_{C_TYPES[layer.dtype]}",
        builder.buffer(layer.x),
        builder.buffer(layer.weight),
        _bias(layer, builder),
        CValue("NULL", f"{C_TYPES[layer.dtype]} *") if patches is None else patches.written(),
        builder.buffer(layer.result).written(),
        *(batch, channels, height, width, filters, out_height, out_width, groups),
        *(*window, *strides, *padding[:2], *dilation, block, lanes),
        *(int(is_last), int(filters_last), int(layer.relu)),
        returns_status=True,
    )


def _image(value: Value, *, is_last: bool) -> Iterator[Dim]:
    """Yield the sizes of an image: batch, channels, height, width."""
    shape = shape_of(value)
    return iter((shape[0], shape[3], shape[1], shape[2]) if is_last else shape)


def _blocks(taps: Dim, pixels: Dim, images: Dim) -> tuple[int, int]:
    """Return the pixels of a block and the number of threads with patches of their own."""
    assert isinstance(taps, int)  # symbolic filters are refused before
    block = max(_LEAST_PIXELS, _PATCHES // max(1, taps) // 16 * 16)
    if not isinstance(pixels, int):
        return block, _LANES
    block = max(1, min(block, pixels))
    num_blocks = -(-pixels // block) * images
    return block, max(1, min(_LANES, num_blocks)) if isinstance(num_blocks, int) else _LANES


def _ints(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in values if isinstance(item, int))
