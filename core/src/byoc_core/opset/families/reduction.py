"""Reductions: sum, product, mean, extremes and their indices, logarithm of a sum of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, highest, lowest, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OpCase, axis_cases, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.permutation import PermuteRule, permute_reduction
from byoc_core.opset.rounding import EXACT, NORM, SUM, Rounding
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, resolve_axes, resolve_axis
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import BoundRule, ValueFacts, bound_of_first, mean_bound, total_bound

__all__ = ["OPS"]


def _axes(axis: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if axis is None else tuple(axis)


def _reduce(ufunc: Any, x: NDArray, axis: Sequence[int] | None, *, keepdims: bool, **options: Any) -> NDArray:
    """Reduce along axes by a numpy ufunc; ``np.sum`` and the like do the same, with more overhead."""
    return np.asarray(ufunc.reduce(x, axis=_axes(axis), keepdims=keepdims, **options))


def _reduce_sum(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return the sum along axes (all if ``None``); integers wrap around; the sum of nothing is 0."""
    total = _reduce(np.add, x, axis, keepdims=keepdims, dtype=working_dtype(x.dtype))
    return total.astype(x.dtype, copy=False)


def _reduce_mean(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return the mean along axes (all if ``None``); the mean of nothing is NaN."""
    axes = tuple(range(x.ndim)) if axis is None else _axes(axis) or ()
    count = math.prod([x.shape[a] for a in axes])
    wide = working_dtype(x.dtype)
    total = _reduce(np.add, x, axes, keepdims=keepdims, dtype=wide)
    return np.asarray(total / np.asarray(count, wide)).astype(x.dtype, copy=False)


def _reduce_max(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return the largest element along axes (all if ``None``); of nothing, the type's lowest value."""
    largest = _reduce(np.maximum, x, axis, keepdims=keepdims, initial=lowest(x.dtype))
    return largest.astype(x.dtype, copy=False)


def _reduce_min(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return the smallest element along axes (all if ``None``); of nothing, the type's highest value."""
    smallest = _reduce(np.minimum, x, axis, keepdims=keepdims, initial=highest(x.dtype))
    return smallest.astype(x.dtype, copy=False)


def _reduce_prod(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return the product along axes (all if ``None``); integers wrap around; the product of nothing is 1."""
    total = _reduce(np.multiply, x, axis, keepdims=keepdims, dtype=working_dtype(x.dtype))
    return total.astype(x.dtype, copy=False)


def _logsumexp(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return the logarithm of the sum of exponentials along axes; no finite ``x`` overflows; of nothing, -inf."""
    axes = _axes(axis)
    wide = x.astype(working_dtype(x.dtype), copy=False)
    top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, np.zeros_like(top))
    total = np.log(np.sum(np.exp(wide - top), axis=axes, keepdims=True)) + top
    result = total if keepdims else np.squeeze(total, tuple(range(x.ndim)) if axes is None else axes)
    return np.asarray(result).astype(x.dtype, copy=False)


def _extreme_index(op: str, search: Callable[..., Any]) -> NumpyKernel:
    """Return the kernel of the index (int64) of the first, or last, extreme element along an axis."""

    def kernel(x: NDArray, *, axis: int, keepdims: bool, select_last_index: bool = False) -> NDArray:
        if not x.shape[axis]:
            raise ExecutionError(f"op `{op}`", f"axis {axis % x.ndim} is empty and has no element to find")
        walked = np.flip(x, axis) if select_last_index else x
        index = np.asarray(search(walked, axis=axis, keepdims=keepdims)).astype(np.int64, copy=False)
        return np.asarray(x.shape[axis] - 1 - index) if select_last_index else index

    return NumpyKernel(kernel, gives=fixed_dtype("int64"))


def _reduce_all(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return whether all elements are true along axes (all if ``None``); true without elements."""
    return _reduce(np.logical_and, x, axis, keepdims=keepdims)


def _reduce_any(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Return whether any element is true along axes (all if ``None``); false without elements."""
    return _reduce(np.logical_or, x, axis, keepdims=keepdims)


_TRAITS = frozenset({Trait.PURE, Trait.REDUCTION})
_AXES = AttrSpec("axis", AttrKind.INTS, None, doc="The axes to reduce; ``None``: all.")
_KEEPDIMS = AttrSpec("keepdims", AttrKind.BOOL, False, doc="Whether to keep reduced axes, with size 1.")
_SHAPES_DOC = "Shapes: the result lacks the reduced axes, or has size 1 there with ``keepdims``."


def _reduced(shape: tuple[Dim, ...], axes: tuple[int, ...], *, keepdims: bool) -> tuple[Dim, ...]:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _infer_reduction(context: TypeContext, kinds: tuple[str, ...]) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, kinds)
    shape = context.shape(0)
    axes = resolve_axes(context, context.attrs["axis"], len(shape))
    return (TensorType(_reduced(shape, axes, keepdims=context.attrs["keepdims"]), type_.dtype),)


def _infer_numbers(context: TypeContext) -> tuple[Type, ...]:
    return _infer_reduction(context, NUMBER_KINDS)


def _infer_floats(context: TypeContext) -> tuple[Type, ...]:
    return _infer_reduction(context, FLOAT_KINDS)


def _infer_test(context: TypeContext) -> tuple[Type, ...]:
    return _infer_reduction(context, ("bool",))


def _infer_extreme_index(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    if shape[axis] == 0:
        raise context.error(
            f"axis {axis} is empty and has no {'largest' if context.op == 'argmax' else 'smallest'} element", operand=0
        )
    return (TensorType(_reduced(shape, (axis,), keepdims=context.attrs["keepdims"]), "int64"),)


def _reduction_flops(context: OpContext) -> Dim:
    return context.operand_elements(0)


def _logsumexp_flops(context: OpContext) -> Dim:
    return context.operand_elements(0) * 4 + context.elements() * 2


def _num_terms(facts: ValueFacts) -> int:
    """Return the number of elements of the operand behind an element of the result."""
    sizes = facts.sizes(0)
    axes = range(len(sizes)) if facts.context.attrs["axis"] is None else facts.context.ints("axis")
    return math.prod(sizes[axis] for axis in axes)


def _sum_bound(facts: ValueFacts) -> float:
    return total_bound(facts, _num_terms(facts))


def _mean_bound(facts: ValueFacts) -> float:
    return mean_bound(facts, _num_terms(facts))


def _reduction_cases(dtype: str) -> Iterable[OpCase]:
    yield example((2, 3), axis=(1,), dtype=dtype)
    yield example((2, 3), dtype=dtype)
    yield example((2, 16, 9, 8), axis=(2, 3), dtype=dtype)
    yield example((2, 5, 3), axis=(-1,), keepdims=True, dtype=dtype)


_permute = permute_reduction(order_matters=True)


def _reduction_op(
    name: str,
    doc: str,
    kernel: Callable[..., NDArray],
    infer: Callable[[TypeContext], tuple[Type, ...]] = _infer_numbers,
    *,
    flops: Callable[[OpContext], Dim] = _reduction_flops,
    permute: PermuteRule | None = _permute,
    rounding: Rounding,
    bound: BoundRule | None = None,
    case_dtype: str = "float32",
) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        infer,
        attrs=(_AXES, _KEEPDIMS),
        traits=_TRAITS,
        flops=flops,
        kernel=NumpyKernel(kernel),
        permute=permute,
        rounding=rounding,
        bound=bound,
        cases=lambda: _reduction_cases(case_dtype),
        doc=f"{doc}\n\n{_SHAPES_DOC}",
    )


def _test_op(name: str, doc: str, kernel: Callable[..., NDArray]) -> OpDef:
    return _reduction_op(name, doc, kernel, _infer_test, permute=None, rounding=EXACT, case_dtype="bool")


def _extreme_index_op(name: str, extreme: str, search: Callable[..., Any]) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer_extreme_index,
        attrs=(
            AttrSpec("axis", AttrKind.INT, doc="The axis to search."),
            _KEEPDIMS,
            AttrSpec(
                "select_last_index",
                AttrKind.BOOL,
                False,
                doc="Whether to return the last of equal elements, instead of the first.",
            ),
        ),
        traits=_TRAITS,
        flops=_reduction_flops,
        kernel=_extreme_index(name, search),
        rounding=EXACT,
        permute=permute_reduction(order_matters=False),
        cases=axis_cases,
        doc=f"Return the index (int64) of the first {extreme} element along an axis; NaN is the {extreme}.\n\n"
        f"{_SHAPES_DOC}",
    )


OPS: tuple[OpDef, ...] = (
    _reduction_op(
        "sum",
        "Return the sum along axes; integers wrap around; the sum of no elements is 0.",
        _reduce_sum,
        rounding=SUM,
        bound=_sum_bound,
    ),
    _reduction_op(
        "mean",
        "Return the mean along axes; the mean of no elements is NaN.",
        _reduce_mean,
        _infer_floats,
        rounding=SUM,
        bound=_mean_bound,
    ),
    _reduction_op(
        "max",
        "Return the largest element along axes; without elements, the lowest value of the dtype.",
        _reduce_max,
        rounding=EXACT,
        bound=bound_of_first,
    ),
    _reduction_op(
        "min",
        "Return the smallest element along axes; without elements, the highest value of the dtype.",
        _reduce_min,
        rounding=EXACT,
        bound=bound_of_first,
    ),
    _reduction_op(
        "prod",
        "Return the product along axes; integers wrap around; the product of no elements is 1.",
        _reduce_prod,
        rounding=NORM,
    ),
    _test_op("all", "Return whether all elements are true along axes; true without elements.", _reduce_all),
    _test_op("any", "Return whether at least one element is true along axes; false without elements.", _reduce_any),
    _reduction_op(
        "logsumexp",
        "Return the logarithm of the sum of the exponentials along axes, without overflow for finite ``x``.",
        _logsumexp,
        _infer_floats,
        flops=_logsumexp_flops,
        rounding=NORM,
    ),
    _extreme_index_op("argmin", "smallest", np.argmin),
    _extreme_index_op("argmax", "largest", np.argmax),
)
"""The family's ops."""
