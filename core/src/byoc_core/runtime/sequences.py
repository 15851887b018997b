"""Sequences of arrays as the arrays passed to compiled models.

A compiled model takes and returns arrays. An ONNX sequence ``x`` is two of them, ``x.elements`` and ``x.shapes``::

    elements, shapes = pack_sequence([np.zeros((2, 3), "float32"), np.ones((1, 3), "float32")])
    results = machine.run("main", {"x.elements": elements, "x.shapes": shapes})
    tensors = unpack_sequence(*results)

A sequence of arrays of strings is three arrays, ``x.elements.bytes``, ``x.elements.lengths`` and ``x.shapes``, from
:func:`pack_string_sequence`: the elements are a vector of strings (:mod:`byoc_core.runtime.strings`).

An ONNX optional value ``x`` has the bool scalar ``x.is_present`` in front of the arrays of its value; while absent, the
value is a tensor without elements, or a sequence without tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from byoc_core.errors import CallError
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.strings import pack_strings, unpack_strings

__all__ = ["pack_sequence", "pack_string_sequence", "unpack_sequence", "unpack_string_sequence"]


def pack_sequence(
    tensors: Sequence[npt.ArrayLike], *, dtype: npt.DTypeLike | None = None, rank: int | None = None
) -> tuple[NDArray, NDArray]:
    """Return the arrays of a sequence.

    Args:
        tensors: the tensors, of one dtype and rank.
        dtype: the dtype; by default of the first tensor, and float32 for no tensors.
        rank: the rank; by default of the first tensor, and 0 for no tensors.

    Returns:
        The elements of all tensors ``(n,)``, each tensor in row-major order, and the int64 shapes ``(length, rank)``.

    Raises:
        CallError: a tensor is of another dtype or rank.
    """
    arrays = [np.asarray(tensor) for tensor in tensors]
    dtype = np.dtype(dtype if dtype is not None else arrays[0].dtype if arrays else np.float32)
    rank = rank if rank is not None else arrays[0].ndim if arrays else 0
    for index, array in enumerate(arrays):
        if array.dtype != dtype or array.ndim != rank:
            raise CallError(
                f"sequence, tensor {index}",
                "has another dtype or rank",
                got=f"{array.dtype} of rank {array.ndim}",
                expected=f"{dtype} of rank {rank}",
            )
    elements = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros(0, dtype)
    shapes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), rank)
    return elements, shapes


def unpack_sequence(elements: NDArray, shapes: NDArray) -> list[NDArray]:
    """Return the tensors of a sequence, as views of its elements.

    Args:
        elements: the elements of all tensors, ``(n,)``.
        shapes: the shape of each tensor, integers ``(length, rank)``; -1 behind the sizes of a tensor of a lower rank.

    Raises:
        CallError: the shapes are not of two axes, or need another number of elements.
    """
    is_table = shapes.ndim == 2
    # Products of sizes may exceed 64 bits.
    counts = [math.prod(size for size in shape if size >= 0) for shape in shapes.tolist()] if is_table else []
    if not is_table or sum(counts) != elements.size:
        raise CallError(
            "sequence",
            "has shapes that do not fit the elements",
            got=f"shapes {shapes.tolist()}",
            expected=f"{elements.size} elements in all",
        )
    parts = np.split(elements, np.cumsum(counts)[:-1]) if counts else []
    return [
        part.reshape([size for size in shape if size >= 0]) for part, shape in zip(parts, shapes.tolist(), strict=True)
    ]


def pack_string_sequence(
    tensors: Sequence[npt.ArrayLike], *, rank: int | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the arrays of a sequence of arrays of strings.

    Args:
        tensors: arrays or nested lists of strings, of one rank; ``bytes`` count as UTF-8.
        rank: the rank; by default of the first tensor, and 0 for no tensors.

    Returns:
        The bytes of all strings, uint8 ``(n,)``, the int64 number of bytes of each string ``(strings,)``, and the int64
        shapes ``(length, rank)``.

    Raises:
        CallError: a tensor is of another rank.
    """
    elements, shapes = pack_sequence([np.asarray(tensor, object) for tensor in tensors], dtype=object, rank=rank)
    return *pack_strings(elements), shapes


def unpack_string_sequence(data: NDArray, lengths: NDArray, shapes: NDArray) -> list[NDArray]:
    """Return the arrays of strings of a sequence.

    Args:
        data: the bytes of all strings, uint8 ``(n,)``.
        lengths: the number of bytes of each string, ``(strings,)``.
        shapes: see :func:`unpack_sequence`.

    Raises:
        CallError: the lengths do not fit the bytes, or the shapes do not fit the number of strings.
    """
    return unpack_sequence(unpack_strings(data, lengths), shapes)
