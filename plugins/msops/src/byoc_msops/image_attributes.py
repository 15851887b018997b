"""The attributes of convolution and pooling, and images with channels first or last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from byoc_core.frontend.onnx import NodeContext
from byoc_core.ir import Value

from byoc_msops.operands import permute

__all__ = ["CONVOLUTION", "POOLING", "channels_first", "channels_last", "read_attributes"]

CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
"""The attributes of a convolution."""

POOLING = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides")
"""The attributes of a pooling."""

_READERS: Mapping[str, Callable[[NodeContext, str], object]] = MappingProxyType(
    {
        "auto_pad": lambda node, name: node.attr_string(name),
        "ceil_mode": lambda node, name: node.attr_int(name),
        "count_include_pad": lambda node, name: node.attr_int(name),
        "dilations": lambda node, name: node.attr_ints(name),
        "group": lambda node, name: node.attr_int(name),
        "kernel_shape": lambda node, name: node.attr_ints(name),
        "pads": lambda node, name: node.attr_ints(name),
        "strides": lambda node, name: node.attr_ints(name),
    }
)


def read_attributes(node: NodeContext, names: Sequence[str]) -> dict[str, object]:
    """Return the present attributes among ``names``; an empty list stands for the default."""
    values = {name: _READERS[name](node, name) for name in names if node.has_attr(name)}
    return {name: value for name, value in values.items() if value != ()}


def channels_first(node: NodeContext, x: Value) -> Value:
    """Return an image ``(N, ..., C)`` as ``(N, C, ...)``."""
    rank = len(node.shape_of(x))
    return permute(node, x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(node: NodeContext, x: Value) -> Value:
    """Return an image ``(N, C, ...)`` as ``(N, ..., C)``."""
    return permute(node, x, (0, *range(2, len(node.shape_of(x))), 1))
