"""The kernel of resizing: one interpolation along each axis, by taking neighbours and weighing them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = ["KERNELS", "resize"]


def resize(
    x: NDArray,
    *,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    scales: tuple[float, ...] | None,
    method: str,
    coordinates: str,
    rounding: str,
    cubic_coefficient: float,
    exclude_outside: bool,
) -> NDArray:
    """Gives ``x`` resampled along axes to other sizes.

    Cost: one pass over the result (nearest), two (linear) or four (cubic) for each axis. Positions are computed in
    float64 for every dtype.
    """
    if x.size == 0:
        return np.zeros(
            [dict(zip(axes, sizes, strict=True)).get(axis, size) for axis, size in enumerate(x.shape)], x.dtype
        )
    wide = x.dtype if method == "nearest" else working_dtype(x.dtype)
    result = x.astype(wide, copy=False)
    for position, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        length = x.shape[axis]
        scale = size / length if scales is None else scales[position]
        if size == length and scale == 1.0:
            continue
        places = _places(size, length, scale, coordinates)
        if method == "nearest":
            result = result.take(np.clip(_ROUNDINGS[rounding](places), 0, length - 1).astype(np.int64), axis)
        elif method == "linear":
            result = _weigh(result, axis, *_linear_taps(np.clip(places, 0, length - 1)))
        else:
            taps, weights = _cubic_taps(places, cubic_coefficient)
            if exclude_outside:
                weights = np.where((taps >= 0) & (taps < length), weights, 0.0)
                weights /= weights.sum(axis=0)
            result = _weigh(result, axis, taps, weights)
    return np.ascontiguousarray(result.astype(x.dtype, copy=False))


def _places(size: int, length: int, scale: float, coordinates: str) -> NDArray:
    """Gives for each index of the result the place in the operand that it samples."""
    index = np.arange(size, dtype=np.float64)
    if coordinates == "asymmetric":
        return np.asarray(index / scale)
    if coordinates == "align_corners":
        return np.asarray(index * (length - 1) / max(size - 1, 1))
    if coordinates == "half_pixel_for_nearest":
        return np.asarray((index + 0.5) / scale)
    if coordinates == "half_pixel_or_first" and size == 1:
        return np.zeros(1)
    places = (index + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        places += (length - size / scale) / 2
    return np.asarray(places)


_ROUNDINGS: dict[str, Callable[[NDArray], NDArray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "half_down": lambda places: np.ceil(places - 0.5),
    "half_up": lambda places: np.floor(places + 0.5),
}


def _linear_taps(places: NDArray) -> tuple[NDArray, NDArray]:
    first = np.floor(places)
    part = places - first
    return np.stack([first, first + 1]).astype(np.int64), np.stack([1 - part, part])


def _cubic_taps(places: NDArray, coefficient: float) -> tuple[NDArray, NDArray]:
    """Gives four neighbours and their weights by Keys' cubic convolution (1981)."""
    first = np.floor(places) - 1
    taps = first + np.arange(4)[:, np.newaxis]
    distance = np.abs(places - taps)
    near = ((coefficient + 2) * distance - (coefficient + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * coefficient - 4 * coefficient
    return taps.astype(np.int64), np.where(distance <= 1, near, far)


def _weigh(x: NDArray, axis: int, taps: NDArray, weights: NDArray) -> NDArray:
    """Gives the weighted sum of neighbours along an axis; those outside are the nearest inside."""
    column = [-1, *[1] * (x.ndim - 1 - axis)]
    inside = np.clip(taps, 0, x.shape[axis] - 1)
    result = x.take(inside[0], axis) * weights[0].astype(x.dtype).reshape(column)
    for tap, weight in zip(inside[1:], weights[1:], strict=True):
        result += x.take(tap, axis) * weight.astype(x.dtype).reshape(column)
    return np.asarray(result)


KERNELS: dict[str, Callable[..., NDArray]] = {"nn.resize": resize}
