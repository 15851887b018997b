"""Conditions on a match besides its shape: values of constants, axes of reductions, dtypes of casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.ir import Constant, Value
from byoc_core.pattern import Match
from byoc_core.transform.rewriter import RewriteGraph
from byoc_core.transform.tensors import rank_of

__all__ = ["holds", "is_computed_in", "kept_axes"]

_NARROW = ("float16", "bfloat16")


def kept_axes(match: Match, capture: str) -> tuple[int, ...] | None:
    """Return the axes of a reduction, counted from the front and in order; ``None`` unless kept with size 1."""
    attrs: dict[str, Any] = dict(match.binding(capture).attrs)
    rank = rank_of(match["x"])
    if rank is None or not attrs["keepdims"]:
        return None
    return tuple(range(rank)) if attrs["axis"] is None else tuple(sorted(axis % rank for axis in attrs["axis"]))


def holds(match: Match, graph: RewriteGraph, **ideal: float) -> bool:
    """Return whether the captured constants are these numbers, rounded once; missing captures are skipped."""
    return all(_is_rounded(match[name], graph, ideal[name]) for name in match.captures if name in ideal)


def _is_rounded(value: Value, graph: RewriteGraph, ideal: float) -> bool:
    """Return whether a constant is this number rounded to its dtype, or to float32 first for a narrower dtype."""
    number = graph.scalar(value)
    if number is None or not isinstance(value, Constant):
        return False
    dtype = to_numpy(value.type.dtype)
    steps = (dtype,) if dtype.itemsize >= 4 else (dtype, np.dtype(np.float32))
    return number in [float(np.array(ideal).astype(step).astype(dtype)) for step in steps]


def is_computed_in(narrow: str, wide: str) -> bool:
    """Return whether ops on a dtype compute in another and round once: casts around such ops are redundant."""
    return narrow in _NARROW and wide == "float32"
