"""Importers for convolution and pooling over images of one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import read_sizes
from byoc_core.frontend.onnx.ops.padding import surround
from byoc_core.frontend.onnx.ops.proven_sizes import with_size
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS", "emit_convolution"]


def _read_image(node: NodeContext) -> tuple[Dim, ...]:
    """Return the spatial sizes of the first input.

    Raises:
        FrontendError: the input has no spatial axes, or more than three.
    """
    shape = node.shape(0)
    if not 3 <= len(shape) <= 5:
        raise node.error(
            f"has an input of unsupported rank {len(shape)}",
            expected="an input of shape (N, C, W), (N, C, H, W) or (N, C, D, H, W)",
        )
    return shape[2:]


def _read_padding(
    node: NodeContext,
    image: Sequence[Dim],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Return the padding (before all axes, then after all axes) requested by ``pads`` or ``auto_pad``.

    Raises:
        FrontendError: ``auto_pad`` depends on a dynamic size, or is unknown.
    """
    mode = _read_auto_pad(node)
    nothing = (0,) * (2 * len(image))
    if mode == "NOTSET":
        return node.attr_ints("pads", nothing)
    node.ignore_attrs("pads")
    if mode == "VALID":
        return nothing
    total = [
        _same_padding(node, size, (kernel - 1) * step + 1, stride)
        for size, kernel, stride, step in zip(image, window, strides, dilation, strict=True)
    ]
    return _divide_padding(total, mode)


