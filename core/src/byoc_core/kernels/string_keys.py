"""The reference kernel of a search for strings among keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray
from byoc_core.kernels.strings import split_strings

__all__ = ["prepare_string_keys", "string_key_index"]

_OP = "strings.key_index"


def string_key_index(data: NDArray, lengths: NDArray, key_data: NDArray, key_lengths: NDArray) -> NDArray:
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
    return _look_up(_key_ranks(key_data, key_lengths), data, lengths, key_data, key_lengths)


def prepare_string_keys(constants: Sequence[NDArray | None], attrs: Mapping[str, Any]) -> Callable[..., NDArray] | None:
    """Return the kernel for constant keys; ``None`` for other keys, and for malformed keys."""
    _, _, key_data, key_lengths = constants
    if key_data is None or key_lengths is None:
        return None
    try:
        return partial(_look_up, _key_ranks(key_data, key_lengths))
    except ExecutionError:
        return None  # each call reports the error


def _key_ranks(key_data: NDArray, key_lengths: NDArray) -> dict[bytes, int]:
    keys = split_strings(key_data, key_lengths, _OP)
    return {key: index for index, key in reversed([*enumerate(keys)])}


def _look_up(
    ranks: Mapping[bytes, int], data: NDArray, lengths: NDArray, key_data: NDArray, key_lengths: NDArray
) -> NDArray:
    found = [ranks.get(text, key_lengths.size) for text in split_strings(data, lengths, _OP)]
    return np.array(found, np.int64).reshape(lengths.shape)
