"""Importers for normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.dims import product
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.float_arithmetic import compute_in_wide_floats
from byoc_core.frontend.onnx.ops.proven_sizes import with_size
from byoc_core.frontend.onnx.ops.reduction import vector_norm
from byoc_core.ir.module import Value
from byoc_core.opset.types import TensorType

__all__ = ["IMPORTERS", "NARROW_FLOATS"]

NARROW_FLOATS = ("bfloat16", "float16")
"""The floats with softmax rounded step by step."""


def _import_batch_norm(node: NodeContext) -> Sequence[Imported]:
    momentum, epsilon = node.attr_float("momentum", 0.9), node.attr_float("epsilon", 1e-5)
    if not node.attr_flag("spatial", default=True):
        raise node.error("normalises every position separately (`spatial=0`), an unsupported mode")
    if not node.attr_flag("training_mode"):
        return (node.emit("nn.batch_norm", *_with_channels(node), axis=1, epsilon=epsilon),)
    if node.opset < 14:
        raise node.error("is in training mode", expected="operator set 14 or newer")
    x, scale, bias, *running = _with_channels(node)
    mean, variance = _moments(node, x, [axis for axis in range(len(node.shape(0))) if axis != 1], keepdims=False)
    result = node.emit("nn.batch_norm", x, scale, bias, mean, variance, axis=1, epsilon=epsilon)
    return (result, *(_moving(node, old, new, momentum) for old, new in zip(running, (mean, variance), strict=True)))


def _with_channels(node: NodeContext) -> list[Value]:
    """Return the inputs, the first with as many channels as the second has elements."""
    x, scale, *statistics = node.values()
    return [with_size(node, x, 1, node.shape_of(scale)[0]) if node.shape_of(scale) else x, scale, *statistics]


def _moments(node: NodeContext, x: Value, axes: Sequence[int], *, keepdims: bool) -> tuple[Value, Value]:
    """Return mean and variance along axes, the variance from centred values."""
    mean = node.emit("mean", x, axis=axes, keepdims=True)
    centred = node.emit("subtract", x, mean)
    variance = node.emit("mean", node.emit("multiply", centred, centred), axis=axes, keepdims=keepdims)
    return node.reshape(mean, node.shape_of(variance)), variance


def _moving(node: NodeContext, old: Value, new: Value, momentum: float) -> Value:
    """Return a moving average, in the dtype of the old value."""
    dtype = _tensor(old).dtype
    if _tensor(new).dtype != dtype:
        new = node.emit("cast", new, dtype=dtype)
    old_share, new_share = (
        node.constant(np.asarray(share).astype(to_numpy(dtype))) for share in (momentum, 1 - momentum)
    )
    return node.emit("add", node.emit("multiply", old, old_share), node.emit("multiply", new, new_share))


def _check_stash_type(node: NodeContext) -> None:
    # The kernels compute narrow types in float32, as requested by `stash_type=1`.
    if node.attr_int("stash_type", 1) != 1:
        raise node.error("attribute `stash_type` has an unsupported value", expected="1")


def _import_over_axes(op: str, num_parameters: int) -> NodeImporter:
    """Build the importer of layer and RMS norm; parameters broadcast to the axes from ``axis`` on."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        shape = node.shape(0)
        axis = node.axis(node.attr_int("axis", -1), len(shape))
        _check_stash_type(node)
        inner = shape[axis:]

        def parameter(index: int) -> Value:
            value = node.value(index) if node.has_input(index) else node.scalar(0.0, 0)
            parameter_shape = node.shape(index) if node.has_input(index) else ()
            return value if parameter_shape == inner else node.emit("broadcast_to", value, shape=inner)

        parameters = [parameter(index) for index in range(1, 1 + num_parameters)]
        axes, epsilon = tuple(range(axis, len(shape))), node.attr_float("epsilon", 1e-5)
        result = node.emit(op, node.value(0), *parameters, axes=axes, epsilon=epsilon)
        return (result, *_statistics(node, axes, epsilon)) if node.num_outputs > 1 else (result,)

    return import_node


