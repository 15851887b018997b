"""Correct rounding of float64 numbers to the floating-point types of byoc."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.runtime.module import NDArray

__all__ = ["round_floats"]


def round_floats(values: npt.NDArray[np.float64], dtype: str) -> NDArray:
    """Return numbers rounded once to a floating-point type: to nearest, ties to even.

    ``ml_dtypes`` converts float64 by float32, so numbers near a midpoint are rounded twice. Rounded to odd in the first
    step, the result equals a single rounding: float32 has more than two bits more than each type of ``ml_dtypes``.

    Source: S. Boldo and G. Melquiond, Emulation of FMA and correctly rounded sums, 2008.
    """
    target = to_numpy(dtype)
    with np.errstate(all="ignore"):
        if not dtype_info(dtype).from_ml_dtypes:
            return values.astype(target)
        nearest = np.asarray(values, np.float32)
        wide = nearest.astype(np.float64)
        bits = nearest.view(np.uint32) - (np.abs(wide) > np.abs(values)).astype(np.uint32)
        odd = bits | (wide != values).astype(np.uint32)
        return np.asarray(odd, np.uint32).view(np.float32).astype(target)
