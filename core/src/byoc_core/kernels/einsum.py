"""The kernel of Einstein sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, native_dtype

__all__ = ["KERNELS", "einsum"]


def einsum(*operands: NDArray, equation: str) -> NDArray:
    """Gives the sum of products that an equation says, by matrix products where these can do it.

    Cost: that of the cheapest order of pairs found greedily.
    """
    dtype = operands[0].dtype
    wide = native_dtype(dtype)  # older numpy sums no products of other types
    result = np.einsum(equation, *(operand.astype(wide, copy=False) for operand in operands), optimize="greedy")
    return np.array(result).astype(dtype, copy=False)


KERNELS: dict[str, Callable[..., NDArray]] = {"einsum": einsum}
