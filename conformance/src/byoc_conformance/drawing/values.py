"""Operands of ops, drawn in several regimes of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import dtype_info, float_limits, to_numpy
from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase

__all__ = ["POSITIVE_OPERANDS", "REGIMES", "draw_array", "draw_operands", "to_positive"]

NDArray = npt.NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...], str], NDArray]


def _normal(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    return generator.standard_normal(shape)


def _halves(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return integers, and midpoints between neighbouring integers."""
    return generator.integers(-8, 8, shape, endpoint=True) / 2.0


def _large(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    limit = float_limits(dtype).largest / 4
    return np.clip(generator.standard_normal(shape) * 100, -limit, limit)


def _small(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return numbers of the magnitude of an epsilon's root, to tell different epsilons apart."""
    return generator.standard_normal(shape) * 2.0**-10


def _nonfinite(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return NaN and infinities among ordinary numbers; a line along each axis has a NaN at the end only."""
    array = generator.standard_normal(shape)
    wild = generator.choice([np.nan, np.inf, -np.inf], shape, p=[0.5, 0.25, 0.25])
    mixed = np.where(generator.random(shape) < 0.125, wild, array)
    for axis in range(len(shape) if mixed.size else 0):
        line = tuple(
            slice(None) if dimension == axis else int(generator.integers(size)) for dimension, size in enumerate(shape)
        )
        mixed[line] = array[line]
        mixed[line][-1:] = np.nan
    return mixed


def _tiny(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    return generator.standard_normal(shape) * 4 * float_limits(dtype).smallest_normal


def _zeros(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    return generator.choice([0.0, -0.0, 1.0, -1.0], shape)


def _thresholds(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return the thresholds of piecewise functions, and neighbouring numbers."""
    steps = np.array([-6.0, -3.0, -1.0, -0.5, 0.5, 1.0, 3.0, 6.0])
    unit = 2 * float_limits(dtype).unit_roundoff
    return generator.choice([*steps, 0.0, *(steps * (1 + unit)), *(steps * (1 - unit))], shape)


def _special(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return NaN, infinities, zeros of both signs, and numbers near the largest, among ordinary numbers.

    The large numbers are an eighth of the largest: six times as much, as in some formulas, stays finite.
    """
    largest = float_limits(dtype).largest / 8
    special_values = generator.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, 1.0], shape)
    array = np.where(generator.random(shape) < 0.5, special_values, generator.standard_normal(shape))
    array.reshape(-1)[generator.integers(max(1, array.size)) :][:1] = np.nan  # at least a single NaN
    return array


REGIMES: Mapping[str, Draw] = {
    "normal": _normal,
    "halves": _halves,
    "large": _large,
    "zeros": _zeros,
    "small": _small,
    "tiny": _tiny,
    "thresholds": _thresholds,
    "special": _special,
    "nonfinite": _nonfinite,
}
"""Generators of floating-point operands, by name. Integers are small under ``normal``, else arbitrary."""

FINITE_OPERANDS = frozenset({"weight"})
"""Operands drawn as ``normal`` in the regime ``nonfinite``, by the operand name of the op: no op specifies whether
padding zeros times NaN are NaN.
"""

POSITIVE_OPERANDS = frozenset({"variance", "scale"})
"""Operands meaningful only if positive, by the operand name of the op."""


def draw_operands(op: OpDef, case: OpCase, dtype: str, regime: str, generator: np.random.Generator) -> list[NDArray]:
    """Return operands for a case; indices, lengths and similar operands stay in range.

    Args:
        op: the case's op.
        case: the case.
        dtype: of the operands without a fixed dtype in the case.
        regime: a key of :data:`REGIMES`.
        generator: of all random numbers.
    """
    arrays = []
    for name, operand in zip(op.operand_names(len(case.operands)), case.operands, strict=True):
        own = operand.dtype or dtype
        drawn = "normal" if regime == "nonfinite" and name in FINITE_OPERANDS else regime
        limits = (operand.low, operand.high) if operand.dtype is not None or regime == "normal" else None
        array = draw_array(own, operand.shape, drawn, generator, limits)
        if name in POSITIVE_OPERANDS and dtype_info(own).kind == "float":
            is_exact = name == "scale" and drawn in {"normal", "halves"}
            array = _to_powers_of_two(array) if is_exact else to_positive(array)
        arrays.append(array)
    return arrays


def _to_powers_of_two(numbers: NDArray) -> NDArray:
    """Return 1, 2 or 4 for each number, for exact quotients, with ties among them."""
    return np.asarray(2.0 ** (np.floor(numbers.astype(np.float64)) % 3)).astype(numbers.dtype)


def to_positive(array: NDArray) -> NDArray:
    """Return the magnitudes of floats, plus a quarter."""
    return np.asarray(np.abs(array.astype(np.float64)) + 0.25).astype(array.dtype)


def draw_array(
    dtype: str,
    shape: tuple[int, ...],
    regime: str,
    generator: np.random.Generator,
    limits: tuple[int, int] | None = (-4, 4),
) -> NDArray:
    """Draw an array of any dtype: floats in a regime of values, integers within limits, or random truth values.

    Args:
        dtype: of the elements.
        shape: the sizes.
        regime: a key of :data:`REGIMES`.
        generator: of all random numbers.
        limits: the least and the largest integer; any integers if ``None``.
    """
    info = dtype_info(dtype)
    if info.kind == "float":
        with np.errstate(all="ignore"):
            return np.asarray(REGIMES[regime](generator, shape, dtype)).astype(to_numpy(dtype))
    if info.kind == "bool":
        return np.asarray(generator.random(shape) < 0.5)
    low, high = (0, 2**info.bits - 1) if info.kind == "uint" else (-(2 ** (info.bits - 1)), 2 ** (info.bits - 1) - 1)
    if limits is not None:
        low, high = max(low, limits[0]), min(high, limits[1])
    wide = np.uint64 if high > 2**63 - 1 else np.int64
    return np.asarray(generator.integers(low, high, shape, wide, endpoint=True)).astype(to_numpy(dtype))