def _statistics(node: NodeContext, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Return the further outputs of layer norm, in float32: the mean, and the inverse of the standard deviation."""
    x = node.value(0)
    if node.type(0).dtype != "float32":
        x = node.emit("cast", x, dtype="float32")
    mean, variance = _moments(node, x, axes, keepdims=True)
    deviation = node.emit("sqrt", node.emit("add", variance, node.constant(np.float32(epsilon))))
    return mean, node.emit("divide", node.constant(np.float32(1)), deviation)


def _import_group_norm(node: NodeContext) -> Sequence[Imported]:
    """Import group norm; before opset 21 each group has a single scale and bias."""
    _check_stash_type(node)
    channels, groups = node.shape(0)[1], node.attr_int("num_groups")
    if groups < 1:
        raise node.error("attribute `num_groups` is too small", got=groups, expected="1 or more")
    parameters: list[Value] = [node.value(1), node.value(2)]
    if node.opset < 21:
        per_channel = [
            node.emit("broadcast_to", node.reshape(parameter, (groups, 1)), shape=(groups, channels // groups))
            for parameter in parameters
        ]
        parameters = [node.reshape(parameter, (channels,)) for parameter in per_channel]
    epsilon = node.attr_float("epsilon", 1e-5)
    return (node.emit("nn.group_norm", node.value(0), *parameters, groups=groups, epsilon=epsilon),)


def _import_instance_norm(node: NodeContext) -> Sequence[Imported]:
    return (node.emit("nn.instance_norm", *_with_channels(node), epsilon=node.attr_float("epsilon", 1e-5)),)


def _import_lrn(node: NodeContext) -> Sequence[Imported]:
    attrs = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    factors = {name: node.attr_float(name, default) for name, default in attrs.items()}
    return (node.emit("nn.lrn", node.value(0), size=node.attr_int("size"), **factors),)


def _import_over_one_axis(compute: Callable[[NodeContext, Value, int], Value]) -> NodeImporter:
    """Build the importer of the softmax family; before opset 13 all axes from ``axis`` (default 1) on are joined."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        shape = node.shape(0)
        axis = node.axis(node.attr_int("axis", -1 if node.opset >= 13 else 1), len(shape))
        if node.opset >= 13 or axis == len(shape) - 1:
            return (compute(node, node.value(0), axis),)
        flat = node.reshape(node.value(0), (*shape[:axis], product(shape[axis:])))
        return (node.reshape(compute(node, flat, axis), shape),)

    return import_node


def _softmax(node: NodeContext, value: Value, axis: int) -> Value:
    """Return the softmax of a value; for narrow dtypes each step is rounded, following ONNX's function body."""
    is_narrow = node.tensor_type(value).dtype in NARROW_FLOATS
    return node.emit("nn.stepwise_softmax" if is_narrow else "nn.softmax", value, axis=axis)


def _log_softmax(node: NodeContext, value: Value, axis: int) -> Value:
    return node.emit("nn.log_softmax", value, axis=axis)


def _hardmax(node: NodeContext, value: Value, axis: int) -> Value:
    """Return 1 at the index of the first largest element along the axis, else 0."""
    type_ = _tensor(value)
    sizes = [size if index == axis else 1 for index, size in enumerate(type_.shape or ())]
    ones = node.emit("broadcast_to", node.constant(np.ones((), np.int64)), shape=sizes)
    indices = node.emit("cumsum", ones, axis=axis, exclusive=True)
    largest = node.emit("argmax", value, axis=axis, keepdims=True)
    numbers = (node.constant(np.array(number, to_numpy(type_.dtype))) for number in (1, 0))
    return node.emit("where", node.emit("equal", indices, largest), *numbers)


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _import_lp_norm(node: NodeContext) -> Sequence[Imported]:
    """Import normalisation by a norm; values with a norm of zero become zero."""
    p, axis = node.attr_int("p", 2), node.axis(node.attr_int("axis", -1), len(node.shape(0)))
    if p not in (1, 2):
        raise node.error("attribute `p` is unknown", got=p, expected="1 or 2")

    def normalise(value: Value) -> Value:
        norm = vector_norm(node, value, p, (axis,), keepdims=True)
        zero = node.constant(np.zeros((), to_numpy(_tensor(value).dtype)))
        return node.emit("where", node.emit("equal", norm, zero), zero, node.emit("divide", value, norm))

    return (compute_in_wide_floats(node, node.value(0), normalise),)


def _import_mean_variance(node: NodeContext) -> Sequence[Imported]:
    """Import ``(x - mean) / (sqrt(mean(x**2) - mean**2) + 1e-9)``; the variance is computed from centred values."""
    axes, x = node.attr_ints("axes", (0, 2, 3)), node.value(0)
    mean, variance = _moments(node, x, axes, keepdims=True)
    centred = node.emit("subtract", x, mean)
    deviation = node.emit("add", node.emit("sqrt", variance), node.scalar(1e-9, 0))
    return (node.emit("divide", centred, deviation),)


IMPORTERS: dict[str, NodeImporter] = {
    "BatchNormalization": _import_batch_norm,
    "GroupNormalization": _import_group_norm,
    "Hardmax": _import_over_one_axis(_hardmax),
    "InstanceNormalization": _import_instance_norm,
    "LRN": _import_lrn,
    "LayerNormalization": _import_over_axes("nn.layer_norm", 2),
    "LogSoftmax": _import_over_one_axis(_log_softmax),
    "LpNormalization": _import_lp_norm,
    "MeanVarianceNormalization": _import_mean_variance,
    "RMSNormalization": _import_over_axes("nn.rms_norm", 1),
    "Softmax": _import_over_one_axis(_softmax),
}
"""The family's importers, by ONNX name."""
