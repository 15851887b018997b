"""Importers for convolution and pooling over images of one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
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
    return node.emit(
        f"nn.conv{rank}d",
        x,
        weight,
        strides=strides,
        padding=_read_padding(node, image, window, strides, dilation),
        dilation=dilation,
        groups=node.attr_int("group", 1),
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
    result = node.emit(
        f"nn.conv{rank}d_transpose",
        node.value(0),
        node.value(1),
        strides=strides,
        padding=_read_transposed_padding(node, image, window, strides, dilation, extra),
        dilation=dilation,
        groups=node.attr_int("group", 1),
        output_padding=extra,
    )
    return (_add_bias(node, result),)


def _read_transposed_padding(
    node: NodeContext,
    image: Sequence[Dim],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    extra: Sequence[int],
) -> tuple[int, ...]:
    """Return the padding to crop: ``pads``, or padding for ``output_shape``, or for the image's size times strides."""
    mode, rank = _read_auto_pad(node), len(image)
    output_shape: Sequence[Dim] = node.attr_ints("output_shape", ())[-rank:]
    if not output_shape and mode.startswith("SAME"):
        output_shape = [size * stride for size, stride in zip(image, strides, strict=True)]
    if not output_shape:
        nothing = (0,) * (2 * rank)
        return node.attr_ints("pads", nothing) if mode == "NOTSET" else nothing
    node.ignore_attrs("pads")
    total: list[int] = []
    for size, output_size, kernel, stride, step, extra_size in zip(
        image, output_shape, window, strides, dilation, extra, strict=True
    ):
        cut = (size - 1) * stride + (kernel - 1) * step + 1 + extra_size - output_size
        if not isinstance(cut, int):
            raise node.error("attribute `output_shape` needs known sizes", got=size)
        if cut < 0:
            raise node.error(
                "attribute `output_shape` exceeds the reach of the windows", got=output_size, expected=output_size + cut
            )
        total.append(cut)
    return _divide_padding(total, mode)


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
    node.ignore_attrs("storage_order")  # concerns only the unsupported second output
    return (node.emit(f"nn.max_pool{len(_read_image(node))}d", node.value(0), **_pool_attrs(node)),)


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
}
"""The family's importers, by ONNX name."""
