"""Comparison of a region's results with the region in float64, and with the reference kernels in the region's dtypes.

Two right programs with another order of additions differ, by an amount depending on the sizes and on the data: no fixed
tolerance fits. A result is wrong if the largest error against the region in float64 is more than ``factor`` times the
largest of these measures:

- the error of the reference kernels in the region's own dtypes, on the same inputs;
- ``sqrt(K)`` roundings of the result's largest element, where ``K`` is the largest number of operations behind one
  element of an op in the region: independent roundings of a sum of ``K`` terms add up this way (Higham and Mary, A New
  Approach to Probabilistic Rounding Error Analysis, 2019);
- ``sqrt(K)`` times the change in float64 if the inputs are off by half a unit in the last place: no backend can
  know a sum of cancelling terms better;
- the change in float64 if each op of the region errs as much as allowed for a right implementation of the op
  (:mod:`byoc_core.debugging.perturbing`): the error of a formula with cancelling terms, and of every op as magnified by
  the ops downstream.

The last two are computed only for a result not acquitted by the others.

A coarser unit roundoff stated by a backend for a dtype (``BackendInfo.unit_roundoff``) applies to this backend: as the
rounding of the second measure, as the half unit in the last place of the third, and as the unit of the ops' errors.

Integers and booleans must equal the values of one of these runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.backend.info import stated_roundoff
from byoc_core.debugging.compiling import extract_region
from byoc_core.debugging.findings import OutputError, RegionFinding
from byoc_core.debugging.perturbing import run_perturbed
from byoc_core.debugging.rounding import operations_per_element
from byoc_core.dims import solve_symbol
from byoc_core.dtypes import dtype_name, float_limits, is_float, to_numpy
from byoc_core.errors import OptionsError
from byoc_core.ir import Function, IRModule, TensorType
from byoc_core.transform import evaluate_function

__all__ = ["References", "Tolerance", "compare_outputs"]

NDArray = npt.NDArray[Any]

_NUM_PERTURBED = 8


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The error accepted as rounding.

    Attributes:
        factor: the largest error of a result, as a multiple of the rule's own measures.
        rtol: with ``atol``, replaces the rule: ``|error| <= atol + rtol * |expected|`` for every element.
        atol: see ``rtol``; if only one of the two is given, the other is 0.

    Raises:
        OptionsError: a value is negative or not finite.
    """

    factor: float = 4.0
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("factor", self.factor), ("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < math.inf:
                raise OptionsError(name, "is not a bound", got=value, expected="a finite number from 0")

    @property
    def is_fixed(self) -> bool:
        """Whether bounds replace the rule."""
        return self.rtol is not None or self.atol is not None


class References:
    """The results of a function on inputs by the reference kernels; requested values are computed once.

    Args:
        module: contains the function.
        name: the function.
        inputs: one array per parameter.
        unit_roundoff: of the compared backend; see ``BackendInfo.unit_roundoff``.
        finite_only: whether the backend computes on finite numbers only; see ``BackendInfo.finite_only``.

    Attributes:
        host: the results in the program's own dtypes.

    Raises:
        ExecutionError: the function calls something without a reference kernel.
    """

    def __init__(
        self,
        module: IRModule,
        name: str,
        inputs: Sequence[NDArray],
        unit_roundoff: Mapping[str, float] = MappingProxyType({}),
        *,
        finite_only: bool = False,
    ) -> None:
        self._module = module
        self._name = name
        self._inputs = inputs
        self._unit_roundoff = unit_roundoff
        self._finite_only = finite_only
        self.host = evaluate_function(module, name, inputs)

    def with_inputs(self, inputs: Sequence[NDArray]) -> References:
        """Return the references of the same function and backend for other inputs."""
        return References(self._module, self._name, inputs, self._unit_roundoff, finite_only=self._finite_only)

    def unit_roundoff(self, dtype: str, op: str = "") -> float:
        """Return the relative error allowed for one rounding of a dtype: in general, or in an op."""
        return max(stated_roundoff(self._unit_roundoff, dtype, op), float_limits(dtype).unit_roundoff)

    @cached_property
    def is_open(self) -> bool:
        """Whether the results mean nothing: some numbers are not finite, but the backend requires finite numbers."""
        if not self._finite_only:
            return False
        seen = [_is_finite(array) for array in (*self._inputs, *self.host)]

        def look(_binding: object, operands: Sequence[NDArray], results: Sequence[NDArray], _sizes: object) -> Any:
            seen.extend(map(_is_finite, (*operands, *results)))
            return results

        if all(seen):
            evaluate_function(self._module, self._name, self._inputs, on_results=look)
        return not all(seen)

    @cached_property
    def error_growth(self) -> float:
        """The square root of the largest number of operations behind one element of an op."""
        sizes = _sizes_of(self._module[self._name], self._inputs)
        functions = extract_region(self._module, self._name).functions.values()
        bindings = (binding for function in functions for binding in function.walk())
        return math.sqrt(max((operations_per_element(binding, sizes) for binding in bindings), default=1.0))

    @cached_property
    def exact(self) -> tuple[NDArray, ...]:
        """The results in float64; if a data-dependent shape comes out differently, the host's result instead."""
        return self._widened(self._inputs)

    @cached_property
    def perturbed(self) -> tuple[tuple[NDArray, ...], ...]:
        """The results in float64 on inputs off by half a unit in the last place, several times."""
        generator = np.random.default_rng(0)
        return tuple(
            self._widened([self._perturb(array, generator) for array in self._inputs]) for _ in range(_NUM_PERTURBED)
        )

    @cached_property
    def erring(self) -> tuple[tuple[NDArray, ...], ...]:
        """The results in float64 with the largest allowed error in each op, several times."""
        generator = np.random.default_rng(0)
        runs = (
            run_perturbed(self._module, self._name, self._inputs, self.unit_roundoff, generator)
            for _ in range(_NUM_PERTURBED)
        )
        return tuple(map(self._of_host_shapes, runs))

    def _perturb(self, array: NDArray, generator: np.random.Generator) -> NDArray:
        dtype = dtype_name(array.dtype)
        if not is_float(dtype):
            return array
        return _to_float64(array) * (1.0 + self.unit_roundoff(dtype) * generator.choice((-1.0, 1.0), array.shape))

    def _widened(self, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
        return self._of_host_shapes(evaluate_function(self._module, self._name, inputs, exact=True))

    def _of_host_shapes(self, results: Sequence[NDArray]) -> tuple[NDArray, ...]:
        return tuple(
            result if result.shape == host.shape else host for result, host in zip(results, self.host, strict=True)
        )


def compare_outputs(
    found: Sequence[NDArray], names: Sequence[str], references: References, tolerance: Tolerance
) -> tuple[list[RegionFinding], list[OutputError]]:
    """Compare results with the references.

    Args:
        found: the results.
        names: of the results.
        references: the expected results.
        tolerance: the error accepted as rounding.

    Returns:
        The faults, and the figures of each result.
    """
    findings: list[RegionFinding] = []
    errors = []
    for index, (array, name) in enumerate(zip(found, names, strict=True)):
        comparison = _Comparison(array, name, index, references, tolerance)
        findings += comparison.findings
        errors.append(comparison.error)
    return findings, errors


class _Comparison:
    """A result compared with the references; judged during construction."""

    def __init__(self, found: NDArray, name: str, index: int, references: References, tolerance: Tolerance) -> None:
        self._found = found
        self._index = index
        self._name = name
        self._references = references
        self._tolerance = tolerance
        self._host = references.host[index]
        self._dtype = dtype_name(self._host.dtype)
        self.findings: list[RegionFinding] = []
        self.error = OutputError(name, self._dtype)
        if found.shape != self._host.shape:
            self._add("wrong-shape", f"got {list(found.shape)}, expected {list(self._host.shape)}")
            self.error = OutputError(name, self._dtype, math.inf, math.inf, 0.0, 0.0, math.inf)
        elif references.is_open or not found.size:
            return
        elif is_float(self._dtype):
            self._judge_floats()
        else:
            self._judge_integers()

    def _add(self, code: str, text: str) -> None:
        self.findings.append(RegionFinding(code, f"output `{self._name}`: {text}", self._index))

    @property
    def _exact(self) -> NDArray:
        return self._references.exact[self._index]

    def _perturbed(self) -> list[NDArray]:
        return [_to_float64(results[self._index]) for results in self._references.perturbed]

    def _erring(self) -> list[NDArray]:
        return [_to_float64(results[self._index]) for results in self._references.erring]

    def _judge_floats(self) -> None:
        found, host, exact = map(_to_float64, (self._found, self._host, self._exact))
        dtype = to_numpy(self._dtype)
        rounded = _round_to(self._exact, dtype)
        self._check_kinds(found, host, rounded, dtype)
        # If the result is infinite in the result's dtype, or NaN, there is no error to measure.
        measured = np.isfinite(rounded)
        error, host_error = _errors(found, exact, measured), float(_errors(host, exact, measured).max())
        scale = float(np.max(np.abs(exact), initial=0.0, where=measured))
        if self._tolerance.is_fixed:
            self._judge_fixed(error, exact, scale, host_error)
            return
        factor, error_growth = self._tolerance.factor, self._references.error_growth
        spacing, tiny = 2 * self._references.unit_roundoff(self._dtype), float_limits(self._dtype).smallest_normal
        allowed = factor * max(host_error, error_growth * spacing * scale, tiny)
        largest = float(error.max())
        if largest > allowed:
            moved = max(float(_errors(perturbed, exact, measured).max()) for perturbed in self._perturbed())
            allowed = max(allowed, factor * error_growth * moved)
        if largest > allowed:
            moved = max(float(_errors(erring, exact, measured).max()) for erring in self._erring())
            allowed = max(allowed, factor * moved)
        self.error = _figures(self._name, self._dtype, largest, host_error, allowed, scale)
        if largest > allowed:
            self._say_values(error, found, exact, f"more than {allowed:.3g}")

    def _judge_fixed(self, error: NDArray, exact: NDArray, scale: float, host_error: float) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = (self._tolerance.atol or 0.0) + (self._tolerance.rtol or 0.0) * np.abs(exact)
            excess = np.where(error > 0, error / bound, 0.0)
        worst = int(np.argmax(excess))
        largest, allowed = float(error.reshape(-1)[worst]), float(bound.reshape(-1)[worst])
        self.error = _figures(self._name, self._dtype, largest, host_error, allowed, scale)
        if largest > allowed:
            self._say_values(excess, _to_float64(self._found), exact, f"more than {allowed:.3g}")

    def _check_kinds(self, found: NDArray, host: NDArray, rounded: NDArray, dtype: np.dtype[Any]) -> None:
        kinds = _kinds(found)
        wrong = (kinds != _kinds(host)) & (kinds != _kinds(rounded))
        if wrong.any():
            for moved in (*self._perturbed(), *self._erring()):
                wrong &= kinds != _kinds(_round_to(moved, dtype))
        if wrong.any():
            first = int(np.argmax(wrong))
            self._add(
                "wrong-nonfinite",
                f"{int(wrong.sum())} of {wrong.size} elements, the first at {_position(first, found.shape)}: got "
                f"{found.reshape(-1)[first]:g}, expected {rounded.reshape(-1)[first]:g}",
            )

    def _judge_integers(self) -> None:
        found, host = self._found, self._host
        wrong = (found != host) & (found != self._exact)
        if wrong.any():
            for results in (*self._references.perturbed, *self._references.erring):
                wrong &= found != results[self._index]
        if not wrong.any():
            return
        error = np.where(wrong, _distance(found, host), 0.0)
        scale = float(np.abs(_to_float64(host)).max())
        self.error = _figures(self._name, self._dtype, float(error.max()), 0.0, 0.0, scale)
        self._say_values(error, found, host, "but integers must be equal")

    def _say_values(self, error: NDArray, found: NDArray, expected: NDArray, rule: str) -> None:
        worst = int(np.argmax(error))
        self._add(
            "wrong-values",
            f"error {self.error.max_abs_error:.3g}, {rule}; at {_position(worst, found.shape)} got "
            f"{_number(found.reshape(-1)[worst])}, expected {_number(expected.reshape(-1)[worst])}",
        )


def _number(value: Any) -> str:
    """Return an element of a result as text: integers with all digits."""
    return f"{value:.9g}" if isinstance(value, np.floating) else str(int(value))


def _distance(left: NDArray, right: NDArray) -> NDArray:
    """Return the absolute differences of integers as float64; 0 only for equal integers."""
    wide = "uint64" if left.dtype == np.uint64 else "int64"
    left, right = left.astype(wide), right.astype(wide)
    # The difference of two 64-bit integers fits into 64 bits without a sign.
    difference: NDArray = np.maximum(left, right).astype("uint64") - np.minimum(left, right).astype("uint64")
    return difference.astype("float64")


def _sizes_of(function: Function, inputs: Sequence[NDArray]) -> dict[str, int]:
    """Return the sizes of the symbols determined by the shapes of inputs."""
    sizes: dict[str, int] = {}
    for param, array in zip(function.params, inputs, strict=True):
        shape = param.type.shape if isinstance(param.type, TensorType) else None
        for dim, size in zip(shape or (), array.shape, strict=False):
            solved = solve_symbol(dim, size)
            if solved is not None:
                sizes.setdefault(*solved)
    return sizes


def _figures(name: str, dtype: str, error: float, host_error: float, allowed: float, scale: float) -> OutputError:
    excess = 0.0 if error == 0 else error / allowed if allowed else math.inf
    return OutputError(
        name, dtype, error, _ratio(error, scale), _ratio(host_error, scale), _ratio(allowed, scale), excess
    )


def _ratio(error: float, scale: float) -> float:
    return 0.0 if error == 0 else error / scale if scale else math.inf


def _to_float64(array: NDArray) -> NDArray:
    return np.asarray(array).astype(np.float64)


def _is_finite(array: NDArray) -> bool:
    return not is_float(dtype_name(array.dtype)) or bool(np.isfinite(_to_float64(array)).all())


def _round_to(array: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """Return the values of an array rounded to a dtype, in float64."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _to_float64(array.astype(dtype))


def _errors(found: NDArray, exact: NDArray, measured: NDArray) -> NDArray:
    """Return the differences; 0 for unmeasured elements and for non-finite differences."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(found - exact)
    return np.where(measured & np.isfinite(error), error, 0.0)


def _kinds(array: NDArray) -> NDArray:
    """Return 0 for finite elements, 1 for NaN, 2 and 3 for the infinities."""
    return np.select([np.isnan(array), np.isposinf(array), np.isneginf(array)], [1, 2, 3], 0)


def _position(flat: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(axis)) for axis in np.unravel_index(flat, shape))}]" if shape else "[]"
