"""Kernels made of numpy's own elementwise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_core.kernels.precision import NDArray

__all__ = ["arithmetic", "predicate"]


def arithmetic(ufunc: Callable[..., Any]) -> Callable[..., NDArray]:
    """Gives the kernel that applies a numpy function without warnings, in the dtype of the operands."""

    def kernel(*operands: NDArray) -> NDArray:
        with np.errstate(all="ignore"):
            # numpy has no loops of some functions for int4: it computes in int8, which wraps around as int4 does.
            return np.asarray(ufunc(*operands)).astype(operands[0].dtype, copy=False)

    return kernel


def predicate(ufunc: Callable[..., Any]) -> Callable[..., NDArray]:
    """Gives the kernel that applies a numpy function with bool results, without warnings."""

    def kernel(*operands: NDArray) -> NDArray:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(*operands))

    return kernel
