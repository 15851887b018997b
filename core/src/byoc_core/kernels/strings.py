"""Tensors of strings as tensors of numbers: the bytes of all strings in UTF-8, and the number of bytes of each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byoc_core.errors import CallError, ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["have_total", "pack_strings", "split_strings", "unpack_strings"]


def have_total(sizes: NDArray, total: int, least: int = 0) -> bool:
    """Return whether sizes add up to a total, and none is below the least size; sums of sizes may exceed 64 bits."""
    if not sizes.size:
        return total == 0
    return bool(sizes.min() >= least and sizes.max() <= total) and _total(sizes) == total


def _total(sizes: NDArray) -> int:
    return sum(sizes.reshape(-1).tolist())


def pack_strings(strings: npt.ArrayLike) -> tuple[NDArray, NDArray]:
    """Return the arrays of a tensor of strings.

    Args:
        strings: the strings, in any shape; ``bytes`` count as UTF-8.

    Returns:
        The bytes of all strings in row-major order, uint8 ``(n,)``, and the int64 number of bytes of each string, in
        the shape of ``strings``.
    """
    array = np.asarray(strings, object)
    encoded = [text if isinstance(text, bytes) else str(text).encode() for text in array.reshape(-1).tolist()]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)).reshape(array.shape)
    return np.frombuffer(b"".join(encoded), np.uint8), lengths


def unpack_strings(data: NDArray, lengths: NDArray) -> NDArray:
    """Return the strings of a tensor, an array of objects in the shape of ``lengths``.

    Args:
        data: the bytes of all strings, uint8 ``(n,)``.
        lengths: the number of bytes of each string.

    Raises:
        CallError: a length is negative, or the lengths need another number of bytes.
    """
    if not have_total(lengths, data.size):
        raise CallError("strings", "have lengths that do not fit the bytes", got=_total(lengths), expected=data.size)
    text, ends = data.tobytes(), np.cumsum(lengths.reshape(-1)).tolist()
    strings = np.empty(len(ends), object)
    strings[:] = [text[start:end].decode(errors="replace") for start, end in zip([0, *ends], ends, strict=False)]
    return strings.reshape(lengths.shape)


def split_strings(data: NDArray, lengths: NDArray, op: str) -> list[bytes]:
    """Return the bytes of each string, in row-major order.

    Args:
        data: the bytes of all strings, uint8 ``(n,)``.
        lengths: the number of bytes of each string.
        op: the name of the op, for errors.

    Raises:
        ExecutionError: a length is negative, or the lengths need another number of bytes.
    """
    if not have_total(lengths, data.size):
        problem = "has lengths that do not fit the bytes"
        raise ExecutionError(f"op `{op}`", problem, got=_total(lengths), expected=data.size)
    text, stops = data.tobytes(), np.cumsum(lengths.reshape(-1)).tolist()
    return [text[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
