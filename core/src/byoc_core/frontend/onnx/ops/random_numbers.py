"""Importers for ops with random numbers.

A seed of the model is a constant, and gives the same numbers in every run. Other ops draw a seed in each run, by the op
``random.seed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf, isnan

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import number
from byoc_core.frontend.onnx.weights import dtype_of
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_WIDE = "float64"
"""The dtype of drawn numbers for comparisons with probabilities."""
_DEFAULT_RATIO = 0.5
"""The share of dropped elements."""
Draw = Callable[[NodeContext, Sequence[Dim], str], Value]
"""Emits random numbers, by shape and dtype."""


def _seed(node: NodeContext) -> Value:
    """Return the node's seed, without a fraction and modulo ``2**32``, or else a seed drawn in each run.

    Raises:
        FrontendError: the seed is infinite.
    """
    if not node.has_attr("seed"):
        return node.draw_seed()
    seed = node.attr_int("seed") if node.op_type == "Dropout" else node.attr_float("seed")
    if isnan(seed):
        return node.draw_seed()
    if isinf(seed):
        raise node.error("attribute `seed` is not finite", got=seed, expected="a number")
    return number(node, int(seed) % (1 << 32))


def _uniform(node: NodeContext, shape: Sequence[Dim], dtype: str) -> Value:
    ends = {"low": node.attr_float("low", 0.0), "high": node.attr_float("high", 1.0)}
    return node.emit("random.uniform", _seed(node), shape=tuple(shape), dtype=dtype, **ends)


def _normal(node: NodeContext, shape: Sequence[Dim], dtype: str) -> Value:
    moments = {"mean": node.attr_float("mean", 0.0), "scale": node.attr_float("scale", 1.0)}
    return node.emit("random.normal", _seed(node), shape=tuple(shape), dtype=dtype, **moments)


def _import_numbers(draw: Draw) -> NodeImporter:
    """Return the importer of an op with the shape in an attribute."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        shape = node.attr_ints("shape")
        if any(size < 0 for size in shape):
            raise node.error("attribute `shape` has a negative size", got=shape)
        return (draw(node, shape, _dtype(node, "float32")),)

    return import_node


def _import_numbers_like(draw: Draw) -> NodeImporter:
    """Return the importer of an op with the shape of an input."""

    def import_node(node: NodeContext) -> Sequence[Imported]:
        return (draw(node, node.shape(0), _dtype(node, node.type(0).dtype)),)

    return import_node


def _dtype(node: NodeContext, default: str) -> str:
    """Return the dtype of random numbers.

    Raises:
        FrontendError: the dtype is no float.
    """
    dtype = _any_dtype(node, default)
    if not is_float(dtype):
        raise node.error(
            "has random numbers of a dtype other than floats", got=dtype, expected="a floating-point dtype"
        )
    return dtype


def _any_dtype(node: NodeContext, default: str) -> str:
    return dtype_of(node.attr_int("dtype"), f"{node.label}, attribute `dtype`") if node.has_attr("dtype") else default


def _import_bernoulli(node: NodeContext) -> Sequence[Imported]:
    """Import draws of 0 and 1: an element is 1 if a uniform number is below the probability."""
    drawn = node.emit("random.uniform", _seed(node), shape=node.shape(0), dtype=_WIDE)
    is_one = node.emit("less", drawn, _cast(node, node.value(0), _WIDE))
    return (node.emit("cast", is_one, dtype=_any_dtype(node, node.type(0).dtype)),)


