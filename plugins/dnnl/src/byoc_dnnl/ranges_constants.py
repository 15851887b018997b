"""Magnitudes of constants: computed once, when a proof asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from byoc_core.runtime.module import NDArray

__all__ = ["ConstantRanges"]

_BLOCK_ELEMENTS = 1 << 16
"""Number of elements processed at a time. Intermediates of a block stay in the cache."""


class ConstantRanges:
    """The magnitudes of constants.

    Cost: each query of a constant is one pass over the elements.

    Args:
        arrays: by digest. Nothing is known of a missing constant; all elements are assumed to be 1. Constants made by a
            rewrite are missing while single ops are judged.
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        self._arrays = arrays
        self._found: dict[tuple[str, Any], float] = {}

    def exact(self, digest: str) -> NDArray | None:
        """Return a constant unchanged; ``None`` if the constant is unknown."""
        return self._arrays.get(digest)

    def array(self, digest: str) -> NDArray:
        """Return a (small) constant in float64."""
        return np.asarray(self._arrays.get(digest, np.ones(()))).astype(np.float64)

    def largest(self, digest: str) -> float:
        """Return the largest magnitude; infinity if an element is NaN or infinite."""
        return self._find(digest, "largest", lambda array: float(np.max(_magnitudes(array, np.max))))

    def smallest(self, digest: str) -> float:
        """Return the smallest magnitude; 0 if an element is NaN."""
        found = self._find(digest, "smallest", lambda array: float(np.min(_magnitudes(array, np.min))))
        return found if math.isfinite(found) else 0.0

    def largest_sum(self, digest: str, axis: int) -> float:
        """Return the largest sum of magnitudes over all axes but ``axis``; infinity with a NaN or infinite element."""
        return self._find(digest, axis, lambda array: _largest_sum(array, axis))

    def _find(self, digest: str, question: object, answer: Callable[[NDArray], float]) -> float:
        array = self._arrays.get(digest)
        if array is None:
            return 1.0
        if (digest, question) not in self._found:
            array = np.asarray(array)
            if array.dtype.kind in "iu":
                array = array.astype(np.float64)  # the dtype cannot hold the magnitude of its smallest integer
            with np.errstate(all="ignore"):
                found = answer(array)
            self._found[digest, question] = math.inf if math.isnan(found) else found
        return self._found[digest, question]


def _blocks(array: NDArray) -> Sequence[NDArray]:
    rows = max(1, _BLOCK_ELEMENTS * len(array) // array.size)
    return [array[start : start + rows] for start in range(0, len(array), rows)]


def _magnitudes(array: NDArray, choose: Callable[[NDArray], Any]) -> list[float]:
    return [float(choose(np.abs(block))) for block in _blocks(array.reshape(-1))]


def _largest_sum(array: NDArray, axis: int) -> float:
    other_axes = tuple(index for index in range(array.ndim) if index != axis)
    sums = [np.abs(block).sum(axis=other_axes) for block in _blocks(array)]
    largest = np.max(np.concatenate(sums) if axis == 0 else np.sum(sums, axis=0))
    # The margin exceeds the error of float32 sums of this length (Higham, Accuracy and Stability, section 3.1).
    margin: float = 1 + array.size // array.shape[axis] * 2.0**-22
    return float(largest) * margin
