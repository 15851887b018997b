"""Sequences of arrays as the two arrays passed to compiled models.

A compiled model takes and returns arrays. An ONNX sequence ``x`` is two of them, ``x.elements`` and ``x.shapes``::

    elements, shapes = pack_sequence([np.zeros((2, 3), "float32"), np.ones((1, 3), "float32")])
    results = machine.run("main", {"x.elements": elements, "x.shapes": shapes})
    tensors = unpack_sequence(*results)

An ONNX optional value ``x`` has the bool scalar ``x.is_present`` in front of the arrays of its value; while absent, the
value is a tensor without elements, or a sequence without tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from byoc_core.errors import CallError
from byoc_core.runtime.module import NDArray

__all__ = ["pack_sequence", "unpack_sequence"]


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
    counts = np.abs(np.prod(shapes, axis=1, dtype=np.int64)) if shapes.ndim == 2 else None
    if counts is None or counts.sum() != elements.size:
        raise CallError(
            "sequence",
            "has shapes that do not fit the elements",
            got=f"shapes {shapes.tolist()}",
            expected=f"{elements.size} elements in all",
        )
    parts = np.split(elements, np.cumsum(counts)[:-1]) if len(counts) else []
    return [
        part.reshape([size for size in shape if size >= 0]) for part, shape in zip(parts, shapes.tolist(), strict=True)
    ]
