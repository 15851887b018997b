"""Importers for convolution and matrix product on quantised integers.

The integers less their zero points are multiplied and summed in int32, as required by the standard; only scales are
floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.convolution import emit_convolution
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_ReadParameter = Callable[[NodeContext, int, int], Value]
"""Returns a parameter (an input) in a shape broadcasting against another input."""


def _scalar(node: NodeContext, index: int, target: int = 0) -> Value:
    """Return a parameter with a single value."""
    if node.shape(index) not in ((), (1,)):
        raise node.error(
            f"input {index} is not a scalar; other shapes are not supported", got=f"shape {node.shape(index)}"
        )
    return node.reshape(node.value(index), ())


def _along_filters(node: NodeContext, index: int, target: int) -> Value:
    """Return a scalar, or a value per filter, in a shape broadcasting against filters ``(O, I, ...)``."""
    return _with_trailing_axes(node, index, len(node.shape(target)) - 1)


def _along_channels(node: NodeContext, index: int, target: int) -> Value:
    """Return a scalar, or a value per filter, in a shape broadcasting against images ``(N, O, ...)``."""
    return _with_trailing_axes(node, index, len(node.shape(target)) - 2)


def _with_trailing_axes(node: NodeContext, index: int, num_axes: int) -> Value:
    """Return a scalar, or a value per filter followed by ``num_axes`` axes of size 1."""
    shape = node.shape(index)
    if len(shape) > 1:
        raise node.error(
            f"input {index} has unsupported rank {len(shape)}", expected="a scalar, or a value for each filter"
        )
    return _scalar(node, index) if shape in ((), (1,)) else node.reshape(node.value(index), (*shape, *(1,) * num_axes))


def _along_rows(node: NodeContext, index: int, target: int) -> Value:
    """Return a scalar, or a value per row, in a shape broadcasting against matrices ``(..., M, K)``."""
    shape = node.shape(index)
    if shape in ((), (1,)):
        return _scalar(node, index)
    return node.reshape(node.value(index), (*shape, 1)) if len(shape) == 1 else node.value(index)


def _along_columns(node: NodeContext, index: int, target: int) -> Value:
    """Return a scalar, or a value per column, in a shape broadcasting against matrices ``(..., K, N)``."""
    return _scalar(node, index) if node.shape(index) in ((), (1,)) else node.value(index)


def _centred(node: NodeContext, index: int, zero_point: int, parameter_of: _ReadParameter) -> Value:
    """Return an input less its zero point, in int32."""
    value = node.emit("cast", node.value(index), dtype="int32")
    if not node.has_input(zero_point):
        return value
    if node.type(zero_point).dtype != node.type(index).dtype:
        raise node.error(
            f"input {index} and its zero point (input {zero_point}) have different dtypes",
            got=node.type(zero_point).dtype,
            expected=node.type(index).dtype,
        )
    zero = node.emit("cast", parameter_of(node, zero_point, index), dtype="int32")
    return node.emit("subtract", value, zero)


def _import_conv_integer(node: NodeContext) -> Sequence[Imported]:
    x, w = _centred(node, 0, 2, _scalar), _centred(node, 1, 3, _along_filters)
    return (emit_convolution(node, x, w),)


def _import_matmul_integer(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("matmul", _centred(node, 0, 2, _along_rows), _centred(node, 1, 3, _along_columns)),)


def _import_quantised_conv(node: NodeContext) -> Sequence[Imported]:
    """Import ``x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias``; the bias has the scale of the sums."""
    x, w = _centred(node, 0, 2, _scalar), _centred(node, 3, 5, _along_filters)
    sums = emit_convolution(node, x, w, weight_index=3)
    if node.has_input(8):
        sums = node.emit("nn.bias_add", sums, node.value(8), axis=1)
    scale = node.emit("multiply", _scale(node, 1, 0, _scalar), _scale(node, 4, 3, _along_channels))
    return (_requantised(node, sums, scale),)


def _import_quantised_matmul(node: NodeContext) -> Sequence[Imported]:
    """Import ``a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero``."""
    sums = node.emit("matmul", _centred(node, 0, 2, _along_rows), _centred(node, 3, 5, _along_columns))
    scale = node.emit("multiply", _scale(node, 1, 0, _along_rows), _scale(node, 4, 3, _along_columns))
    return (_requantised(node, sums, scale),)


def _scale(node: NodeContext, index: int, target: int, parameter_of: _ReadParameter) -> Value:
    """Return a scale, in float32 for narrower dtypes: sums of products are beyond float16's range."""
    value = parameter_of(node, index, target)
    return node.emit("cast", value, dtype="float32") if node.type(index).dtype in ("float16", "bfloat16") else value


def _requantised(node: NodeContext, sums: Value, scale: Value) -> Value:
    """Multiply sums by the scale, and quantise with the result's scale (input 6) and zero point (input 7)."""
    real = node.emit("multiply", node.emit("cast", sums, dtype="float32"), scale)
    return node.emit("quantize", real, _scale(node, 6, 0, _scalar), _scalar(node, 7))


IMPORTERS: dict[str, NodeImporter] = {
    "ConvInteger": _import_conv_integer,
    "MatMulInteger": _import_matmul_integer,
    "QLinearConv": _import_quantised_conv,
    "QLinearMatMul": _import_quantised_matmul,
}
"""The family's importers, by ONNX name."""
