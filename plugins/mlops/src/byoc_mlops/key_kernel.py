"""The reference kernel of a search for numbers among keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["key_index"]

NDArray = npt.NDArray[Any]


def key_index(x: NDArray, keys: NDArray) -> NDArray:
    """Return the index of the first key equal to each element, or the number of keys if no key is equal.

    NaN equals NaN, and zeros of both signs are equal.

    Shapes: ``x`` of any shape, ``keys`` ``(K,)``; the result is int64 in the shape of ``x``.

    Cost: ``O((elements + K) * log(K))``.
    """
    if not len(keys):
        return np.zeros(x.shape, np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    ranks = np.minimum(np.searchsorted(ordered, x), len(keys) - 1)
    found = ordered[ranks]
    is_equal = found == x
    if np.issubdtype(keys.dtype, np.floating):
        is_equal |= np.isnan(found) & np.isnan(x)
    return np.where(is_equal, order[ranks], len(keys)).astype(np.int64)
