"""Judging of a function's results, by the rule of its op, or by the debugger's rule if there are several ops.

The reference kernels compute the expected results twice: in the program's dtypes (``host``), and in float64, the oracle
(``exact``). A result equal to the first, or within a bound around the second, is right: a bound too narrow blames right
backends, and a bound too wide hides wrong numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.debugging import References, Tolerance, compare_outputs
from byoc_core.debugging.rounding import (
    Rule,
    operations_per_element,
    rounding_of,
    rule_of,
    ulps_of,
    unit_magnitude,
)
from byoc_core.dtypes import dtype_name, float_limits, is_float
from byoc_core.ir import COMPOSITE, Binding, Constant, IRModule, TensorType
from byoc_core.transform import evaluate_binding

__all__ = ["Verdict", "judge"]

NDArray = npt.NDArray[Any]

_MAX_FLUSHED_ALONE = 2
"""The number of operands tried alone with zeros in place of subnormal numbers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the results of a call.

    Attributes:
        text: the error; empty if none.
    """

    text: str = ""

    @property
    def is_right(self) -> bool:
        """Whether every result is within its bound."""
        return not self.text


def judge(
    module: IRModule,
    name: str,
    inputs: Sequence[NDArray],
    found: Sequence[NDArray],
    unit_roundoff: Mapping[str, float],
    *,
    finite_only: bool = False,
) -> Verdict:
    """Judge the results of a function.

    Args:
        module: the module of the function.
        name: the function; symbolic sizes are taken from the inputs.
        inputs: an array per parameter.
        found: the results to judge.
        unit_roundoff: the backend's declared unit roundoff, by dtype, and by op and dtype.
        finite_only: whether the backend computes on finite numbers only.
    """
    references = References(module, name, inputs, unit_roundoff, finite_only=finite_only)
    for index, (array, host) in enumerate(zip(found, references.host, strict=True)):
        if (array.shape, array.dtype) != (host.shape, host.dtype):
            text = f"got {array.dtype}{list(array.shape)}, expected {host.dtype}{list(host.shape)}"
            return Verdict(f"result {index}: {text}")
    if references.is_open:
        return Verdict()
    bindings = module[name].bindings
    if len(bindings) == 1 and not is_float(dtype_name(found[0].dtype)) and rule_of(bindings[0]) is Rule.NORM:
        return _judge_quantised(module, name, inputs, found[0], references)
    if len(bindings) != 1 or bindings[0].op is COMPOSITE or rule_of(bindings[0]) is Rule.NORM:
        return _judge_as_debugger(module, name, found, references)
    verdict = _SingleOpResults(module, name, inputs, found, references).verdict()
    if verdict is None:
        return _judge_as_debugger(module, name, found, references)
    return verdict


def _judge_quantised(
    module: IRModule, name: str, inputs: Sequence[NDArray], found: NDArray, references: References
) -> Verdict:
    """Judge integers by the debugger's rule; a power-of-two scale leaves a single right integer."""
    verdict = _judge_as_debugger(module, name, [found], references)
    if not verdict.is_right:
        return verdict
    single_op = _SingleOpResults(module, name, inputs, [found], references)
    return single_op.verdict_of(single_op.exactly_scaled & (found != references.host[0]))


def _judge_as_debugger(module: IRModule, name: str, found: Sequence[NDArray], references: References) -> Verdict:
    names = module[name].output_names
    findings, _ = compare_outputs(found, names, references, Tolerance())
    return Verdict("; ".join(f"{finding.code}: {finding.text}" for finding in findings))


