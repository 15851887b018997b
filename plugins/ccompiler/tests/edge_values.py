"""Arrays used as operands in several tests: seeded floats, awkward floats, integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["floats", "ints", "wild"]

NDArray = npt.NDArray[Any]


def floats(*shape: int) -> NDArray:
    """Return seeded normal numbers."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def wild(*shape: int) -> NDArray:
    """Return floats of few values, including zeros of both signs, infinities and NaN."""
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan], np.float32)
    return np.random.default_rng(4).choice(values, shape)


def ints(dtype: str, values: object) -> NDArray:
    """Return integers of a dtype."""
    return np.array(values, dtype)
