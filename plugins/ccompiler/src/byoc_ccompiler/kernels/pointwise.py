"""The elementwise part of a kernel: loads, a C statement per op, stores."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeGuard

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import SCALAR_OPS, c_suffix
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.attributes import axis_of, int_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import Layout, expand_to_rank
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = [
    "PER_CHANNEL",
    "POINTWISE",
    "element_of",
    "element_product",
    "element_statements",
    "element_sum",
    "is_pointwise",
    "known_power",
    "operand_axes",
    "operand_dims",
    "operand_layout",
    "root_of",
    "step_statement",
]

PER_CHANNEL = frozenset({"nn.bias_add", "nn.batch_norm"})
"""Elementwise ops with parameters along one axis of the first operand, given by the attribute ``axis``."""

_QUANTISING = frozenset({"quantize", "dequantize"})

_MOST_QUARTERS = 16
"""Powers up to this number of quarters are products: the error of each product is half a unit in the last place."""

POINTWISE = frozenset(SCALAR_OPS) | PER_CHANNEL | _QUANTISING | {"broadcast_to"}
"""Ops computing each element of the result from a single element of each operand; quantising ops, except by blocks."""


def is_pointwise(step: Step) -> bool:
    """Return whether an element of a step's result depends on a single element of each operand."""
    return step.op in POINTWISE and (step.op not in _QUANTISING or int_of(step.binding, "block_size") == 0)


def operand_axes(step: Step) -> Sequence[tuple[int, ...]]:
    """Return, for each operand, the axes of the result along the operand's own axes."""
    if step.axes is not None:
        return step.axes
    rank = len(shape_of(step.result))
    ranks = [len(shape_of(operand)) for operand in step.operands]
    if step.op not in PER_CHANNEL | _QUANTISING:
        return [tuple(range(rank - own, rank)) for own in ranks]
    # A scalar parameter has no axis, and with scalar parameters `x` may be a scalar too: there is no axis to resolve.
    return [tuple(range(rank)), *((axis_of(step.binding, rank),) if own else () for own in ranks[1:])]


def operand_dims(step: Step) -> list[tuple[Dim, ...]]:
    """Return, for each operand, the sizes along the axes of the result (1 for a broadcast axis)."""
    rank, axes = len(shape_of(step.result)), operand_axes(step)
    return [expand_to_rank(shape_of(operand), own, rank, 1) for operand, own in zip(step.operands, axes, strict=True)]


def operand_layout(kernel: Kernel, step: Step, index: int) -> Layout:
    """Return the layout of an operand along the axes of a step's result."""
    strides, axes = kernel.strides(step.operands[index]), operand_axes(step)[index]
    return Layout(operand_dims(step)[index], expand_to_rank(strides, axes, len(shape_of(step.result)), 0))


def element_of(step: Step, values: Sequence[c.Expression]) -> c.Expression:
    """Return an element of a step's result from an element of each operand: literals or variables."""
    type_ = c.CType(dtype_of(step.result))
    if step.op == "broadcast_to":
        return values[0]
    if step.op == "quantize":
        return _quantised(type_, *values)
    if step.op == "dequantize":
        return _dequantised(type_, *values)
    if step.op == "nn.batch_norm":
        x, gamma, beta, mean, variance = values
        deviation = root_of(variance + c.Literal(step.binding.attrs["epsilon"], type_))
        return (x - mean) * (gamma / deviation) + beta
    if step.op == "exp" and step.is_nonpositive:
        return c.Call(c.Callee(f"byoc_exp_nonpositive_{c_suffix(type_.dtype)}", np.exp, flops=1), tuple(values), type_)
    if step.op == "power" and _has_quick_exponent(values[1]):
        return known_power(values[0], values[1].value, is_positive=False)
    op, attributes = ("add", {}) if step.op == "nn.bias_add" else (step.op, step.binding.attrs)
    return c.Element(op, tuple(values), type_, attributes)


