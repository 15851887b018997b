"""The reference kernels of a search in keys: of numbers, and of strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.errors import ExecutionError

__all__ = ["key_index", "string_index"]

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


def string_index(data: NDArray, lengths: NDArray, key_data: NDArray, key_lengths: NDArray) -> NDArray:
    """Return the index of the first key equal to each string, or the number of keys if no key is equal.

    Args:
        data: the bytes of the strings, uint8 ``(n,)``.
        lengths: the number of bytes of each string, of any shape.
        key_data: the bytes of the keys, uint8 ``(m,)``.
        key_lengths: the number of bytes of each key, ``(K,)``.

    Returns:
        int64 in the shape of ``lengths``.

    Raises:
        ExecutionError: lengths do not fit the bytes.

    Cost: ``O(n + m)``.
    """
    keys, strings = _texts(key_data, key_lengths), _texts(data, lengths)
    first = {key: index for index, key in reversed(list(enumerate(keys)))}
    return np.array([first.get(text, len(keys)) for text in strings], np.int64).reshape(lengths.shape)


def _texts(data: NDArray, lengths: NDArray) -> list[bytes]:
    if (lengths < 0).any() or lengths.sum() != data.size:
        problem = "has lengths that do not fit the bytes"
        raise ExecutionError("op `mlops.string_index`", problem, got=int(lengths.sum()), expected=data.size)
    text, stops = data.tobytes(), np.cumsum(lengths.reshape(-1)).tolist()
    return [text[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
