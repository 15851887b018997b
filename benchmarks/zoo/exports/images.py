"""Drawn images: coloured rectangles on a gradient, so that different images give a network different features."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["draw_image"]


def draw_image(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.float32]:
    """Return an image ``(3, height, width)`` with values from 0 to 1."""
    slopes = rng.uniform(-0.3, 0.3, (3, 2, 1, 1))
    rows, columns = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
    image = rng.uniform(0.3, 0.7, (3, 1, 1)) + slopes[:, 0] * rows + slopes[:, 1] * columns
    for _ in range(int(rng.integers(4, 9))):
        top, left = (int(rng.integers(0, size * 3 // 4)) for size in (height, width))
        bottom, right = (
            start + int(rng.integers(size // 8, size // 2)) for start, size in ((top, height), (left, width))
        )
        image[:, top:bottom, left:right] = rng.uniform(0, 1, (3, 1, 1))
    image += rng.normal(0, 0.02, image.shape)
    return image.clip(0, 1).astype(np.float32)
