"""Sequences of maps as the arrays returned by compiled models.

A compiled model returns arrays. An ONNX sequence of maps ``x`` with equal keys, such as the probabilities of classes by
label, is the arrays ``x.keys``, int64 ``(C,)``, and ``x.values`` ``(N, C)``. Keys of strings are the two arrays
``x.keys.bytes`` and ``x.keys.lengths``::

    maps = unpack_maps(*results)
"""

from __future__ import annotations

from byoc_core.errors import CallError
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.strings import unpack_strings

__all__ = ["unpack_maps"]


def unpack_maps(*arrays: NDArray) -> list[dict[int | str, float]]:
    """Return the maps of a sequence.

    Args:
        arrays: keys and values, or the bytes and lengths of keys, and values.

    Raises:
        CallError: there are other arrays, or the shapes do not fit.
    """
    if len(arrays) not in (2, 3):
        raise CallError("maps", "are another number of arrays", got=len(arrays), expected="2 or 3")
    *parts, values = arrays
    keys = parts[0] if len(parts) == 1 else unpack_strings(*parts)
    if keys.ndim != 1 or values.shape[1:] != keys.shape:
        raise CallError("maps", "have keys that do not fit the values", got=(keys.shape, values.shape))
    return [dict(zip(keys.tolist(), row, strict=True)) for row in values.tolist()]
