"""The kernel that continues a tensor beyond its borders by its own elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "border_pad"]


def border_pad(x: NDArray, *, pad_width: Sequence[int], mode: str) -> NDArray:
    """Gives ``x`` continued on all sides; ``pad_width`` is (before, after) for each axis in turn.

    Raises:
        ExecutionError: an axis that is to be continued is empty.
    """
    result = x
    for axis, size in enumerate(x.shape):
        before, after = pad_width[2 * axis : 2 * axis + 2]
        if not before and not after:
            continue
        if not size:
            raise ExecutionError("op `nn.border_pad`", f"axis {axis} is empty and cannot be continued")
        result = np.take(result, _source(np.arange(-before, size + after), size, mode), axis=axis)
    return result


def _source(index: NDArray, size: int, mode: str) -> NDArray:
    """Gives the index inside an axis of which a place outside of it is a copy."""
    if mode == "edge":
        return np.asarray(np.clip(index, 0, size - 1))
    if mode == "wrap":
        return np.asarray(index % size)
    period = max(2 * size - 2, 1)
    return np.asarray(np.minimum(index % period, -index % period))


KERNELS: dict[str, Callable[..., NDArray]] = {"nn.border_pad": border_pad}