def _read_auto_pad(node: NodeContext) -> str:
    mode = node.attr_string("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.error("attribute `auto_pad` is unknown", got=mode)
    return mode


def _divide_padding(total: Sequence[int], mode: str) -> tuple[int, ...]:
    """Divide padding between both sides; with ``SAME_UPPER`` an odd padding is larger at the end."""
    smaller, larger = [width // 2 for width in total], [width - width // 2 for width in total]
    return (*smaller, *larger) if mode == "SAME_UPPER" else (*larger, *smaller)


def _same_padding(node: NodeContext, size: Dim, reach: int, stride: int) -> int:
    if stride == 1:
        return reach - 1
    if not isinstance(size, int):
        raise node.error("attribute `auto_pad` with strides needs known sizes", got=size)
    return max(0, (-(-size // stride) - 1) * stride + reach - size)


def _read_each(node: NodeContext, name: str, rank: int, *, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with one value for each spatial axis."""
    values = node.attr_ints(name, (default,) * rank)
    if len(values) != rank:
        raise node.error(f"attribute `{name}` has the wrong number of values", got=values, expected=rank)
    if min(values) < default:
        raise node.error(f"attribute `{name}` has a too small value", got=values, expected=f"{default} or more")
    return values


def _read_window(node: NodeContext, rank: int, index: int = 1) -> tuple[int, ...]:
    """Return the spatial sizes of the filter, given as this input of the node."""
    weight = node.shape(index)
    window = tuple(size for size in weight[2:] if isinstance(size, int))
    if len(weight) != rank + 2 or len(window) != rank:
        letters = ", ".join(f"K{letter}" for letter in "DHW"[-rank:])
        raise node.error("the filter has an unknown size or the wrong rank", got=weight, expected=f"(O, I, {letters})")
    if node.attr_ints("kernel_shape", window) != window:
        raise node.error("attribute `kernel_shape` differs from the filter", expected=window)
    return window


def emit_convolution(node: NodeContext, x: Value, weight: Value, *, weight_index: int = 1) -> Value:
    """Emit the convolution described by a node's attributes.

    Args:
        node: the node; its input 0 has the image's shape.
        x: the image.
        weight: the filter.
        weight_index: the input with the filter's shape.
    """
    image = _read_image(node)
    rank = len(image)
    window = _read_window(node, rank, weight_index)
    strides, dilation = _read_each(node, "strides", rank), _read_each(node, "dilations", rank)
    groups = node.attr_int("group", 1)
    return node.emit(
        f"nn.conv{rank}d",
        with_size(node, x, 1, node.shape(weight_index)[1] * groups),
        weight,
        strides=strides,
        padding=_read_padding(node, image, window, strides, dilation),
        dilation=dilation,
        groups=groups,
    )


def _import_conv(node: NodeContext) -> Sequence[Imported]:
    return (_add_bias(node, emit_convolution(node, node.value(0), node.value(1))),)


def _add_bias(node: NodeContext, result: Value) -> Value:
    return node.emit("nn.bias_add", result, node.value(2), axis=1) if node.has_input(2) else result


def _import_conv_transpose(node: NodeContext) -> Sequence[Imported]:
    image = _read_image(node)
    rank = len(image)
    window = _read_window(node, rank)
    strides, dilation = _read_each(node, "strides", rank), _read_each(node, "dilations", rank)
    extra = _read_each(node, "output_padding", rank, default=0)
    padding, missing = _read_transposed_padding(node, image, window, strides, dilation, extra)
    result = node.emit(
        f"nn.conv{rank}d_transpose",
        with_size(node, node.value(0), 1, node.shape(1)[0]),
        node.value(1),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=node.attr_int("group", 1),
        output_padding=[width + added for width, added in zip(extra, missing, strict=True)],
    )
    return (_add_bias(node, result),)


def _read_transposed_padding(
    node: NodeContext,
    image: Sequence[Dim],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    extra: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding to crop, and zeros to add at the end of each axis.

    The padding is ``pads``, or padding for ``output_shape``, or for the image's size times strides. Zeros are added if
    the requested size exceeds the reach of the windows, as by ONNX Runtime and in ONNX's test suite.
    """
    mode, rank = _read_auto_pad(node), len(image)
    output_shape: Sequence[Dim] = node.attr_ints("output_shape", ())[-rank:]
    if not output_shape and mode.startswith("SAME"):
        output_shape = [size * stride for size, stride in zip(image, strides, strict=True)]
    if not output_shape:
        nothing = (0,) * (2 * rank)
        return node.attr_ints("pads", nothing) if mode == "NOTSET" else nothing, nothing[:rank]
    node.ignore_attrs("pads")
    total: list[int] = []
    for size, output_size, kernel, stride, step, extra_size in zip(
        image, output_shape, window, strides, dilation, extra, strict=True
    ):
        cut = (size - 1) * stride + (kernel - 1) * step + 1 + extra_size - output_size
        if not isinstance(cut, int):
            raise node.error("attribute `output_shape` needs known sizes", got=size)
        total.append(cut)
    return _divide_padding([max(cut, 0) for cut in total], mode), tuple(max(-cut, 0) for cut in total)


def _pool_attrs(node: NodeContext) -> dict[str, object]:
    image, window = _read_image(node), node.attr_ints("kernel_shape")
    rank = len(image)
    if len(window) != rank:
        raise node.error("attribute `kernel_shape` has the wrong number of values", got=window, expected=rank)
    strides, dilation = _read_each(node, "strides", rank), _read_each(node, "dilations", rank)
    return {
        "pool_size": window,
        "strides": strides,
        "padding": _read_padding(node, image, window, strides, dilation),
        "dilation": dilation,
        "ceil_mode": node.attr_flag("ceil_mode"),
    }


def _import_max_pool(node: NodeContext) -> Sequence[Imported]:
    rank, order = len(_read_image(node)), node.attr_int("storage_order", 0)
    if order not in (0, 1):
        raise node.error("attribute `storage_order` is unknown", got=order, expected="0 or 1")
    attrs = _pool_attrs(node)
    result = node.emit(f"nn.max_pool{rank}d", node.value(0), **attrs)
    if node.num_outputs < 2:
        return (result,)
    return result, node.emit(f"nn.argmax_pool{rank}d", node.value(0), **attrs, column_major=order == 1)


def _import_max_unpool(node: NodeContext) -> Sequence[Imported]:
    """Import unpooling: elements are written into zeros, at indices over all elements of the result.

    The indices count the elements of an image as large as reached by the windows; a larger output shape adds zeros at
    the ends of the axes.
    """
    shape, image = node.shape(0), _read_image(node)
    rank, window = len(image), node.attr_ints("kernel_shape")
    if len(window) != rank:
        raise node.error("attribute `kernel_shape` has the wrong number of values", got=window, expected=rank)
    strides, pads = _read_each(node, "strides", rank), node.attr_ints("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise node.error("attribute `pads` has the wrong number of values", got=pads, expected=2 * rank)
    sizes = [
        (size - 1) * stride - pads[axis] - pads[rank + axis] + extent
        for axis, (size, stride, extent) in enumerate(zip(image, strides, window, strict=True))
    ]
    reached = (*shape[:2], *sizes)
    count = product(shape)
    zeros = node.emit("broadcast_to", node.scalar(0, 0), shape=(product(reached),))
    updates = node.reshape(node.value(1), (count,)), node.reshape(node.value(0), (count,))
    result = node.reshape(node.emit("scatter_elements", zeros, *updates, axis=0), reached)
    return (_extended(node, result, reached),)


def _extended(node: NodeContext, value: Value, shape: Sequence[Dim]) -> Value:
    """Return a value with zeros at the ends of its axes, as far as the shape in input 2 is larger."""
    target = read_sizes(node, 2, len(shape)) if node.has_input(2) else shape
    if len(target) != len(shape):
        raise node.error(
            "has an output shape of the wrong rank", got=ShapeValue(tuple(target)), expected=f"{len(shape)} sizes"
        )
    missing = [after - before for before, after in zip(shape, target, strict=True)]
    if any(isinstance(width, int) and width < 0 for width in missing):
        raise node.error(
            "has an output shape smaller than the reach of the windows",
            got=ShapeValue(tuple(target)),
            expected=f"at least {ShapeValue(tuple(shape))}",
        )
    widths = [width for after in missing for width in (0, after)]
    return surround(node, value, widths, node.scalar(0, 0)) if any(width != 0 for width in missing) else value


def _import_average_pool(node: NodeContext) -> Sequence[Imported]:
    include, op = node.attr_flag("count_include_pad"), f"nn.avg_pool{len(_read_image(node))}d"
    return (node.emit(op, node.value(0), **_pool_attrs(node), count_include_pad=include),)


def _import_lp_pool(node: NodeContext) -> Sequence[Imported]:
    exponent, op = node.attr_int("p", 2), f"nn.lp_pool{len(_read_image(node))}d"
    return (node.emit(op, node.value(0), **_pool_attrs(node), p=exponent),)


def _import_global_pool(op: str) -> NodeImporter:
    def import_node(node: NodeContext) -> Sequence[Imported]:
        axes = tuple(range(2, len(node.shape(0))))
        return (node.emit(op, node.value(0), axis=axes, keepdims=True),)

    return import_node


def _import_global_lp_pool(node: NodeContext) -> Sequence[Imported]:
    axes, exponent = tuple(range(2, len(node.shape(0)))), node.attr_int("p", 2)
    if exponent < 1:
        raise node.error("attribute `p` is too small", got=exponent, expected="1 or more")
    powers = node.emit("power", node.emit("abs", node.value(0)), node.scalar(exponent, 0))
    total = node.emit("sum", powers, axis=axes, keepdims=True)
    return (node.emit("power", total, node.scalar(1.0 / exponent, 0)),)


IMPORTERS: dict[str, NodeImporter] = {
    "AveragePool": _import_average_pool,
    "Conv": _import_conv,
    "ConvTranspose": _import_conv_transpose,
    "GlobalAveragePool": _import_global_pool("mean"),
    "GlobalLpPool": _import_global_lp_pool,
    "GlobalMaxPool": _import_global_pool("max"),
    "LpPool": _import_lp_pool,
    "MaxPool": _import_max_pool,
    "MaxUnpool": _import_max_unpool,
}
"""The family's importers, by ONNX name."""