class _SingleOpResults:
    """The results of a single op beside the references."""

    def __init__(
        self, module: IRModule, name: str, inputs: Sequence[NDArray], found: Sequence[NDArray], references: References
    ) -> None:
        self._module = module
        self._function = module[name]
        self._inputs = inputs
        self._found = found
        self._references = references
        (self._binding,) = self._function.bindings

    def verdict(self) -> Verdict | None:
        """Return the verdict; ``None`` if the rule of the op has no bound for the results."""
        wrongs = [self._wrong_elements(index, self._references, self._inputs) for index in range(len(self._found))]
        if any(wrong is None for wrong in wrongs):
            return None
        if rule_of(self._binding) is not Rule.MOVEMENT and any(w is not None and w.any() for w in wrongs):
            for inputs in self._flushed():
                references = self._references.with_inputs(inputs)
                for index, wrong in enumerate(wrongs):
                    still_wrong = self._wrong_elements(index, references, inputs)
                    if wrong is not None and still_wrong is not None and wrong.shape == still_wrong.shape:
                        wrong &= still_wrong
        texts = (self._describe(index, wrong) for index, wrong in enumerate(wrongs) if wrong is not None)
        return Verdict(next(filter(None, texts), ""))

    @property
    def exactly_scaled(self) -> NDArray:
        """The elements of a ``quantize`` with a power-of-two scale and a finite number as operand, as a mask."""
        x, scale, zero = self._operands(self._inputs)
        mantissas = np.frexp(_to_float64(scale))[0]
        ones = np.where(mantissas == 0.5, np.float32(1), np.float32(2))
        (quantised,) = evaluate_binding(
            self._binding, [np.ones(x.shape, x.dtype), ones.astype(x.dtype), np.zeros_like(zero)], {}
        )
        return np.asarray((quantised == 1) & np.isfinite(_to_float64(x)))

    def verdict_of(self, wrong: NDArray) -> Verdict:
        """Return the verdict on the first result, given a mask of wrong elements."""
        return Verdict(self._describe(0, wrong))

    def _flushed(self) -> Iterator[list[NDArray]]:
        """Yield the inputs with zeros in place of subnormal numbers: in all inputs, then in each of two inputs alone.

        Many processors treat subnormal numbers as zero, and nothing forbids this. Some do so with one operand: for a
        quotient computed as the product with a reciprocal, say.
        """
        flushed = [_flush(array) for array in self._inputs]
        changed = [position for position, array in enumerate(flushed) if array is not self._inputs[position]]
        if changed:
            yield flushed
        if len(changed) > 1:
            for position in changed[:_MAX_FLUSHED_ALONE]:
                yield [array if index == position else self._inputs[index] for index, array in enumerate(flushed)]

    def _wrong_elements(self, index: int, references: References, inputs: Sequence[NDArray]) -> NDArray | None:
        """Return a mask of the wrong elements of a result; ``None`` if there is no bound."""
        found, host, exact = self._found[index], references.host[index], references.exact[index]
        rule = rule_of(self._binding)
        if found.shape != host.shape:
            return np.ones(found.shape, bool)
        if rule is Rule.MOVEMENT:
            return _differing_bits(found, host)
        operands = [_to_oracle(array) for array in self._operands(inputs)]
        is_open = self._open_elements(operands)
        if not is_float(dtype_name(found.dtype)):
            return np.asarray((found != host) & (found != exact) & ~is_open)
        bound = self._bound(index, references, operands)
        if bound is None:
            return None
        return np.asarray(_beyond_bound(found, host, exact, *bound, is_sum=rule is Rule.SUM) & ~is_open)

    def _open_elements(self, operands: Sequence[NDArray]) -> NDArray:
        rule = rounding_of(self._binding).open_elements
        return np.asarray(False) if rule is None else rule(operands, self._binding.attrs)

    def _operands(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        arrays = dict(zip(map(id, self._function.params), inputs, strict=True))
        return [
            self._module.constants[value.digest] if isinstance(value, Constant) else arrays[id(value)]
            for value in self._binding.operands
        ]

    def _bound(self, index: int, references: References, operands: Sequence[NDArray]) -> tuple[NDArray, NDArray] | None:
        """Return the allowed error of each element, and the magnitude of the element's terms."""
        exact = _to_float64(references.exact[index])
        dtype = dtype_name(self._found[index].dtype)
        unit, limits = references.unit_roundoff(dtype, self._binding.op.name), float_limits(dtype)
        # An oracle of the same precision adds its own error.
        share = 2.0 if dtype == "float64" else 1.0
        with np.errstate(all="ignore"):
            if rule_of(self._binding) is Rule.ULP:
                ulps = ulps_of(self._binding, dtype)
                magnitude = unit_magnitude(self._binding, operands, exact)
                allowed = share * 2 * ulps * unit * magnitude + limits.smallest_normal
            else:
                length = _operations_per_element(self._binding, operands)
                if length * unit >= 0.5:
                    return None
                magnitude = self._sum_of_magnitudes(operands)
                allowed = share * length * unit / (1 - length * unit) * magnitude + length * limits.smallest_normal
            if unit > limits.unit_roundoff:
                # Computing in a coarser type rounds the operands to this type.
                moved = [np.abs(_to_float64(results[index]) - exact) for results in references.perturbed]
                allowed = allowed + 2 * np.max(np.nan_to_num(moved, nan=0.0, posinf=np.inf), axis=0)
        return allowed, magnitude

    def _sum_of_magnitudes(self, operands: Sequence[NDArray]) -> NDArray:
        (magnitude,) = evaluate_binding(self._binding, [np.abs(operand) for operand in operands], {})
        if rounding_of(self._binding).is_normwise:
            return np.full(magnitude.shape, magnitude.max(initial=0.0, where=np.isfinite(magnitude)))
        return magnitude

    def _describe(self, index: int, wrong: NDArray) -> str:
        """Return a description of the error in a result; empty if none."""
        if not wrong.any():
            return ""
        found, exact = self._found[index], self._references.exact[index]
        operands = [_to_oracle(array) for array in self._operands(self._inputs)]
        allowed = np.zeros(found.shape)
        if is_float(dtype_name(found.dtype)) and rule_of(self._binding) is not Rule.MOVEMENT:
            bound = self._bound(index, self._references, operands)
            allowed = allowed if bound is None else np.broadcast_to(bound[0], found.shape)
        with np.errstate(all="ignore"):
            error = np.abs(_to_float64(found) - _to_float64(exact))
            excess = np.where(wrong, np.where(np.isfinite(error), error / np.maximum(allowed, 1e-300), np.inf), -1.0)
        worst = int(np.argmax(excess))
        position = [int(axis) for axis in np.unravel_index(worst, found.shape)]
        limit = float(allowed.reshape(-1)[worst])
        return (
            f"result {index}: {int(wrong.sum())} of {wrong.size} elements are wrong; the worst at {position}: "
            f"got {found.reshape(-1)[worst]!s}, expected {exact.reshape(-1)[worst]!s}"
            + (f", allowed error {limit:.3g}" if 0 < limit < math.inf else "")
        )


def _operations_per_element(binding: Binding, operands: Sequence[NDArray]) -> int:
    """Return the number of operations behind an element of the result, plus four roundings of operands and result.

    Multiplications and additions count separately, so the number is twice the length of a sum of products: no order
    of adding and no split of the sum needs more. The op's own count is a mean over all elements. The last element of a
    running sum, or a middle element of a transposed convolution, has more terms; applying the op to operands full of 1
    gives the number of terms.
    """
    shapes: dict[str, int] = {}
    for value, array in zip(binding.operands, operands, strict=True):
        if isinstance(value.type, TensorType):
            shapes.update(
                (str(dim), size)
                for dim, size in zip(value.type.shape or (), array.shape, strict=True)
                if not isinstance(dim, int)
            )
    mean = math.ceil(operations_per_element(binding, shapes))
    (terms,) = evaluate_binding(binding, [np.ones_like(operand) for operand in operands], {})
    return max(mean, 2 * int(terms.max(initial=0.0))) + 4


def _beyond_bound(
    found: NDArray, host: NDArray, exact: NDArray, allowed: NDArray, magnitude: NDArray, *, is_sum: bool
) -> NDArray:
    """Return a mask of elements further from the oracle than allowed, or of a forbidden kind."""
    dtype = found.dtype
    largest = float_limits(dtype_name(dtype)).largest
    values, kernel, oracle = _to_float64(found), _to_float64(host), _to_float64(exact)
    with np.errstate(all="ignore"):
        rounded = oracle.astype(dtype).astype(np.float64)
        right = np.abs(values - oracle) <= allowed
        right |= (values == rounded) | (values == kernel)
        right |= np.isnan(values) & (np.isnan(rounded) | np.isnan(kernel))
        # Values near the largest may overflow; partial sums too, to either side, ending in NaN.
        overflow = ~np.isfinite(values) if is_sum else np.isinf(values) & (np.sign(values) == np.sign(oracle))
        right |= overflow & (magnitude + allowed >= largest) & ~np.isnan(rounded)
    return np.asarray(~right)


def _differing_bits(found: NDArray, expected: NDArray) -> NDArray:
    if not is_float(dtype_name(found.dtype)):
        return np.asarray(found != expected)
    bits = np.dtype(f"u{found.dtype.itemsize}")
    same = np.ascontiguousarray(found).view(bits) == np.ascontiguousarray(expected).view(bits)
    nans = np.isnan(_to_float64(found)) & np.isnan(_to_float64(expected))  # NaNs may differ in their payload
    return np.asarray(~(same.reshape(found.shape) | nans))


def _flush(array: NDArray) -> NDArray:
    """Return the array with zeros in place of subnormal numbers; the same array if there are none."""
    dtype = dtype_name(array.dtype)
    if not is_float(dtype):
        return array
    values = np.abs(_to_float64(array))
    is_subnormal = (values > 0) & (values < float_limits(dtype).smallest_normal)
    return np.where(is_subnormal, np.zeros((), array.dtype), array) if is_subnormal.any() else array


def _to_oracle(array: NDArray) -> NDArray:
    """Return floats as float64, other arrays unchanged."""
    return _to_float64(array) if is_float(dtype_name(array.dtype)) else array


def _to_float64(array: NDArray) -> NDArray:
    return np.asarray(array).astype(np.float64)
