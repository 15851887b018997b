"""Rules of :class:`~byoc_core.transform.canonicalise.Canonicalise` for arithmetic, comparison and logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_info, is_float, to_numpy
from byoc_core.ir import Binding, Constant, TensorType, Value
from byoc_core.transform.common_subexpressions import may_swap
from byoc_core.transform.evaluate import evaluate_binding
from byoc_core.transform.rewriter import RewriteGraph, Rule
from byoc_core.transform.tensors import dtype_of, has_type_of_result, smallest_normal

__all__ = ["Exactness", "arithmetic_rules", "swap_constant"]

Rewritten = Sequence[Value] | None


@dataclass(frozen=True, slots=True)
class Exactness:
    """Properties of results to preserve; see :class:`~byoc_core.transform.canonicalise.Canonicalise`."""

    signed_zeros: bool = True
    special_values: bool = True
    rounding: bool = True


def arithmetic_rules(keep: Exactness) -> Mapping[str, tuple[Rule, ...]]:
    """Return the rules by op, neutral elements first; :func:`swap_constant` precedes all of these rules."""
    rules: dict[str, list[Rule]] = {}
    for table in (_exact_rules(keep), _inexact_rules(keep)):
        for name, more in table.items():
            rules.setdefault(name, []).extend(more)
    return {name: tuple(found) for name, found in rules.items()}


def _exact_rules(keep: Exactness) -> dict[str, tuple[Rule, ...]]:
    any_zero = not keep.signed_zeros
    minus_nothing = 0.0 if any_zero else -0.0
    nothing = _neutral(0, for_floats=0.0, any_zero=any_zero)
    return {
        "add": (_neutral(0, for_floats=minus_nothing, any_zero=any_zero), _plus_negative, _join_constants),
        "subtract": (nothing, _minus_negative, _difference_of_equals),
        "multiply": (_neutral(1), _times_zero, _join_constants),
        "divide": (_neutral(1), _over_power_of_two),
        "power": (_neutral(1),),
        "maximum": (_extreme(is_low=True), _equal_operands),
        "minimum": (_extreme(is_low=False), _equal_operands),
        "logical_and": (_neutral(1), _equal_operands),
        "logical_or": (_neutral(0), _equal_operands),
        "logical_xor": (_neutral(0),),
        "bitwise_and": (_neutral(-1), _equal_operands),
        "bitwise_or": (_neutral(0), _equal_operands),
        "bitwise_xor": (_neutral(0),),
        "left_shift": (_neutral(0),),
        "right_shift": (_neutral(0),),
        "where": (_choice,),
        "negative": (_undone_by_itself,),
        "logical_not": (_undone_by_itself,),
        "bitwise_not": (_undone_by_itself,),
        "abs": (_idempotent, _abs_of_negative),
        **dict.fromkeys(("nn.relu", "floor", "ceil", "round", "sign"), (_idempotent,)),
        "clip": (_unbounded_clip,),
    }


def _inexact_rules(keep: Exactness) -> dict[str, list[Rule]]:
    rules: dict[str, list[Rule]] = {}

    def permit(name: str, *more: Rule) -> None:
        rules.setdefault(name, []).extend(more)

    if not keep.special_values:
        permit("subtract", _float_difference_of_equals)
        permit("divide", _quotient_of_equals)
        permit("isnan", _filled_with(number=False))
        permit("isinf", _filled_with(number=False))
        if not keep.signed_zeros:
            permit("multiply", _float_times_zero)
            permit("divide", _zero_over)
    if not keep.rounding:
        permit("add", _join_float_constants)
        permit("multiply", _join_float_constants)
        permit("subtract", _minus_constant)
        permit("divide", _over_constant)
    if not (keep.special_values or keep.rounding):
        permit("exp", _undone_by("log"))
        permit("log", _undone_by("exp"))
        permit("sqrt", _root_of_square)
        permit("multiply", _square_of_root)
        permit("power", _square_of_root)
    return rules


def _is_filled(graph: RewriteGraph, value: Value, number: float, *, any_zero: bool = False) -> bool:
    """Return whether every element of a constant is ``number``, with the same sign of zero unless ``any_zero``."""
    array = graph.array(value)
    if array is None or array.size == 0:
        return False
    for part in (array.reshape(-1)[:1], array):
        wide = part if part.dtype.kind in "biuf" else part.astype(np.float64)
        if not (wide == number).all():
            return False
        if wide.dtype.kind == "f" and not any_zero and (np.signbit(wide) != np.signbit(number)).any():
            return False
    return True


def _filled(graph: RewriteGraph, binding: Binding, number: float) -> Rewritten:
    """Build a value of the result's type filled with a single number."""
    type_ = binding.results[0].type
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    return (graph.emit("broadcast_to", (graph.const(_scalar(number, type_.dtype)),), {"shape": type_.shape}),)


