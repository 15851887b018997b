"""Kernels that put elements in order: lower index first among equal ones; a NaN counts as the largest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, native_dtype

__all__ = ["KERNELS", "argsort", "sort", "topk"]


def argsort(x: NDArray, *, axis: int, descending: bool) -> NDArray:
    """Gives the indices (int64) that put ``x`` in order along one axis; equal elements keep their order."""
    keys = x.astype(native_dtype(x.dtype), copy=False)  # other types put a NaN anywhere
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable").astype(np.int64, copy=False)
    # A stable order of the mirrored axis, mirrored again, keeps the order of equal elements.
    mirrored = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(mirrored, axis)).astype(np.int64, copy=False)


def sort(x: NDArray, *, axis: int, descending: bool) -> NDArray:
    """Gives ``x`` in order along one axis; equal elements (the zeros of both signs too) keep their order."""
    return np.asarray(np.take_along_axis(x, argsort(x, axis=axis, descending=descending), axis))


def topk(
    x: NDArray,
    *,
    k: int,
    axis: int,
    largest: bool,
    sorted: bool,  # noqa: A002 - the op's attribute name
) -> tuple[NDArray, NDArray]:
    """Gives the ``k`` largest or smallest elements along one axis, and their indices (int64).

    Of equal elements those with the lower index are taken. ``sorted`` results begin with the extreme one; others stand
    in the order of their indices.

    Raises:
        ExecutionError: the axis has fewer than ``k`` elements.
    """
    size = x.shape[axis]
    if not 0 <= k <= size:
        raise ExecutionError(
            "op `topk`", "asks for a number of elements that the axis does not have", got=k, expected=f"0 to {size}"
        )
    order = argsort(x, axis=axis, descending=largest)
    chosen = np.take(order, np.arange(k), axis=axis)
    if not sorted:
        chosen = np.sort(chosen, axis=axis)
    return np.asarray(np.take_along_axis(x, chosen, axis)), chosen


KERNELS: dict[str, Callable[..., NDArray | tuple[NDArray, ...]]] = {
    "argsort": NumpyKernel(argsort, gives=fixed_dtype("int64")),
    "sort": sort,
    "topk": NumpyKernel(topk, gives=fixed_dtype(None)),
}