def _has_quick_exponent(exponent: c.Expression) -> TypeGuard[c.Literal]:
    """Return whether an exponent is a half, or a known integer with products as fast powers."""
    return (
        isinstance(exponent, c.Literal)
        and exponent.type.dtype in ("float32", "float64")
        and exponent.value in (0.5, *range(1, _MOST_QUARTERS // 4 + 1))
    )


def element_sum(left: c.Expression, right: c.Expression) -> c.Expression:
    """Return the sum of two numbers of equal dtype, rounded or wrapped around as in reference kernels."""
    return _combined("+", c.Callee(f"byoc_add_{c_suffix(left.type.dtype)}", np.add), left, right)


def root_of(base: c.Expression) -> c.Expression:
    """Return the square root of a float."""
    name = "sqrtf" if base.type.dtype == "float32" else "sqrt"
    return c.Call(c.Callee(name, np.sqrt, flops=1), (base,), base.type)


def known_power(base: c.Expression, exponent: float, *, is_positive: bool = True) -> c.Expression:
    """Return a float raised to a known power.

    Small integers are products, and small multiples of a quarter are products of square roots, if the base is known to
    be at least 0: C compilers vectorise products and square roots, but not the power of the C library. The fourth power
    is the square of the square. A power within two units of the largest finite number may be rounded to infinity.

    The square root of any base has the special cases of the C library's power: 0 for -0, infinite for -infinity. With
    vectors, gcc would replace a power of a half by a bare square root, without these cases.
    """
    if exponent == 0.5 and not is_positive:
        infinity = c.Literal(np.inf, base.type)
        is_lowest = base.compare("==", c.Literal(-np.inf, base.type))
        return c.Select(is_lowest, infinity, root_of(base + c.Literal(0.0, base.type)))
    quarters = round(4 * exponent) if 0 < 4 * exponent <= _MOST_QUARTERS else 0
    if quarters == 0 or quarters != 4 * exponent or not (is_positive or quarters % 4 == 0):
        name = "powf" if base.type.dtype == "float32" else "pow"
        return c.Call(c.Callee(name, np.power, flops=60), (base, c.Literal(exponent, base.type)), base.type)
    if quarters == _MOST_QUARTERS:
        return (base * base) * (base * base)
    root = root_of(base)
    factors: list[c.Expression] = [base] * (quarters // 4)
    factors += [root] * (quarters // 2 % 2) + [root_of(root)] * (quarters % 2)
    return reduce(operator.mul, factors)


def element_product(left: c.Expression, right: c.Expression) -> c.Expression:
    """Return the product of two numbers of equal dtype, rounded or wrapped around as in reference kernels."""
    return _combined("*", c.Callee(f"byoc_multiply_{c_suffix(left.type.dtype)}", np.multiply), left, right)


def _combined(sign: str, function: c.Callee, left: c.Expression, right: c.Expression) -> c.Expression:
    return c.Binary(sign, left, right) if left.type.is_float else c.Call(function, (left, right), left.type)


def _quantised(type_: c.CType, x: c.Expression, scale: c.Expression, zero: c.Expression) -> c.Expression:
    """Return an element divided by the scale and rounded, plus the zero point, clamped to the limits of the dtype."""
    limits = np.iinfo(type_.dtype)
    callee = c.Callee(f"byoc_quantised_{c_suffix(x.type.dtype)}", _nearest, flops=4)
    bounds = (c.Literal(limits.min, c.CType("int32")), c.Literal(limits.max, c.CType("int32")))
    return c.Cast(c.Call(callee, (x / scale, c.Cast(zero, x.type), *bounds), x.type), type_)


def _nearest(quotient: Any, zero: Any, low: Any, high: Any) -> Any:
    """Return a rounded quotient plus a zero point, clamped to limits; 0 for a NaN."""
    moved = np.rint(quotient) + zero
    return np.where(np.isnan(moved), 0, np.clip(moved, low, high))


def _dequantised(type_: c.CType, x: c.Expression, scale: c.Expression, zero: c.Expression) -> c.Expression:
    """Return the float of a quantised integer: the distance from the zero point, exactly, times the scale."""
    bits = dtype_info(x.type.dtype).bits
    wide = c.CType("int32" if bits <= 16 else "int64")
    integer, zero_point = c.Cast(x, wide), c.Cast(zero, wide)
    steps: c.Expression = c.Binary("-", integer, zero_point)
    if bits == 64:
        steps = c.Call(c.Callee("byoc_subtract_i64", np.subtract), (integer, zero_point), wide)
    return c.Cast(steps, type_) * scale


def element_statements(
    kernel: Kernel,
    steps: Iterable[Step],
    offset_of: Callable[[Step, int], c.Expression],
    expressions: dict[Value, c.Expression],
) -> c.Block:
    """Return the statements computing elementwise steps at a position; the kernel declares the operands.

    ``offset_of`` returns the offset of a step's operand, by number; ``expressions`` has the values at hand, and gets
    the results.
    """
    loads: dict[tuple[Value, c.Expression], c.Let] = {}

    def load(step: Step, index: int, buffer: c.Buffer) -> c.Variable:
        key = (step.operands[index], offset_of(step, index))
        if key not in loads:
            loads[key] = c.Let(c.Variable(f"{buffer.name}_value", c.CType(buffer.dtype)), buffer[key[1]])
        return loads[key].variable

    lets = [step_statement(kernel, step, expressions, load) for step in steps]
    return (*loads.values(), *lets)


def step_statement(
    kernel: Kernel,
    step: Step,
    expressions: dict[Value, c.Expression],
    load: Callable[[Step, int, c.Buffer], c.Variable],
) -> c.Let:
    """Return the statement computing a step's element, and add the variable to the values at hand.

    ``load`` returns the variable of an operand not at hand, by number; the operand's buffer is declared.
    """
    values: list[c.Expression] = []
    roles = step.binding.op.operand_names(len(step.operands))
    for index, (operand, role) in enumerate(zip(step.operands, roles, strict=True)):
        at_hand = expressions.get(operand) or kernel.constant(operand)
        values.append(load(step, index, kernel.source(operand, role)) if at_hand is None else at_hand)
    expressions[step.result] = variable = c.Variable(step.result.name, c.CType(dtype_of(step.result)))
    return c.Let(variable, element_of(step, values))
