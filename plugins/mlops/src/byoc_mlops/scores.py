"""Scores of regressors and classifiers: inputs as matrices, transforms of scores, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim
from byoc_core.dtypes import is_float
from byoc_core.ir import Value

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext

__all__ = [
    "TRANSFORMS",
    "cast_to",
    "choose_label",
    "emit_binary_scores",
    "read_float_array",
    "read_labels",
    "read_matrix",
    "read_transform",
    "transform_scores",
]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The transforms of scores, in the order of the numbers of ``TreeEnsemble``."""

_NEARLY_ZERO = 1e-7
"""The magnitude below which ``SOFTMAX_ZERO`` takes a score as zero."""

_ROOT_OF_TWO = 1.41421356
_ERF_INVERSE = 0.147
"""The coefficient of the approximation of the inverse error function."""


def cast_to(node: NodeContext, value: Value, dtype: str) -> Value:
    """Return a value in a dtype."""
    return value if node.tensor_type(value).dtype == dtype else node.emit("cast", value, dtype=dtype)


def read_matrix(node: NodeContext, dtype: str | None = "float32") -> tuple[Value, Dim]:
    """Return the samples in the first input as ``(N, F)`` and the number of features; a vector is a single sample.

    Args:
        node: the node.
        dtype: the dtype of the result; ``None``: floats as they are, integers in float64.

    Raises:
        FrontendError: the input has another rank.
    """
    shape = node.shape(0)
    if len(shape) not in (1, 2):
        raise node.error("the samples are not a matrix", got=shape, expected="(samples, features)")
    own = node.type(0).dtype
    x = cast_to(node, node.value(0), dtype or (own if is_float(own) else "float64"))
    return node.reshape(x, (1, *shape)) if len(shape) == 1 else x, shape[-1]


def read_float_array(node: NodeContext, name: str) -> npt.NDArray[Any]:
    """Return a list of floats, or the tensor named with the suffix ``_as_tensor``; an empty array without either.

    Raises:
        FrontendError: both are present.
    """
    wide = f"{name}_as_tensor"
    if node.has_attr(name) and node.has_attr(wide):
        raise node.error(f"has attributes `{name}` and `{wide}`", expected="only one")
    if node.has_attr(wide):
        array = node.attr_array(wide).reshape(-1)
        return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
    return np.array(node.attr_floats(name) if node.has_attr(name) else (), np.float32)


def read_transform(node: NodeContext) -> str:
    """Return the name of the transform of scores.

    Raises:
        FrontendError: the name is unknown.
    """
    name = node.attr_string("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise node.error("attribute `post_transform` is unknown", got=name, expected=", ".join(TRANSFORMS))
    return name


def read_labels(node: NodeContext, integers: str) -> tuple[int, ...] | tuple[str, ...]:
    """Return the labels of classes, strings or integers; none without labels.

    Args:
        node: the node.
        integers: the name of the attribute of integers; ignored for labels of strings.
    """
    if node.has_attr("classlabels_strings") and (strings := node.attr_strings("classlabels_strings")):
        node.ignore_attrs(integers)
        return tuple(strings)
    return tuple(node.attr_ints(integers)) if node.has_attr(integers) else ()


def transform_scores(node: NodeContext, scores: Value, transform: str) -> Value:
    """Return transformed scores ``(N, E)``; single scores stay unchanged except by ``PROBIT``, as in ONNX Runtime."""
    width = node.shape_of(scores)[1]
    if transform == "PROBIT":
        return _probit(node, scores)
    if transform == "NONE" or width == 1:
        return scores
    if transform == "SOFTMAX":
        return node.emit("nn.softmax", scores, axis=1)
    return node.emit("sigmoid", scores) if transform == "LOGISTIC" else _softmax_zero(node, scores)


def emit_binary_scores(node: NodeContext, score: Value, transform: str, *, is_signed: bool) -> Value:
    """Return the scores ``(N, 2)`` of two classes from the score ``(N, 1)`` of the second class, as in ONNX Runtime.

    Args:
        node: the node.
        score: the score of the second class.
        transform: the transform.
        is_signed: whether the first score is ``-score``, in place of ``1 - score``.

    Raises:
        FrontendError: the transform is not defined for a pair of scores.
    """
    if transform == "PROBIT":
        raise node.error("attribute `post_transform` is PROBIT for two classes with a single score, without meaning")
    if transform == "LOGISTIC":
        pair = node.emit("concat", node.emit("negative", score), score, axis=1)
        return node.emit("sigmoid", pair)
    first = node.emit("negative", score) if is_signed else node.emit("subtract", _number(node, score, 1.0), score)
    return node.emit("concat", first, score, axis=1)


def choose_label(node: NodeContext, indices: Value, labels: Sequence[int] | Sequence[str]) -> Imported:
    """Return the label at each index."""
    if any(isinstance(label, str) for label in labels):
        return node.strings([str(label) for label in labels], indices)
    return node.emit("take", node.constant(np.array(labels, np.int64)), indices, axis=0)


def _number(node: NodeContext, like: Value, number: float) -> Value:
    """Return a scalar constant in the dtype of a value."""
    return node.constant(np.asarray(number, node.tensor_type(like).dtype))


def _softmax_zero(node: NodeContext, scores: Value) -> Value:
    """Return the softmax of the scores other than zero; scores near zero stay near zero."""
    emit, zero = node.emit, _number(node, scores, 0.0)
    is_zero = emit("less_equal", emit("abs", scores), _number(node, scores, _NEARLY_ZERO))
    largest = emit("max", scores, axis=(1,), keepdims=True)
    powers = emit("exp", emit("subtract", scores, largest))
    total = emit("sum", emit("where", is_zero, zero, powers), axis=(1,), keepdims=True)
    tiny = emit("multiply", scores, emit("exp", emit("negative", largest)))
    return emit("divide", emit("where", is_zero, tiny, powers), total)


def _probit(node: NodeContext, scores: Value) -> Value:
    """Return the inverse of the normal distribution, approximated as in ONNX Runtime.

    Source of the inverse error function: Winitzki, "A handy approximation for the error function and its inverse"
    (2008).
    """
    emit, zero, unit = node.emit, _number(node, scores, 0.0), _number(node, scores, 1.0)
    x = emit("subtract", emit("multiply", scores, _number(node, scores, 2.0)), unit)
    log = emit("log", emit("multiply", emit("subtract", unit, x), emit("add", unit, x)))
    half = emit("multiply", log, _number(node, scores, 0.5))
    middle = emit("add", half, _number(node, scores, 2 / (np.pi * _ERF_INVERSE)))
    squares = emit(
        "subtract", emit("multiply", middle, middle), emit("multiply", log, _number(node, x, 1 / _ERF_INVERSE))
    )
    root = emit("sqrt", emit("subtract", emit("sqrt", squares), middle))
    signed = emit("where", emit("less", x, zero), emit("negative", root), root)
    return emit("multiply", signed, _number(node, scores, _ROOT_OF_TWO))
