"""Kernels that add and remove axes of size 1. Results are views of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "expand_dims", "squeeze"]


def squeeze(x: NDArray, *, axis: Sequence[int] | None) -> NDArray:
    """Gives ``x`` without some axes of size 1; without all of them where ``axis`` is ``None``.

    Raises:
        ExecutionError: one of the axes has another size.
    """
    chosen = None if axis is None else tuple(axis)
    for one in chosen or ():
        if x.shape[one] != 1:
            raise ExecutionError("op `squeeze`", f"axis {one} does not have size 1", got=x.shape[one])
    return np.squeeze(x, chosen)


def expand_dims(x: NDArray, *, axis: Sequence[int]) -> NDArray:
    """Gives ``x`` with axes of size 1 at these places of the result."""
    return np.expand_dims(x, tuple(axis))


KERNELS: dict[str, Callable[..., NDArray]] = {"squeeze": squeeze, "expand_dims": expand_dims}
