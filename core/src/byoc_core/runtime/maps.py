"""Maps and sequences of maps as the arrays passed to compiled models.

A compiled model takes and returns arrays. An ONNX map ``x`` of ``n`` keys is the arrays ``x.keys`` ``(n,)`` and
``x.values`` ``(n,)``. Keys of strings are the two arrays ``x.keys.bytes`` and ``x.keys.lengths``, and values of strings
``x.values.bytes`` and ``x.values.lengths``::

    data, lengths, values = pack_map({"a": 1.0}, "string", "float32")
    results = machine.run("main", {"x.keys.bytes": data, "x.keys.lengths": lengths, "x.values": values})

An ONNX sequence of maps ``x`` with equal keys, such as the probabilities of classes by label, is a result only: the
arrays of the keys, and ``x.values`` ``(N, C)``::

    maps = unpack_maps(*results)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError
from byoc_core.runtime.extension import extension
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.strings import pack_strings, unpack_strings

__all__ = ["pack_map", "unpack_map", "unpack_maps"]

_STRING = "string"


def pack_map(mapping: Mapping[Any, Any], keys: str, values: str) -> list[NDArray]:
    """Return the arrays of a map.

    Args:
        mapping: the map; its order has no meaning.
        keys: the dtype of the keys; ``"string"`` for strings.
        values: the dtype of the values, the same way.

    Raises:
        CallError: a key or a value is of another kind, or an integer is out of range.
    """
    return [*_pack(list(mapping), keys, "keys"), *_pack(list(mapping.values()), values, "values")]


def _pack(items: list[Any], dtype: str, role: str) -> tuple[NDArray, ...]:
    if dtype == _STRING and all(isinstance(item, str | bytes) for item in items):
        return pack_strings(np.array(items, object))
    array = None if dtype == _STRING else _numbers(items, dtype)
    if array is None:
        raise CallError("map", f"has {role} of another kind", got=repr(items[:3]), expected=dtype)
    return (array,)


def _numbers(items: list[Any], dtype: str) -> NDArray | None:
    """Return numbers as an array; ``None`` if an item is no number, or an integer is out of range."""
    if any(item is None or isinstance(item, str | bytes) for item in items):
        return None
    try:
        array: NDArray = np.array(items, to_numpy(dtype))
    except (TypeError, ValueError, OverflowError):
        return None
    is_changed = array.dtype.kind in "iu" and array.tolist() != items
    return None if array.ndim != 1 or is_changed else array


def unpack_map(*arrays: NDArray) -> dict[int | str, Any]:
    """Return a map.

    Args:
        arrays: the arrays of the keys, then the arrays of the values: two arrays, uint8 and int64, for strings.

    Raises:
        CallError: there are other arrays, or the shapes do not fit.
    """
    has_text_keys = len(arrays) > 2 and arrays[0].dtype == np.uint8 and arrays[1].dtype == np.int64
    count = 2 if has_text_keys else 1
    parts = arrays[:count], arrays[count:]
    if not all(1 <= len(part) <= 2 for part in parts):
        raise CallError("map", "is another number of arrays", got=len(arrays), expected="2 to 4")
    keys, values = (part[0] if len(part) == 1 else unpack_strings(*part) for part in parts)
    if keys.ndim != 1 or values.shape != keys.shape:
        raise CallError("map", "has keys that do not fit the values", got=(keys.shape, values.shape))
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


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
    names, found = keys.tolist(), extension()
    maps: list[dict[int | str, float]] | None = None if found is None else found.unpack_maps(names, values)
    if maps is not None:
        return maps
    return [dict(zip(names, row, strict=True)) for row in values.tolist()]
