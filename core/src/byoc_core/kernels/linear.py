"""Kernels of linear algebra: products of matrices, and the bias that follows them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.indices import require_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "bias_add", "dense", "matmul"]


def matmul(x: NDArray, y: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Gives the product of (stacks of) matrices by numpy's rules.

    Shapes: ``(..., M, K), (..., K, N) -> (..., M, N)``; a 1-d operand is a row on the left, a column on the right.
    """
    # numpy would repeat a product of fewer matrices over a larger stack.
    is_fit = out is not None and x.ndim == y.ndim == out.ndim == 2
    return np.asarray(np.matmul(x, y, out=out if is_fit else None))


def dense(x: NDArray, weight: NDArray, *, out: NDArray | None = None) -> NDArray:
    """Gives ``x @ weight.T``.

    Shapes: ``(..., I), (O, I) -> (..., O)``.
    """
    return matmul(x, weight.T, out=out)


def bias_add(x: NDArray, bias: NDArray, *, axis: int, out: NDArray | None = None) -> NDArray:
    """Gives ``x`` plus one value for each index of one axis.

    Shapes: ``(..., C, ...), (C,) -> (..., C, ...)``.

    Raises:
        ExecutionError: there is not one value for each index.
    """
    if bias.shape != (x.shape[axis],):
        require_shape("nn.bias_add", "bias", bias.shape, (x.shape[axis],))
    if axis % x.ndim < x.ndim - 1:
        bias = bias.reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    return np.asarray(np.add(x, bias, out=out))


KERNELS: dict[str, Callable[..., NDArray]] = {
    "matmul": NumpyKernel(matmul, widens=True, fresh=True),
    "nn.dense": NumpyKernel(dense, widens=True, fresh=True),
    "nn.bias_add": NumpyKernel(bias_add, fresh=True, elementwise=True),
}
