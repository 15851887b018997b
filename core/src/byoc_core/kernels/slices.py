"""Kernels that repeat, reverse, rotate and stack whole slices. Results may be views of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.kernels.indices import require_range, require_shape, widened
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "flip", "reverse_sequence", "roll", "stack", "tile"]


def tile(x: NDArray, *, repeats: Sequence[int]) -> NDArray:
    """Gives ``x`` repeated as a whole along each axis."""
    return np.tile(x, tuple(repeats))


def flip(x: NDArray, *, axis: int) -> NDArray:
    """Gives the slices along one axis in reverse order."""
    return np.flip(x, axis)


def roll(x: NDArray, *, shift: Sequence[int], axis: Sequence[int]) -> NDArray:
    """Gives ``x`` shifted along axes; what leaves at one end comes in at the other."""
    return np.roll(x, tuple(shift), tuple(axis)) if axis else x  # numpy has no roll of 0-d arrays


def stack(*parts: NDArray, axis: int) -> NDArray:
    """Gives the parts side by side along a new axis."""
    return np.stack(parts, axis)


def reverse_sequence(x: NDArray, lengths: NDArray, *, batch_axis: int, seq_axis: int) -> NDArray:
    """Gives each item of a batch with the first ``lengths`` slices of its sequence in reverse order.

    Raises:
        ExecutionError: a length is negative or larger than the axis, or there is not one for each item.
    """
    batch_axis, seq_axis = batch_axis % x.ndim, seq_axis % x.ndim
    batch, size = x.shape[batch_axis], x.shape[seq_axis]
    require_shape("reverse_sequence", "lengths", lengths.shape, (batch,))
    wide = widened(lengths)
    require_range("reverse_sequence", wide, 0, size, f"a length does not fit axis {seq_axis}")
    end, steps = wide.astype(np.int64)[:, np.newaxis], np.arange(size)
    order = np.where(steps < end, end - 1 - steps, steps)
    order = np.expand_dims(
        order if batch_axis < seq_axis else order.T, [a for a in range(x.ndim) if a not in (batch_axis, seq_axis)]
    )
    return np.take_along_axis(x, order, seq_axis)


KERNELS: dict[str, Callable[..., NDArray | tuple[NDArray, ...]]] = {
    "tile": tile,
    "flip": flip,
    "roll": roll,
    "stack": stack,
    "reverse_sequence": reverse_sequence,
}
