"""The reference kernel of pairwise coupling: probabilities of classes from probabilities of pairs of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["couple_probabilities"]

NDArray = npt.NDArray[Any]

_LEAST = 1e-7
"""The least probability of a class against another."""


def couple_probabilities(pairs: NDArray, *, num_classes: int) -> NDArray:
    """Return the probabilities of classes, computed in float64; the pairs are clipped to 1e-7 and 1 - 1e-7.

    Source: Wu, Lin, Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling" (2004), algorithm
    2; stops below an error of ``0.005 / K``, or after ``max(100, K)`` rounds, as in libsvm and ONNX Runtime.

    Shapes: ``(N, K * (K - 1) / 2) -> (N, K)``; the columns are the probabilities of class ``i`` against ``j`` for all
    ``i < j``, in order of ``i``, then ``j``.

    Cost: ``O(N * K**2)`` for a round.
    """
    count = num_classes
    first, second = np.triu_indices(count, 1)
    against = np.zeros((len(pairs), count, count))
    clipped = np.clip(pairs.astype(np.float64), _LEAST, 1 - _LEAST)
    against[:, first, second] = clipped
    against[:, second, first] = 1 - clipped
    beaten = against.swapaxes(1, 2)
    matrix = -beaten * against
    diagonal = np.arange(count)
    matrix[:, diagonal, diagonal] = (beaten**2).sum(axis=2)
    result = np.full((len(pairs), count), 1 / count)
    active = np.arange(len(pairs))
    for _ in range(max(100, count)):
        own, shares = matrix[active], result[active]
        products = np.matmul(own, shares[:, :, np.newaxis])[:, :, 0]
        total = (shares * products).sum(axis=1)
        is_open = np.abs(products - total[:, np.newaxis]).max(axis=1, initial=0) >= 0.005 / count
        active = active[is_open]
        if not len(active):
            break
        result[active] = _improve(own[is_open], shares[is_open], products[is_open], total[is_open])
    return result.astype(pairs.dtype)


def _improve(matrix: NDArray, shares: NDArray, products: NDArray, total: NDArray) -> NDArray:
    """Return the shares after a round over the classes."""
    for index in range(shares.shape[1]):
        pivot = matrix[:, index, index]
        step = (total - products[:, index]) / pivot
        shares[:, index] += step
        scale = 1 + step
        total = (total + step * (step * pivot + 2 * products[:, index])) / scale**2
        products = (products + step[:, np.newaxis] * matrix[:, index]) / scale[:, np.newaxis]
        shares /= scale[:, np.newaxis]
    return shares