def _import_multinomial(node: NodeContext) -> Sequence[Imported]:
    """Import draws of classes, by the inversion of the cumulative probabilities.

    The class of a draw is the number of classes with a cumulative probability at most a uniform number.
    """
    shape, count = node.shape(0), node.attr_int("sample_size", 1)
    if len(shape) != 2:
        raise node.error("has an input of a wrong rank", got=len(shape), expected="2: (batch, classes)")
    if count < 1:
        raise node.error("attribute `sample_size` is too small", got=count, expected="1 or more")
    dtype = _any_dtype(node, "int32")
    if dtype not in ("int32", "int64"):
        raise node.error("attribute `dtype` is unknown", got=dtype, expected="int32 or int64")
    logits = _cast(node, node.value(0), _WIDE)
    shifted = node.emit("subtract", logits, node.emit("max", logits, axis=(1,), keepdims=True))
    cumulative = node.emit("cumsum", node.emit("exp", shifted), axis=1)
    total = node.emit("strided_slice", cumulative, axes=[1], begin=[-1], end=[np.iinfo(np.int64).max], strides=[1])
    drawn = node.emit("random.uniform", _seed(node), shape=(shape[0], count), dtype=_WIDE)
    level = node.reshape(node.emit("multiply", drawn, total), (shape[0], count, 1))
    inner = node.emit("strided_slice", cumulative, axes=[1], begin=[0], end=[-1], strides=[1])
    is_passed = node.emit("less_equal", node.reshape(inner, (shape[0], 1, node.shape_of(inner)[1])), level)
    return (node.emit("sum", node.emit("cast", is_passed, dtype=dtype), axis=(2,), keepdims=False),)


def _import_dropout(node: NodeContext) -> Sequence[Imported]:
    """Import dropout: at inference the identity, in training a product with a scaled mask."""
    training = node.array(2) if node.has_input(2) else np.zeros((), np.bool_)
    is_off = training is not None and not training.any()
    ratio = 0.0 if is_off else _constant_ratio(node)
    if ratio == 0:
        node.ignore_attrs("ratio", "seed")
        return _without_dropout(node)
    x, dtype = node.value(0), node.type(0).dtype
    drawn = node.emit("random.uniform", _seed(node), shape=node.shape(0), dtype=_WIDE)
    wide = (
        node.constant(np.float64(ratio)) if ratio is not None else _cast(node, node.reshape(node.value(1), ()), _WIDE)
    )
    mask = node.emit("greater_equal", drawn, wide)
    unit = node.constant(np.float64(1))
    scale = _cast(node, node.emit("divide", unit, node.emit("subtract", unit, wide)), dtype)
    result = node.emit("multiply", node.emit("multiply", x, scale), node.emit("cast", mask, dtype=dtype))
    if training is None:
        is_training = node.reshape(node.value(2), ())
        result = node.emit("where", is_training, result, x)
        mask = node.emit("logical_or", mask, node.emit("logical_not", is_training))
    return (result, mask)[: max(node.num_outputs, 1)]


def _constant_ratio(node: NodeContext) -> float | None:
    """Return the share of dropped elements, if known.

    Raises:
        FrontendError: the share is not in [0, 1).
    """
    if not node.has_input(1):
        return _DEFAULT_RATIO
    array = node.array(1)
    if array is None:
        return None
    if array.size != 1:
        raise node.error("the ratio is not a scalar", got=array.shape)
    ratio = float(array.astype(np.float64).item())
    if not 0 <= ratio < 1:
        raise node.error("the ratio is out of range", got=ratio, expected="0 or more, and below 1")
    return ratio


def _without_dropout(node: NodeContext) -> Sequence[Imported]:
    if node.num_outputs < 2:
        return (node.imported(0),)
    dtype = "bool" if node.opset >= 10 else node.type(0).dtype
    mask = node.emit("broadcast_to", node.constant(np.ones((), to_numpy(dtype))), shape=node.shape(0))
    return (node.imported(0), mask)


def _cast(node: NodeContext, value: Value, dtype: str) -> Value:
    return value if node.tensor_type(value).dtype == dtype else node.emit("cast", value, dtype=dtype)


IMPORTERS: dict[str, NodeImporter] = {
    "Bernoulli": _import_bernoulli,
    "Dropout": _import_dropout,
    "Multinomial": _import_multinomial,
    "RandomNormal": _import_numbers(_normal),
    "RandomNormalLike": _import_numbers_like(_normal),
    "RandomUniform": _import_numbers(_uniform),
    "RandomUniformLike": _import_numbers_like(_uniform),
}
"""The family's importers, by ONNX name."""
