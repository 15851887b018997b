"""Judges the results of a region: against the region in float64, beside the reference kernels in its own dtypes.

Two right programs that add in another order differ, and how much depends on the sizes and on the data: no fixed
tolerance fits. A result is wrong where its largest error against the region in float64 is more than ``factor`` times
the largest of these:

- the error of the reference kernels in the region's own dtypes, on the same inputs;
- ``sqrt(K)`` roundings of the result's largest element, where ``K`` is the number of operations that go into one
  element of the op in the region that has most of them: independent roundings of a sum of ``K`` terms add up so
  (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019);
- ``sqrt(K)`` times what moves in float64 where the inputs are off by half a unit in the last place: no backend can
  know better a sum whose terms cancel;
- what moves in float64 where each op of the region errs as much as a right implementation of the op may
  (:mod:`byoc_core.debugging.perturbing`): the error of a formula whose terms cancel, and of every op as the ops behind
  it magnify it.

The last two are computed only for a result that the others do not acquit.

A backend that states a coarser unit roundoff for a dtype (``BackendInfo.unit_roundoff``) is judged by that one: it
stands for the rounding of the second measure, for the half unit in the last place of the third, and for the unit of the
ops' errors.

Integers and booleans must be those of one of these runs.
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
from byoc_core.debugging.findings import Finding, OutputError
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
    """How much error is taken for rounding.

    Attributes:
        factor: how many times as far from float64 as the rule's own measures a result may be.
        rtol: with ``atol``, replaces the rule: ``|error| <= atol + rtol * |expected|`` for every element.
        atol: see ``rtol``; one that is left out is 0 where the other is given.

    Raises:
        OptionsError: one is negative or not finite.
    """

    factor: float = 4.0
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("factor", self.factor), ("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < math.inf:
                raise OptionsError(name, "is no bound", got=value, expected="a finite number from 0")

    @property
    def is_fixed(self) -> bool:
        """Whether bounds were given instead of the rule."""
        return self.rtol is not None or self.atol is not None


class References:
    """What a function gives on inputs by the reference kernels; what is asked for is computed once.

    Args:
        module: where the function stands.
        name: the function.
        inputs: one array per parameter.
        unit_roundoff: of the backend whose results are compared; see ``BackendInfo.unit_roundoff``.
        finite_only: whether the backend computes on finite numbers only; see ``BackendInfo.finite_only``.

    Attributes:
        host: the results in the program's own dtypes.

    Raises:
        ExecutionError: the function calls something that has no reference kernel.
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
        """Return the relative error that one rounding of a dtype may have: in general, or in an op."""
        return max(stated_roundoff(self._unit_roundoff, dtype, op), float_limits(dtype).unit_roundoff)

    @cached_property
    def is_open(self) -> bool:
        """Whether the results mean nothing: not all numbers are finite, and the backend computes on no others."""
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
    def spread(self) -> float:
        """The square root of the number of operations behind one element of the op that has most of them."""
        sizes = _sizes_of(self._module[self._name], self._inputs)
        functions = extract_region(self._module, self._name).functions.values()
        bindings = (binding for function in functions for binding in function.walk())
        return math.sqrt(max((operations_per_element(binding, sizes) for binding in bindings), default=1.0))

    @cached_property
    def exact(self) -> tuple[NDArray, ...]:
        """The results in float64; one whose shape depends on the data and comes out another is the host's."""
        return self._widened(self._inputs)

    @cached_property
    def perturbed(self) -> tuple[tuple[NDArray, ...], ...]:
        """The results in float64 on inputs that are off by half a unit in the last place, several times."""
        generator = np.random.default_rng(0)
        return tuple(
            self._widened([self._perturb(array, generator) for array in self._inputs]) for _ in range(_NUM_PERTURBED)
        )

    @cached_property
    def erring(self) -> tuple[tuple[NDArray, ...], ...]:
        """The results in float64 where each op errs as much as a right one may, several times."""
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
) -> tuple[list[Finding], list[OutputError]]:
    """Judges results.

    Args:
        found: the results.
        names: of the results.
        references: what they should be.
        tolerance: how much error is taken for rounding.

    Returns:
        What is wrong, and the figures of each result.
    """
    findings: list[Finding] = []
    errors = []
    for index, (array, name) in enumerate(zip(found, names, strict=True)):
        comparison = _Comparison(array, name, index, references, tolerance)
        findings += comparison.findings
        errors.append(comparison.error)
    return findings, errors


class _Comparison:
    """One result beside its references; judged when made."""

    def __init__(self, found: NDArray, name: str, index: int, references: References, tolerance: Tolerance) -> None:
        self._found = found
        self._index = index
        self._name = name
        self._references = references
        self._tolerance = tolerance
        self._host = references.host[index]
        self._dtype = dtype_name(self._host.dtype)
        self.findings: list[Finding] = []
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
        self.findings.append(Finding(code, f"output `{self._name}`: {text}", self._index))

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
        # Where the result is infinite in its dtype, or NaN, there is no error to measure.
        measured = np.isfinite(rounded)
        error, host_error = _errors(found, exact, measured), float(_errors(host, exact, measured).max())
        scale = float(np.max(np.abs(exact), initial=0.0, where=measured))
        if self._tolerance.is_fixed:
            self._judge_fixed(error, exact, scale, host_error)
            return
        factor, spread = self._tolerance.factor, self._references.spread
        spacing, tiny = 2 * self._references.unit_roundoff(self._dtype), float_limits(self._dtype).smallest_normal
        allowed = factor * max(host_error, spread * spacing * scale, tiny)
        largest = float(error.max())
        if largest > allowed:
            moved = max(float(_errors(perturbed, exact, measured).max()) for perturbed in self._perturbed())
            allowed = max(allowed, factor * spread * moved)
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
        error = np.where(wrong, np.abs(_to_float64(found) - _to_float64(host)), 0.0)
        scale = float(np.abs(_to_float64(host)).max())
        self.error = _figures(self._name, self._dtype, float(error.max()), 0.0, 0.0, scale)
        self._say_values(error, _to_float64(found), _to_float64(host), "and integers must be equal")

    def _say_values(self, error: NDArray, found: NDArray, expected: NDArray, rule: str) -> None:
        worst = int(np.argmax(error))
        self._add(
            "wrong-values",
            f"error {self.error.max_abs_error:.3g}, {rule}; at {_position(worst, found.shape)} got "
            f"{found.reshape(-1)[worst]:.9g}, expected {expected.reshape(-1)[worst]:.9g}",
        )


def _sizes_of(function: Function, inputs: Sequence[NDArray]) -> dict[str, int]:
    """Gives the sizes of the symbols that the shapes of inputs tell."""
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
    """Gives the values that an array has in a dtype, in float64."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _to_float64(array.astype(dtype))


def _errors(found: NDArray, exact: NDArray, measured: NDArray) -> NDArray:
    """Gives the differences; 0 where none is measured, or where what was found is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(found - exact)
    return np.where(measured & np.isfinite(error), error, 0.0)


def _kinds(array: NDArray) -> NDArray:
    """Gives 0 for finite elements, 1 for NaN, 2 and 3 for the infinities."""
    return np.select([np.isnan(array), np.isposinf(array), np.isneginf(array)], [1, 2, 3], 0)


def _position(flat: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(axis)) for axis in np.unravel_index(flat, shape))}]" if shape else "[]"
