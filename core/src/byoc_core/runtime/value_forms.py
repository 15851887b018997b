"""Values of models other than tensors of numbers: strings, sequences, maps, sequences of maps and optional values.

A compiled model takes and returns arrays. A value of another form is several arrays, each with the name of the value
and a suffix; see :mod:`byoc_core.runtime.strings`, :mod:`~byoc_core.runtime.sequences` and
:mod:`~byoc_core.runtime.maps` for the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError
from byoc_core.runtime.maps import pack_map, unpack_map, unpack_maps
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.runtime.sequences import (
    pack_sequence,
    pack_string_sequence,
    unpack_sequence,
    unpack_string_sequence,
)
from byoc_core.runtime.strings import pack_texts, unpack_strings

__all__ = ["MAPS", "OPTIONAL", "SUFFIXES", "pack_value", "unpack_value", "value_unpacker"]

OPTIONAL = "optional "
"""The beginning of the name of an optional form."""

_PLAIN: Mapping[str, tuple[str, ...]] = {
    "tensor": ("",),
    "strings": (".bytes", ".lengths"),
    "sequence": (".elements", ".shapes"),
    "sequence of strings": (".elements.bytes", ".elements.lengths", ".shapes"),
    "map": (".keys", ".values"),
    "map by string": (".keys.bytes", ".keys.lengths", ".values"),
    "map of strings": (".keys", ".values.bytes", ".values.lengths"),
    "map of strings by string": (".keys.bytes", ".keys.lengths", ".values.bytes", ".values.lengths"),
    "maps": (".keys", ".values"),
    "maps by string": (".keys.bytes", ".keys.lengths", ".values"),
    "nothing": (),
}
SUFFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {**_PLAIN, **{OPTIONAL + form: (".is_present", *suffixes) for form, suffixes in _PLAIN.items()}}
)
"""The suffixes of the arrays of a value, by form. ``nothing`` is the value of an output that is never present."""
MAPS = frozenset({"map", "map by string", "map of strings", "map of strings by string"})
"""The forms of a map."""


def pack_value(form: str, specs: Sequence[TensorSpec], value: Any, where: str) -> list[Any]:
    """Return the arrays of an input.

    Args:
        form: the form of the input, of :data:`SUFFIXES`.
        specs: the arrays of the form, in the order of the suffixes.
        value: an array for a tensor, strings in any shape, a sequence of arrays or of strings in any shape, a map;
            ``None`` for an absent optional value.
        where: the input, for errors.

    Raises:
        CallError: the value is not of this form, or the form is one of outputs.
    """
    if form.startswith(OPTIONAL):
        inner, rest = form.removeprefix(OPTIONAL), specs[1:]
        present = _absent(inner, rest) if value is None else value
        return [np.array(value is not None), *pack_value(inner, rest, present, where)]
    if form == "tensor":
        return [value]
    if form == "strings":
        return list(_packed_strings(value, where))
    if form in MAPS:
        return _packed_map(form, specs, value, where)
    if form not in ("sequence", "sequence of strings"):
        raise CallError(where, f"cannot be given: {form}")
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise CallError(where, "is not a sequence of arrays", got=type(value).__name__)
    size = specs[-1].shape[1]
    rank = size if isinstance(size, int) else None
    try:
        if form == "sequence":
            return list(pack_sequence(value, dtype=to_numpy(specs[0].dtype), rank=rank))
        for index, tensor in enumerate(value):
            _packed_strings(tensor, f"sequence, tensor {index}")  # of strings alone
        return list(pack_string_sequence(value, rank=rank))
    except CallError as error:
        raise CallError(where, f"{error.where} {error.problem}", got=error.got, expected=error.expected) from error


def unpack_value(form: str, arrays: Iterator[NDArray]) -> Any:
    """Return an output; ``None`` for an absent value.

    The output is an array, an array of strings, a map, or a list of arrays, of arrays of strings or of maps.

    Args:
        form: the form of the output, of :data:`SUFFIXES`.
        arrays: yields the arrays of the form, in the order of the suffixes.

    Raises:
        CallError: the arrays do not fit each other.
    """
    return value_unpacker(form)(*(next(arrays) for _ in SUFFIXES[form]))


def value_unpacker(form: str) -> Callable[..., Any]:
    """Return the function from the arrays of a form, in the order of the suffixes, to the output of the form."""
    if form.startswith(OPTIONAL):
        return partial(_unpack_optional, value_unpacker(form.removeprefix(OPTIONAL)))
    return unpack_map if form in MAPS else _UNPACKERS[form]


def _unpack_optional(unpack: Callable[..., Any], is_present: NDArray, *arrays: NDArray) -> Any:
    value = unpack(*arrays)
    return value if is_present else None


def _unpack_tensor(array: NDArray) -> NDArray:
    return array


def _unpack_nothing() -> None:
    return None


_UNPACKERS: Mapping[str, Callable[..., Any]] = {
    "tensor": _unpack_tensor,
    "strings": unpack_strings,
    "sequence": unpack_sequence,
    "sequence of strings": unpack_string_sequence,
    "maps": unpack_maps,
    "maps by string": unpack_maps,
    "nothing": _unpack_nothing,
}


def _packed_map(form: str, specs: Sequence[TensorSpec], value: Any, where: str) -> list[NDArray]:
    if not isinstance(value, Mapping):
        raise CallError(where, "is not a map", got=type(value).__name__)
    keys = "string" if form.endswith("by string") else specs[0].dtype
    values = "string" if form.startswith("map of strings") else specs[-1].dtype
    try:
        return pack_map(value, keys, values)
    except CallError as error:
        raise CallError(where, f"{error.where} {error.problem}", got=error.got, expected=error.expected) from error


def _absent(form: str, specs: Sequence[TensorSpec]) -> Any:
    """Return the value in place of an absent value: a tensor or sequence without elements, or an empty map."""
    if form in MAPS:
        return {}
    if form == "tensor":
        return np.zeros((0,) * len(specs[0].shape), to_numpy(specs[0].dtype))
    return np.full((0,) * len(specs[1].shape), "", object) if form == "strings" else []


def _packed_strings(value: Any, where: str) -> tuple[NDArray, NDArray]:
    array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    packed = pack_texts(array) if array.dtype.kind in "USO" else None
    if packed is None:
        raise CallError(where, "is not an array of strings", got=type(value).__name__)
    return packed
