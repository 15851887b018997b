"""Values of models other than tensors of numbers: strings, sequences, maps and optional values.

A compiled model takes and returns arrays. A value of another form is several arrays, each with the name of the value
and a suffix; see :mod:`byoc_core.runtime.strings`, :mod:`~byoc_core.runtime.sequences` and
:mod:`~byoc_core.runtime.maps` for the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError
from byoc_core.runtime.maps import unpack_maps
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.runtime.sequences import pack_sequence, unpack_sequence
from byoc_core.runtime.strings import pack_strings, unpack_strings

__all__ = ["OPTIONAL", "SUFFIXES", "pack_value", "unpack_value"]

OPTIONAL = "optional "
"""The beginning of the name of an optional form."""

_PLAIN: Mapping[str, tuple[str, ...]] = {
    "tensor": ("",),
    "strings": (".bytes", ".lengths"),
    "sequence": (".elements", ".shapes"),
    "maps": (".keys", ".values"),
    "maps by string": (".keys.bytes", ".keys.lengths", ".values"),
    "nothing": (),
}
SUFFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {**_PLAIN, **{OPTIONAL + form: (".is_present", *suffixes) for form, suffixes in _PLAIN.items()}}
)
"""The suffixes of the arrays of a value, by form. ``nothing`` is the value of an output that is never present."""


def pack_value(form: str, specs: Sequence[TensorSpec], value: Any, where: str) -> list[Any]:
    """Return the arrays of an input.

    Args:
        form: the form of the input, of :data:`SUFFIXES`.
        specs: the arrays of the form, in the order of the suffixes.
        value: an array for a tensor, strings in any shape, a sequence of arrays; ``None`` for an absent optional value.
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
        return list(pack_strings(_strings(value, where)))
    if form != "sequence":
        raise CallError(where, f"cannot be given: {form}")
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise CallError(where, "is not a sequence of arrays", got=type(value).__name__)
    rank = specs[1].shape[1]
    try:
        return list(pack_sequence(value, dtype=to_numpy(specs[0].dtype), rank=rank if isinstance(rank, int) else None))
    except CallError as error:
        raise CallError(where, f"{error.where} {error.problem}", got=error.got, expected=error.expected) from error


def unpack_value(form: str, arrays: Iterator[NDArray]) -> Any:
    """Return an output: an array, an array of strings, a list of arrays or of maps; ``None`` for an absent value.

    Args:
        form: the form of the output, of :data:`SUFFIXES`.
        arrays: yields the arrays of the form, in the order of the suffixes.

    Raises:
        CallError: the arrays do not fit each other.
    """
    if form.startswith(OPTIONAL):
        is_present, value = next(arrays), unpack_value(form.removeprefix(OPTIONAL), arrays)
        return value if is_present else None
    parts = [next(arrays) for _ in SUFFIXES[form]]
    if form == "tensor":
        return parts[0]
    if form == "strings":
        return unpack_strings(*parts)
    if form == "sequence":
        return unpack_sequence(*parts)
    return unpack_maps(*parts) if parts else None


def _absent(form: str, specs: Sequence[TensorSpec]) -> Any:
    """Return the value in place of an absent one: a sequence without tensors, or a tensor without elements."""
    return np.zeros((0,) * len(specs[0].shape), to_numpy(specs[0].dtype)) if form == "tensor" else []


def _strings(value: Any, where: str) -> Any:
    array = np.asarray(value, object) if not isinstance(value, np.ndarray) else value
    is_text = array.dtype.kind in "US" or (
        array.dtype.kind == "O" and all(isinstance(item, str | bytes) for item in array.reshape(-1).tolist())
    )
    if not is_text:
        raise CallError(where, "is not an array of strings", got=type(value).__name__)
    return array
