"""Reductions: sum, product, mean, extremes and their places, logarithm of a sum of exponentials."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, Trait, TypeContext
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, resolve_axes, resolve_axis
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]

_TRAITS = frozenset({Trait.PURE, Trait.REDUCTION})
_AXES = AttrSpec("axis", AttrKind.INTS, None, doc="The axes to reduce; ``None``: all.")
_KEEPDIMS = AttrSpec("keepdims", AttrKind.BOOL, False, doc="Whether reduced axes stay, with size 1.")
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


def _infer_place(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    if shape[axis] == 0:
        raise context.error(
            f"axis {axis} is empty and has no {'largest' if context.op == 'argmax' else 'smallest'} element", operand=0
        )
    return (TensorType(_reduced(shape, (axis,), keepdims=context.attrs["keepdims"]), "int64"),)


def _reduction_flops(context: CostContext) -> Dim:
    return context.operand_elements(0)


def _logsumexp_flops(context: CostContext) -> Dim:
    return context.operand_elements(0) * 4 + context.elements() * 2


def _reduction_op(name: str, doc: str, infer: Callable[[TypeContext], tuple[Type, ...]]) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        infer,
        attrs=(_AXES, _KEEPDIMS),
        traits=_TRAITS,
        flops=_reduction_flops,
        kernel=KERNELS[name],
        doc=f"{doc}\n\n{_SHAPES_DOC}",
    )


def _place_op(name: str, extreme: str) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer_place,
        attrs=(
            AttrSpec("axis", AttrKind.INT, doc="The axis to search."),
            _KEEPDIMS,
            AttrSpec(
                "select_last_index",
                AttrKind.BOOL,
                False,
                doc="Whether the last of equal ones is taken, not the first.",
            ),
        ),
        traits=_TRAITS,
        flops=_reduction_flops,
        kernel=KERNELS[name],
        doc=f"Gives the index (int64) of the first {extreme} element along one axis; a NaN is {extreme}."
        f"\n\n{_SHAPES_DOC}",
    )


OPS: tuple[OpDef, ...] = (
    _reduction_op("sum", "Gives the sum along axes; integers wrap around; the sum of nothing is 0.", _infer_numbers),
    _reduction_op("mean", "Gives the mean along axes; the mean of nothing is NaN.", _infer_floats),
    _reduction_op(
        "max", "Gives the largest element along axes; of nothing, the lowest value of the dtype.", _infer_numbers
    ),
    _reduction_op(
        "min", "Gives the smallest element along axes; of nothing, the highest value of the dtype.", _infer_numbers
    ),
    _reduction_op(
        "prod", "Gives the product along axes; integers wrap around; the product of nothing is 1.", _infer_numbers
    ),
    _reduction_op("all", "Tells whether all elements hold along axes; of nothing, they do.", _infer_test),
    _reduction_op("any", "Tells whether at least one element holds along axes; of nothing, none does.", _infer_test),
    OpDef(
        "logsumexp",
        (OperandSpec("x"),),
        _infer_floats,
        attrs=(_AXES, _KEEPDIMS),
        traits=_TRAITS,
        flops=_logsumexp_flops,
        kernel=KERNELS["logsumexp"],
        doc="Gives the logarithm of the sum of the exponentials along axes; no finite ``x`` overflows."
        f"\n\n{_SHAPES_DOC}",
    ),
    _place_op("argmin", "smallest"),
    _place_op("argmax", "largest"),
)
"""The family's ops."""
