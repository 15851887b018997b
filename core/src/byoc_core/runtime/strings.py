"""Tensors of strings as the two arrays passed to compiled models.

A compiled model takes and returns arrays of numbers. A tensor of strings ``x`` is two of them, ``x.bytes`` and
``x.lengths``::

    data, lengths = pack_strings([["a", "bc"]])
    results = machine.run("main", {"x.bytes": data, "x.lengths": lengths})
    strings = unpack_strings(*results)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byoc_core.kernels import strings as reference
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NDArray

__all__ = ["pack_strings", "pack_texts", "unpack_strings"]


def pack_strings(strings: npt.ArrayLike) -> tuple[NDArray, NDArray]:
    """Return the arrays of a tensor of strings.

    Args:
        strings: the strings, in any shape; ``bytes`` count as UTF-8.

    Returns:
        The bytes of all strings in row-major order, uint8 ``(n,)``, and the int64 number of bytes of each string, in
        the shape of ``strings``.
    """
    return pack_texts(np.asarray(strings, object)) or reference.pack_strings(strings)


def pack_texts(array: NDArray) -> tuple[NDArray, NDArray] | None:
    """Return the arrays of a tensor of strings, as :func:`pack_strings`; ``None`` if an element is no text or bytes."""
    items, found = array.reshape(-1).tolist(), extension()
    if found is None:
        return reference.pack_strings(array) if all(isinstance(item, str | bytes) for item in items) else None
    lengths = np.empty(array.shape, np.int64)
    data = found.pack_strings(items, lengths)
    return None if data is None else (np.frombuffer(data, np.uint8), lengths)


def unpack_strings(data: NDArray, lengths: NDArray) -> NDArray:
    """Return the strings of a tensor, an array of objects in the shape of ``lengths``; equal strings may be one object.

    Args:
        data: the bytes of all strings, uint8 ``(n,)``.
        lengths: the number of bytes of each string.

    Raises:
        CallError: a length is negative, or the lengths need another number of bytes.
    """
    found = extension()
    strings: NDArray | None = None if found is None else found.unpack_strings(data, lengths)
    return reference.unpack_strings(data, lengths) if strings is None else strings
