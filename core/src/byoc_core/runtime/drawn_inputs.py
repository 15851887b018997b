"""Random inputs of functions, for trying a model without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from byoc_core.dims import evaluate, shape_symbols
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import CallError
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["distribution_of", "draw_input", "draw_inputs"]

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


def draw_inputs(specs: Sequence[TensorSpec], sizes: Mapping[str, int], seed: int = 0) -> dict[str, NDArray]:
    """Return an array for each input, by name; see :func:`draw_input`.

    Args:
        specs: the inputs.
        sizes: the sizes of symbols; 1 for others.
        seed: of the random numbers.

    Raises:
        CallError: an array of these sizes is too large, or the sizes contradict each other.
    """
    generator = np.random.default_rng(seed)
    symbols = sorted(shape_symbols(dim for spec in specs for dim in spec.shape))
    all_sizes = {name: sizes.get(name, 1) for name in symbols}
    inputs = {spec.name: draw_input(generator, spec, all_sizes) for spec in specs}
    bind_symbols(specs, list(inputs.values()))
    return inputs


def distribution_of(spec: TensorSpec) -> str:
    """Return the name of an input's random distribution."""
    return _NORMAL if dtype_info(spec.dtype).kind == "float" else "zeros and ones"
