"""Importers of convolution and pooling over images."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS"]


def _require_image(node: NodeContext) -> tuple[Dim, Dim]:
    """Gives height and width of the first input.

    Raises:
        FrontendError: it is not ``(N, C, H, W)``.
    """
    shape = node.shape(0)
    if len(shape) != 4:
        raise node.error(
            f"works on an input of rank {len(shape)}, which is not imported", expected="an input of shape (N, C, H, W)"
        )
    return shape[2], shape[3]


def _read_padding(
    node: NodeContext,
    image: tuple[Dim, Dim],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Gives the padding (top, left, bottom, right) that ``pads`` or ``auto_pad`` ask for.

    Raises:
        FrontendError: ``auto_pad`` depends on a size that is dynamic, or is unknown.
    """
    mode = node.attr_string("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return node.attr_ints("pads", (0, 0, 0, 0))
    node.ignore_attrs("pads")
    if mode == "VALID":
        return (0, 0, 0, 0)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error("attribute `auto_pad` is unknown", got=mode)
    begins, ends = [], []
    for size, kernel, stride, step in zip(image, window, strides, dilation, strict=True):
        total = _same_padding(node, size, (kernel - 1) * step + 1, stride)
        smaller, larger = total // 2, total - total // 2
        begins.append(smaller if mode == "SAME_UPPER" else larger)
        ends.append(larger if mode == "SAME_UPPER" else smaller)
    return (*begins, *ends)


def _same_padding(node: NodeContext, size: Dim, reach: int, stride: int) -> int:
    if stride == 1:
        return reach - 1
    if not isinstance(size, int):
        raise node.error("attribute `auto_pad` with strides needs sizes that are known", got=size)
    return max(0, (-(-size // stride) - 1) * stride + reach - size)


def _read_pair(node: NodeContext, name: str) -> tuple[int, ...]:
    values = node.attr_ints(name, (1, 1))
    if len(values) != 2:
        raise node.error(f"attribute `{name}` has the wrong number of values", got=values, expected="2")
    if min(values) < 1:
        raise node.error(f"attribute `{name}` has a value that is too small", got=values, expected="1 or more")
    return values


def _import_conv(node: NodeContext) -> Sequence[Imported]:
    image, weight = _require_image(node), node.shape(1)
    window = tuple(size for size in weight[2:] if isinstance(size, int))
    if len(weight) != 4 or len(window) != 2:
        raise node.error("its filter is not of a known size", got=weight, expected="(O, I, KH, KW)")
    if node.attr_ints("kernel_shape", window) != window:
        raise node.error("attribute `kernel_shape` differs from the filter", expected=window)
    strides, dilation = _read_pair(node, "strides"), _read_pair(node, "dilations")
    result = node.emit(
        "nn.conv2d",
        node.value(0),
        node.value(1),
        strides=strides,
        padding=_read_padding(node, image, window, strides, dilation),
        dilation=dilation,
        groups=node.attr_int("group", 1),
    )
    if node.has_input(2):
        result = node.emit("nn.bias_add", result, node.value(2), axis=1)
    return (result,)


def _pool_attrs(node: NodeContext) -> dict[str, object]:
    image, window = _require_image(node), node.attr_ints("kernel_shape")
    if len(window) != 2:
        raise node.error("attribute `kernel_shape` has the wrong number of values", got=window, expected="2")
    strides, dilation = _read_pair(node, "strides"), _read_pair(node, "dilations")
    return {
        "pool_size": window,
        "strides": strides,
        "padding": _read_padding(node, image, window, strides, dilation),
        "dilation": dilation,
        "ceil_mode": node.attr_flag("ceil_mode"),
    }


def _import_max_pool(node: NodeContext) -> Sequence[Imported]:
    node.ignore_attrs("storage_order")  # concerns the second output only, which is refused
    return (node.emit("nn.max_pool2d", node.value(0), **_pool_attrs(node)),)


def _import_average_pool(node: NodeContext) -> Sequence[Imported]:
    include = node.attr_flag("count_include_pad")
    return (node.emit("nn.avg_pool2d", node.value(0), **_pool_attrs(node), count_include_pad=include),)


def _import_global_pool(op: str) -> NodeImporter:
    def import_node(node: NodeContext) -> Sequence[Imported]:
        axes = tuple(range(2, len(node.shape(0))))
        return (node.emit(op, node.value(0), axis=axes, keepdims=True),)

    return import_node


IMPORTERS: dict[str, NodeImporter] = {
    "AveragePool": _import_average_pool,
    "Conv": _import_conv,
    "GlobalAveragePool": _import_global_pool("mean"),
    "GlobalMaxPool": _import_global_pool("max"),
    "MaxPool": _import_max_pool,
}
"""The family's importers, by ONNX name."""
