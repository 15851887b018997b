"""Importers for columns of windows: their rearrangement to images, and deformable convolution."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import as_sizes, read_sizes, size_value
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


def _import_col2im(node: NodeContext) -> Sequence[Imported]:
    shape = node.shape(0)
    if len(shape) != 3:
        raise node.error("has columns of the wrong rank", got=ShapeValue(shape), expected="(N, C * block, blocks)")
    image, block = read_sizes(node, 1), read_sizes(node, 2)
    rank = len(image)
    if not rank or len(block) != rank:
        raise node.error("has image and block of different ranks", got=ShapeValue(block), expected=f"{rank} sizes")
    strides, dilation = (_read_each(node, name, rank, 1, 1) for name in ("strides", "dilations"))
    padding = _read_each(node, "pads", 2 * rank, 0, 0)
    counts = [
        (size + padding[axis] + padding[rank + axis] - (window - 1) * dilation[axis] - 1) // strides[axis] + 1
        for axis, (size, window) in enumerate(zip(image, block, strict=True))
    ]
    channels = _channels(node, shape[1], product(block))
    missing = product(counts) - shape[2]
    if isinstance(missing, int) and missing != 0:
        raise node.error("has another number of blocks than the image", got=shape[2], expected=product(counts))
    columns = node.reshape(node.value(0), (shape[0], channels, *block, *counts))
    attrs = {"image_size": image, "strides": strides, "dilation": dilation, "padding": padding}
    return (node.emit("nn.col2im", columns, **attrs),)


def _channels(node: NodeContext, size: Dim, block: Dim) -> Dim:
    """Return the number of channels, a quotient.

    Raises:
        FrontendError: the block does not divide the size.
    """
    if isinstance(block, int):
        if block < 1 or (isinstance(size, int) and size % block):
            raise node.error("has columns not divided by the block", got=size, expected=f"a multiple of {block}")
        return size // block
    (quotient,) = as_sizes(
        node, node.reshape(node.emit("divide", size_value(node, size), size_value(node, block)), (1,)), 1
    )
    return quotient


def _read_each(node: NodeContext, name: str, count: int, default: int, least: int) -> tuple[int, ...]:
    values = node.attr_ints(name, (default,) * count)
    if len(values) != count or min(values, default=least) < least:
        raise node.error(
            f"attribute `{name}` does not fit the axes", got=values, expected=f"{count} values of {least} or more"
        )
    return values


def _import_deform_conv(node: NodeContext) -> Sequence[Imported]:
    """Import deformable convolution: the product of the filters and the sampled columns."""
    shape, weight, offset = node.shape(0), node.shape(1), node.shape(2)
    rank = len(shape) - 2
    if rank < 1 or len(weight) != rank + 2 or len(offset) != rank + 2:
        raise node.error(
            "has images, filters and offsets of different ranks",
            got=f"{len(shape)}, {len(weight)} and {len(offset)}",
            expected="the same rank of 3 or more",
        )
    window = tuple(size for size in weight[2:] if isinstance(size, int))
    if len(window) != rank or node.attr_ints("kernel_shape", window) != window:
        raise node.error("attribute `kernel_shape` differs from the filter", expected=ShapeValue(weight[2:]))
    groups, offset_groups = node.attr_int("group", 1), node.attr_int("offset_group", 1)
    for name, count, size in (
        ("group", groups, shape[1]),
        ("group", groups, weight[0]),
        ("offset_group", offset_groups, shape[1]),
    ):
        if count < 1 or (isinstance(size, int) and size % count):
            raise node.error(
                f"attribute `{name}` does not divide the channels", got=count, expected=f"a divisor of {size}"
            )
    (batch, channels, *_), taps = shape, product(window)
    columns = node.emit(
        "nn.deformable_im2col",
        node.value(0),
        node.reshape(node.value(2), (batch, offset_groups, taps, rank, *offset[2:])),
        window=window,
        strides=_read_each(node, "strides", rank, 1, 1),
        dilation=_read_each(node, "dilations", rank, 1, 1),
        padding=_read_each(node, "pads", 2 * rank, 0, 0),
    )
    out_size = node.shape_of(columns)[3:]
    num_columns = product(out_size)
    if node.has_input(4):
        grouped = (batch, offset_groups, channels // offset_groups, taps, num_columns)
        mask = node.reshape(node.value(4), (batch, offset_groups, 1, taps, num_columns))
        columns = node.emit("multiply", node.reshape(columns, grouped), mask)
    result = node.reshape(_product(node, columns, groups, num_columns), (batch, weight[0], *out_size))
    return (node.emit("nn.bias_add", result, node.value(3), axis=1) if node.has_input(3) else result,)


def _product(node: NodeContext, columns: Value, groups: int, num_columns: Dim) -> Value:
    """Return the product of the filters and the columns, by groups of channels."""
    (batch, channels), (out_channels, inner, *window) = node.shape(0)[:2], node.shape(1)
    taps = product(window)
    if groups == 1:
        weight = node.reshape(node.value(1), (out_channels, inner * taps))
        return node.emit("matmul", weight, node.reshape(columns, (batch, channels * taps, num_columns)))
    weight = node.reshape(node.value(1), (groups, out_channels // groups, inner * taps))
    grouped = (batch, groups, channels // groups * taps, num_columns)
    return node.emit("matmul", weight, node.reshape(columns, grouped))


IMPORTERS: dict[str, NodeImporter] = {
    "Col2Im": _import_col2im,
    "DeformConv": _import_deform_conv,
}
"""The family's importers, by ONNX name."""
