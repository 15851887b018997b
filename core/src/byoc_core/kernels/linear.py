"""Kernels of linear algebra: products of matrices, and the bias that follows them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.indices import require_shape
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "bias_add", "dense", "matmul"]


def matmul(x: NDArray, y: NDArray) -> NDArray:
    """Gives the product of (stacks of) matrices by numpy's rules.

    Shapes: ``(..., M, K), (..., K, N) -> (..., M, N)``; a 1-d operand is a row on the left, a column on the right.
    """
    wide = working_dtype(x.dtype)
    with np.errstate(all="ignore"):
        product = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
        return np.asarray(product).astype(x.dtype, copy=False)


def dense(x: NDArray, weight: NDArray) -> NDArray:
    """Gives ``x @ weight.T``.

    Shapes: ``(..., I), (O, I) -> (..., O)``.
    """
    return matmul(x, weight.T)


def bias_add(x: NDArray, bias: NDArray, *, axis: int) -> NDArray:
    """Gives ``x`` plus one value for each index of one axis.

    Shapes: ``(..., C, ...), (C,) -> (..., C, ...)``.

    Raises:
        ExecutionError: there is not one value for each index.
    """
    require_shape("nn.bias_add", "bias", bias.shape, (x.shape[axis],))
    shape = [1] * x.ndim
    shape[axis] = -1
    with np.errstate(all="ignore"):
        return np.asarray(x + bias.reshape(shape))


KERNELS: dict[str, Callable[..., NDArray]] = {"matmul": matmul, "nn.dense": dense, "nn.bias_add": bias_add}
