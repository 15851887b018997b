"""Queries of rewriting rules about the types of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding, TensorType, Value

__all__ = ["dtype_of", "has_type_of_result", "permutation_of", "rank_of", "shape_of", "smallest_normal"]


def shape_of(value: Value) -> tuple[Dim, ...] | None:
    """Return the shape of a tensor; ``None`` for other values, and for unknown rank."""
    return value.type.shape if isinstance(value.type, TensorType) else None


def rank_of(value: Value) -> int | None:
    """Return the number of axes of a tensor, if known."""
    return value.type.rank if isinstance(value.type, TensorType) else None


def dtype_of(value: Value) -> str:
    """Return the dtype of a tensor, ``""`` for other values."""
    return value.type.dtype if isinstance(value.type, TensorType) else ""


def has_type_of_result(value: Value, binding: Binding) -> bool:
    """Return whether a value has the type of the result, with a known shape, excluding any broadcast or slicing."""
    return shape_of(value) is not None and value.type == binding.results[0].type


def permutation_of(binding: Binding) -> tuple[int, ...]:
    """Return the axes of a ``permute_dims`` of known rank, counted from the front."""
    rank = rank_of(binding.results[0]) or 0
    axes = binding.attrs["axes"]
    permutation = axes if isinstance(axes, tuple) else tuple(reversed(range(rank)))
    return tuple(axis % rank for axis in permutation if isinstance(axis, int))


def smallest_normal(dtype: str) -> float:
    """Return the smallest positive normal number of a floating-point dtype."""
    if dtype.startswith("float") and not dtype_info(dtype).from_ml_dtypes:
        return float(np.finfo(dtype).tiny)
    import ml_dtypes

    extension: Any = ml_dtypes
    return float(extension.finfo(dtype).tiny)
