"""Random inputs of functions, for trying a model without data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from byoc_core.dims import evaluate
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import CallError
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["distribution_of", "draw_input"]

_NORMAL = "standard normal"


def draw_input(generator: np.random.Generator, spec: TensorSpec, sizes: Mapping[str, int]) -> NDArray:
    """Return an array for an input: floats are standard normal, integers and bools are 0 or 1.

    Args:
        generator: the source of random numbers.
        spec: the input.
        sizes: the size of each symbol of the shape.

    Raises:
        CallError: an array of these sizes is too large.
    """
    shape = tuple(evaluate(dim, sizes) for dim in spec.shape)
    try:
        if distribution_of(spec) == _NORMAL:
            return generator.standard_normal(shape).astype(to_numpy(spec.dtype))
        return generator.integers(0, 2, shape).astype(to_numpy(spec.dtype))
    except (ValueError, OverflowError) as error:
        raise CallError(
            f"input `{spec.name}`", "exceeds the largest possible array", got=f"shape {list(shape)}"
        ) from error


def distribution_of(spec: TensorSpec) -> str:
    """Return the name of an input's random distribution."""
    return _NORMAL if dtype_info(spec.dtype).kind == "float" else "zeros and ones"
