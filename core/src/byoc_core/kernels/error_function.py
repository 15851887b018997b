"""The error function and its complement, vectorised, to double precision.

Source: W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23 (1969),
631-637: a rational function for each of the intervals ``|x| <= 0.46875``, ``0.46875 < |x| <= 4`` and ``|x| > 4``.
Coefficients stand from the highest power down to the constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["erf64", "erfc64"]

_Float64Array = npt.NDArray[np.float64]

_SMALL_LIMIT = 0.46875
_MIDDLE_LIMIT = 4.0
# erfc is below the smallest subnormal double from here on.
_UNDERFLOW = 27.3

_SMALL_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_SMALL_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_MIDDLE_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_MIDDLE_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_LARGE_P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_LARGE_Q = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)
_INVERSE_SQRT_PI = 5.6418958354775628695e-1


def _horner(coefficients: Sequence[float], x: _Float64Array) -> _Float64Array:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _erf_small(x: _Float64Array) -> _Float64Array:
    square = x * x
    return x * (_horner(_SMALL_P, square) / _horner(_SMALL_Q, square))


def _exp_minus_square(x: _Float64Array) -> _Float64Array:
    """Return ``exp(-x*x)``, corrected for the rounding error of the square (``x`` is split at 1/16)."""
    head = np.trunc(x * 16.0) / 16.0
    return np.exp(-head * head) * np.exp(-(x - head) * (x + head))


def _erfc_positive(x: _Float64Array) -> _Float64Array:
    """Return ``erfc(x)`` for ``x > 0.46875``."""
    result = np.zeros_like(x)
    middle = x <= _MIDDLE_LIMIT
    part = x[middle]
    result[middle] = _exp_minus_square(part) * (_horner(_MIDDLE_P, part) / _horner(_MIDDLE_Q, part))
    large = (x > _MIDDLE_LIMIT) & (x < _UNDERFLOW)
    part = x[large]
    inverse = 1.0 / (part * part)
    tail = inverse * (_horner(_LARGE_P, inverse) / _horner(_LARGE_Q, inverse))
    result[large] = _exp_minus_square(part) / part * (_INVERSE_SQRT_PI - tail)
    return result


def erf64(x: npt.NDArray[Any]) -> _Float64Array:
    """Return ``erf(x)`` in float64, within 4 ULP.

    Shapes: any; the result has the shape of ``x``. NaN yields NaN, infinities yield -1 and 1, signed zeros are kept.
    """
    values = np.asarray(x, np.float64)
    result = values.copy()
    magnitude = np.abs(values)
    small = magnitude <= _SMALL_LIMIT
    result[small] = _erf_small(values[small])
    large = magnitude > _SMALL_LIMIT
    result[large] = np.copysign(1.0 - _erfc_positive(magnitude[large]), values[large])
    return result


def erfc64(x: npt.NDArray[Any]) -> _Float64Array:
    """Return ``erfc(x) = 1 - erf(x)`` in float64, accurate in its tail too: within 8 ULP of normal results.

    Shapes: any; the result has the shape of ``x``.
    """
    values = np.asarray(x, np.float64)
    result = values.copy()
    magnitude = np.abs(values)
    small = magnitude <= _SMALL_LIMIT
    result[small] = 1.0 - _erf_small(values[small])
    large = magnitude > _SMALL_LIMIT
    tail = _erfc_positive(magnitude[large])
    result[large] = np.where(values[large] < 0.0, 2.0 - tail, tail)
    return result