def _scalar(number: float, dtype: str) -> npt.NDArray[Any]:
    return np.array(number).astype(to_numpy(dtype))


def _filled_with(number: float) -> Rule:
    return lambda binding, graph: _filled(graph, binding, number)


def swap_constant(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """Move a constant to the right of a commutative op."""
    left, right = binding.operands
    if not isinstance(left, Constant) or isinstance(right, Constant) or not may_swap(binding):
        return None
    return (graph.emit(binding.op.name, (right, left), binding.attrs),)


def _neutral(number: int, *, for_floats: float | None = None, any_zero: bool = False) -> Rule:
    """Build a rule to remove an op with a number as right operand; ``for_floats`` replaces the number for floats.

    A -1 means all bits set, also for unsigned integers.
    """

    def rule(binding: Binding, graph: RewriteGraph) -> Rewritten:
        left, right = binding.operands
        neutral: float = for_floats if for_floats is not None and is_float(dtype_of(left)) else number
        if neutral == -1 and dtype_info(dtype_of(left)).kind == "uint":
            neutral = _end_of_range(dtype_of(left), is_low=False)
        if has_type_of_result(left, binding) and _is_filled(graph, right, neutral, any_zero=any_zero):
            return (left,)
        return None

    return rule


def _extreme(*, is_low: bool) -> Rule:
    """Build a rule to remove a ``maximum`` (``is_low``) or ``minimum`` with the end of the dtype's range."""

    def rule(binding: Binding, graph: RewriteGraph) -> Rewritten:
        left, right = binding.operands
        if has_type_of_result(left, binding) and _is_filled(graph, right, _end_of_range(dtype_of(left), is_low=is_low)):
            return (left,)
        return None

    return rule


def _end_of_range(dtype: str, *, is_low: bool) -> float:
    """Return the lowest or highest value of a dtype; an infinity for floats."""
    info = dtype_info(dtype)
    if info.kind == "float":
        return -np.inf if is_low else np.inf
    if info.kind == "bool":
        return not is_low
    if info.kind == "uint":
        return 0 if is_low else (1 << info.bits) - 1
    return -(1 << info.bits - 1) if is_low else (1 << info.bits - 1) - 1


def _equal_operands(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left, right = binding.operands
    return (left,) if left is right or (isinstance(left, Constant) and left == right) else None


def _choice(binding: Binding, graph: RewriteGraph) -> Rewritten:
    condition, if_true, if_false = binding.operands
    if has_type_of_result(if_true, binding) and (
        if_true is if_false
        or (isinstance(if_true, Constant) and if_true == if_false)
        or _is_filled(graph, condition, number=True)
    ):
        return (if_true,)
    if has_type_of_result(if_false, binding) and _is_filled(graph, condition, number=False):
        return (if_false,)
    return None


def _undone_by(op: str) -> Rule:
    """Build a rule to remove an op together with the inverse op before it."""

    def rule(binding: Binding, graph: RewriteGraph) -> Rewritten:
        inner = graph.maker(binding.operands[0], op)
        return (inner.operands[0],) if inner is not None else None

    return rule


def _undone_by_itself(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return _undone_by(binding.op.name)(binding, graph)


def _idempotent(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return (binding.operands[0],) if graph.maker(binding.operands[0], binding.op.name) is not None else None


def _abs_of_negative(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "negative")
    return (graph.emit("abs", inner.operands),) if inner is not None else None


def _unbounded_clip(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return binding.operands if binding.attrs["min"] is None and binding.attrs["max"] is None else None


def _plus_negative(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left, right = binding.operands
    for minuend, other in ((left, right), (right, left)):
        inner = graph.maker(other, "negative")
        if inner is not None:
            return (graph.emit("subtract", (minuend, inner.operands[0])),)
    return None


def _minus_negative(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[1], "negative")
    return (graph.emit("add", (binding.operands[0], inner.operands[0])),) if inner is not None else None


def _difference_of_equals(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return None if is_float(dtype_of(binding.operands[0])) else _float_difference_of_equals(binding, graph)


def _float_difference_of_equals(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left, right = binding.operands
    return _filled(graph, binding, 0) if left is right else None


def _quotient_of_equals(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left, right = binding.operands
    return _filled(graph, binding, 1) if left is right and is_float(dtype_of(left)) else None


def _times_zero(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return None if is_float(dtype_of(binding.operands[0])) else _float_times_zero(binding, graph)


def _float_times_zero(binding: Binding, graph: RewriteGraph) -> Rewritten:
    return _filled(graph, binding, 0) if _is_filled(graph, binding.operands[1], 0, any_zero=True) else None


def _zero_over(binding: Binding, graph: RewriteGraph) -> Rewritten:
    left = binding.operands[0]
    is_zero = is_float(dtype_of(left)) and _is_filled(graph, left, 0, any_zero=True)
    return _filled(graph, binding, 0) if is_zero else None


def _over_power_of_two(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """Rewrite ``x / c`` as ``x * (1 / c)`` if ``1 / c`` is exact: both round the same number."""
    array = graph.array(binding.operands[1])
    if array is None or not is_float(dtype_of(binding.operands[0])):
        return None
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        inverse = (1 / wide).astype(array.dtype)
        is_exact = (np.abs(np.frexp(wide)[0]) == 0.5) & (inverse.astype(np.float64) * wide == 1)
        is_exact &= np.abs(inverse.astype(np.float64)) >= smallest_normal(dtype_of(binding.operands[0]))
    if not is_exact.all() or array.size == 0:
        return None
    return (graph.emit("multiply", (binding.operands[0], graph.const(inverse))),)


def _join_constants(binding: Binding, graph: RewriteGraph) -> Rewritten:
    """Rewrite ``(x + a) + b`` as ``x + (a + b)``, products likewise; exact for integers, because of wraparound."""
    return None if is_float(dtype_of(binding.operands[0])) else _join_float_constants(binding, graph)


def _join_float_constants(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], binding.op.name)
    outer = graph.array(binding.operands[1])
    own = None if inner is None else graph.array(inner.operands[1])
    if inner is None or outer is None or own is None:
        return None
    size = prod(np.broadcast_shapes(own.shape, outer.shape))
    if size > max(own.size, outer.size) or not graph.may_add(size * own.itemsize):
        return None
    (joined,) = evaluate_binding(binding, (own, outer), {})
    wide = joined.astype(np.float64)
    if not np.isfinite(wide).all():
        return None
    if binding.op.name == "multiply" and is_float(dtype_of(binding.operands[0])):
        is_lost = (np.abs(wide) < smallest_normal(dtype_of(binding.operands[0]))) & (own != 0) & (outer != 0)
        if is_lost.any():
            return None
    return (graph.emit(binding.op.name, (inner.operands[0], graph.const(joined))),)


def _minus_constant(binding: Binding, graph: RewriteGraph) -> Rewritten:
    array = graph.array(binding.operands[1])
    if array is None or not is_float(dtype_of(binding.operands[0])):
        return None
    return (graph.emit("add", (binding.operands[0], graph.const(np.negative(array)))),)


def _over_constant(binding: Binding, graph: RewriteGraph) -> Rewritten:
    array = graph.array(binding.operands[1])
    if array is None or not is_float(dtype_of(binding.operands[0])):
        return None
    with np.errstate(all="ignore"):
        inverse = (1 / array.astype(np.float64)).astype(array.dtype)
    wide = np.abs(inverse.astype(np.float64))
    if not ((wide >= smallest_normal(dtype_of(binding.operands[0]))) & np.isfinite(wide)).all():
        return None
    return (graph.emit("multiply", (binding.operands[0], graph.const(inverse))),)


def _root_of_square(binding: Binding, graph: RewriteGraph) -> Rewritten:
    inner = graph.maker(binding.operands[0], "multiply", "power")
    if inner is None or not _is_square(inner, graph):
        return None
    return (graph.emit("abs", inner.operands[:1]),)


def _square_of_root(binding: Binding, graph: RewriteGraph) -> Rewritten:
    root = graph.maker(binding.operands[0], "sqrt")
    if root is None or not _is_square(binding, graph):
        return None
    return (root.operands[0],)


def _is_square(binding: Binding, graph: RewriteGraph) -> bool:
    left, right = binding.operands
    if binding.op.name == "multiply":
        return left is right
    return has_type_of_result(left, binding) and _is_filled(graph, right, 2)
