"""Importers of operators preparing features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from byoc_core.dims import product
from byoc_core.dtypes import is_float
from byoc_core.ir import Value

from byoc_mlops.scores import cast_to

if TYPE_CHECKING:
    from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter

__all__ = ["IMPORTERS"]


def _import_array_feature_extractor(node: NodeContext) -> Sequence[Imported]:
    """Import the choice of columns; a vector is a row, and indices are flattened."""
    shape, count = node.shape(0), product(node.shape(1))
    if not shape:
        raise node.error("chooses from a scalar", got=shape, expected="one axis or more")
    result = node.emit("take", node.value(0), node.reshape(node.value(1), (count,)), axis=len(shape) - 1)
    return (node.reshape(result, (1, count)) if len(shape) == 1 else result,)


def _import_binarizer(node: NodeContext) -> Sequence[Imported]:
    dtype, threshold = node.type(0).dtype, node.attr_float("threshold", 0.0)
    x = node.value(0) if is_float(dtype) else node.emit("cast", node.value(0), dtype="float64")
    bound = node.constant(np.asarray(threshold, node.tensor_type(x).dtype))
    return (node.emit("cast", node.emit("greater", x, bound), dtype=dtype),)


def _import_scaler(node: NodeContext) -> Sequence[Imported]:
    """Import ``(x - offset) * scale``; float64 is rounded to float32 last."""
    offset, scale = (_read_per_feature(node, name, node.attr_floats(name)) for name in ("offset", "scale"))
    dtype = "float64" if node.type(0).dtype == "float64" else "float32"
    x = cast_to(node, node.value(0), dtype)
    centred = node.emit("subtract", x, node.constant(offset.astype(dtype)))
    return (cast_to(node, node.emit("multiply", centred, node.constant(scale.astype(dtype))), "float32"),)


def _read_per_feature(node: NodeContext, name: str, numbers: Sequence[float]) -> npt.NDArray[np.generic]:
    """Return numbers for the last axis: one for each feature, or a scalar for all.

    Raises:
        FrontendError: the number of features is another.
    """
    num_features = (node.shape(0) or (1,))[-1]
    if len(numbers) == 1:
        return np.asarray(numbers[0])
    if not numbers or (isinstance(num_features, int) and len(numbers) != num_features):
        raise node.error(f"attribute `{name}` has the wrong size", got=len(numbers), expected=f"1 or {num_features}")
    return np.asarray(numbers)


def _import_normalizer(node: NodeContext) -> Sequence[Imported]:
    """Import the division of rows by a norm; rows with a norm of zero stay unchanged.

    The norm ``MAX`` is the largest number of the row, not the largest magnitude.
    """
    norm, rank = node.attr_string("norm", "MAX"), len(node.shape(0))
    if norm not in ("MAX", "L1", "L2"):
        raise node.error("attribute `norm` is unknown", got=norm, expected="MAX, L1, L2")
    if rank not in (1, 2):
        raise node.error("normalises neither a vector nor a matrix", got=node.shape(0))
    dtype = "float64" if node.type(0).dtype == "float64" else "float32"
    x, axis = cast_to(node, node.value(0), dtype), (rank - 1,)
    if norm == "MAX":
        divisor: Value = node.emit("max", x, axis=axis, keepdims=True)
    elif norm == "L1":
        divisor = node.emit("sum", node.emit("abs", x), axis=axis, keepdims=True)
    else:
        divisor = node.emit("sqrt", node.emit("sum", node.emit("multiply", x, x), axis=axis, keepdims=True))
    zero, unit = (node.constant(np.asarray(number, dtype)) for number in (0, 1))
    divisor = node.emit("where", node.emit("equal", divisor, zero), unit, divisor)
    return (cast_to(node, node.emit("divide", x, divisor), "float32"),)


def _import_imputer(node: NodeContext) -> Sequence[Imported]:
    """Import the replacement of a number, perhaps NaN, by a number for each feature of the last axis."""
    dtype = node.type(0).dtype
    suffix, kind = ("floats", "float") if is_float(dtype) else ("int64s", "int64")
    name = f"imputed_value_{suffix}"
    if not node.has_attr(name):
        raise node.error(f"lacks attribute `{name}` for elements of {dtype}")
    numbers: Sequence[float] = node.attr_floats(name) if is_float(dtype) else node.attr_ints(name)
    replaced = f"replaced_value_{kind}"
    number = node.attr_float(replaced, 0.0) if is_float(dtype) else node.attr_int(replaced, 0)
    node.ignore_attrs("replaced_value_float", "replaced_value_int64")  # of the other kind
    imputed = _read_per_feature(node, name, numbers).astype(dtype)
    x = node.value(0)
    is_missing = node.emit("isnan", x) if np.isnan(number) else node.emit("equal", x, node.scalar(number, 0))
    return (node.emit("where", is_missing, node.constant(imputed), x),)


def _import_feature_vectorizer(node: NodeContext) -> Sequence[Imported]:
    """Import the concatenation of rows in float32; inputs are cut or filled with zeros to the declared sizes."""
    declared = node.attr_ints("inputdimensions") if node.has_attr("inputdimensions") else None
    if declared is not None and len(declared) != node.num_inputs:
        raise node.error("attribute `inputdimensions` has the wrong size", got=len(declared), expected=node.num_inputs)
    parts = []
    for index in range(node.num_inputs):
        shape = node.shape(index)
        if len(shape) not in (1, 2):
            raise node.error(f"input {index} is neither a vector nor a matrix", got=shape)
        rows = node.reshape(cast_to(node, node.value(index), "float32"), (1, *shape)[-2:])
        parts += [rows] if declared is None else _fit_columns(node, rows, index, declared[index])
    return (parts[0] if len(parts) == 1 else node.emit("concat", *parts, axis=1),)


def _fit_columns(node: NodeContext, rows: Value, index: int, size: int) -> list[Value]:
    """Return rows ``(N, C)`` with ``size`` columns, as parts to concatenate.

    Raises:
        FrontendError: the number of columns is unknown.
    """
    count, columns = node.shape_of(rows)
    if not isinstance(columns, int) or size < 1:
        raise node.error(f"the number of columns of input {index} is unknown", got=columns, expected=size)
    if size < columns:
        return [node.emit("take", rows, node.constant(np.arange(size)), axis=1)]
    if size == columns:
        return [rows]
    zeros = node.emit("broadcast_to", node.constant(np.zeros((), np.float32)), shape=(count, size - columns))
    return [rows, zeros]


IMPORTERS: Mapping[str, NodeImporter] = {
    "ArrayFeatureExtractor": _import_array_feature_extractor,
    "Binarizer": _import_binarizer,
    "FeatureVectorizer": _import_feature_vectorizer,
    "Imputer": _import_imputer,
    "Normalizer": _import_normalizer,
    "Scaler": _import_scaler,
}
"""The module's importers, by ONNX name."""
