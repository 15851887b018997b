"""Ops whose operands' elements decide the sizes of their results.

Their result types stand in the binding, with a fresh symbol for the size that only running tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.dims import Dim, is_name, product, symbol
from byoc_core.kernels import KERNELS
from byoc_core.kernels.data_dependent import range_length
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef, OperandSpec, Trait, TypeContext, no_flops
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, require_rank, require_same_dtype, resolve_axis
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS", "range_length", "result_types"]

ResultTypes = Callable[[TypeContext, Dim], tuple[TensorType, ...]]
"""The types of an op's results for a given size."""


def _data_dependent(
    name: str, operands: Sequence[str], types: ResultTypes, doc: str, attrs: tuple[AttrSpec, ...] = ()
) -> OpDef:
    def infer(context: TypeContext) -> tuple[Type, ...]:
        expected = types(context, _declared_size(context, types))
        if context.declared != expected:
            raise context.error(
                "declares results of other types",
                got=", ".join(map(str, context.declared or ())),
                expected=", ".join(map(str, expected)),
            )
        return expected

    return OpDef(
        name,
        tuple(map(OperandSpec, operands)),
        infer,
        attrs=attrs,
        traits=frozenset({Trait.PURE, Trait.DATA_DEPENDENT}),
        flops=no_flops,
        kernel=KERNELS[name],
        declares_results=True,
        doc=doc,
    )


def _declared_size(context: TypeContext, types: ResultTypes) -> Dim:
    """Gives the symbol that the declared types have for the size that the data decides."""
    taken = frozenset[str]().union(*(type_.symbols for type_ in context.operands if isinstance(type_, TensorType)))
    probe = symbol(_unused(taken))
    shape = types(context, probe)[0].shape or ()
    axis = shape.index(probe)
    first = (context.declared or (None,))[0]
    if not isinstance(first, TensorType) or first.shape is None or len(first.shape) != len(shape):
        raise context.error("declares no result of its rank", got=first, expected=f"a tensor of rank {len(shape)}")
    size = first.shape[axis]
    if not is_name(str(size)) or str(size) in taken:
        raise context.error(
            f"needs a fresh symbol for axis {axis} of its first result", got=first, expected=types(context, probe)[0]
        )
    return size


def _unused(taken: frozenset[str]) -> str:
    return next(name for name in (f"k{number or ''}" for number in range(len(taken) + 1)) if name not in taken)


def result_types(op: OpDef, context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    """Gives the types to declare for a data-dependent op of this family whose results have a fresh ``size``.

    Raises:
        IRTypeError: the operands do not fit the op.
    """
    return _TYPES[op.name](context, size)


def _nonzero_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    return (TensorType((len(context.shape(0)), size), "int64"),)


def _axis_of(context: TypeContext) -> int | None:
    axis = context.attrs["axis"]
    return None if axis is None else resolve_axis(context, axis, len(context.shape(0)))


def _with_size(context: TypeContext, axis: int | None, size: Dim) -> TensorType:
    """Gives the type of operand 0 with another size along an axis; of rank 1 where ``None``."""
    shape = context.shape(0)
    chosen = (size,) if axis is None else (*shape[:axis], size, *shape[axis + 1 :])
    return TensorType(chosen, context.tensor(0).dtype)


def _compress_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_kind(context, 1, ("bool",))
    axis = _axis_of(context)
    (length,) = require_rank(context, 1, 1, "(length,)")
    available = product(context.shape(0)) if axis is None else context.shape(0)[axis]
    if isinstance(length, int) and isinstance(available, int) and length > available:
        raise context.error("is longer than the axis", operand=1, got=length, expected=f"{available} or fewer")
    return (_with_size(context, axis, size),)


def _unique_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    axis = _axis_of(context)
    length = product(context.shape(0)) if axis is None else context.shape(0)[axis]
    counts = TensorType((size,), "int64")
    return (_with_size(context, axis, size), counts, TensorType((length,), "int64"), counts)


def _range_types(context: TypeContext, size: Dim) -> tuple[TensorType, ...]:
    require_kind(context, 0, NUMBER_KINDS)
    dtype = require_same_dtype(context, 0, 1, 2)
    for index in range(3):
        require_rank(context, index, 0, "a scalar")
    return (TensorType((size,), dtype),)


_TYPES: dict[str, ResultTypes] = {
    "nonzero": _nonzero_types,
    "compress": _compress_types,
    "unique": _unique_types,
    "range": _range_types,
}

OPS: tuple[OpDef, ...] = (
    _data_dependent(
        "nonzero",
        ("x",),
        _nonzero_types,
        "Gives the positions of the elements that are not zero, in row-major order.\n\n"
        "Shapes: ``x`` of rank ``r``; the result is int64 ``(r, k)``, one column per element.",
    ),
    _data_dependent(
        "compress",
        ("x", "condition"),
        _compress_types,
        "Gives the slices along an axis for which ``condition`` holds; those beyond its end are left out.\n\n"
        "Shapes: ``condition`` bool ``(length,)``, not longer than the axis; the result has size ``k`` along the axis.",
        (AttrSpec("axis", AttrKind.INT, None, doc="The axis; ``None``: of the flat tensor."),),
    ),
    _data_dependent(
        "unique",
        ("x",),
        _unique_types,
        "Gives the different slices along an axis, the first position of each, for each slice of ``x`` which one it "
        "is, and how often each stands there. NaNs are equal.\n\n"
        "Shapes: the first result has size ``k`` along the axis; the others are int64 ``(k,)``, ``(n,)`` and ``(k,)`` "
        "for an axis of size ``n``.",
        (
            AttrSpec("axis", AttrKind.INT, None, doc="The axis; ``None``: of the flat tensor."),
            AttrSpec("sorted", AttrKind.BOOL, True, doc="In ascending order, NaN last; else in order of appearance."),
        ),
    ),
    _data_dependent(
        "range",
        ("start", "limit", "delta"),
        _range_types,
        "Gives ``start``, ``start + delta`` and so on, up to ``limit``, which is left out.\n\n"
        "Shapes: three scalars; the result is ``(k,)``.",
    ),
)
"""The family's ops."""
