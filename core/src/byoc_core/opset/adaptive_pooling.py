"""Adaptive pooling: a given number of windows along each spatial axis; with one window it is global pooling."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dims import Dim
from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, CostContext, OpDef, OperandSpec, TypeContext
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, require_rank
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.windows import DATA_LAYOUTS, RANKS, axes_of, axis_letters, axis_names, layout_text

__all__ = ["OPS"]


def _infer(kinds: tuple[str, ...]) -> Callable[[TypeContext], tuple[Type, ...]]:
    def infer(context: TypeContext) -> tuple[Type, ...]:
        type_ = require_kind(context, 0, kinds)
        layout, wanted = context.attrs["layout"], context.attrs["output_size"]
        shape = list(require_rank(context, 0, len(layout), layout_text(layout)))
        axes = axes_of(layout, "NC")[2:]
        if len(wanted) != len(axes) or min(wanted) < 1:
            raise context.error(
                "attribute `output_size` does not fit",
                got=wanted,
                expected=f"{len(axes)} sizes of 1 or more: {', '.join(axis_names(len(axes)))}",
            )
        for axis, count in zip(axes, wanted, strict=True):
            if shape[axis] == 0:
                raise context.error(f"axis {axis} is empty", operand=0, got=type_, expected="a size of 1 or more")
            shape[axis] = count
        return (TensorType(tuple(shape), type_.dtype),)

    return infer


def _flops(context: CostContext) -> Dim:
    """Counts one operation for each element of the image; where windows overlap it is a little more."""
    return context.operand_elements(0)


def _op(kind: str, rank: int, doc: str, kinds: tuple[str, ...]) -> OpDef:
    name, letters, layouts = f"nn.adaptive_{kind}_pool{rank}d", axis_letters(rank), DATA_LAYOUTS[rank]
    sizes, out_sizes = ", ".join(letters), ", ".join(f"O{letter}" for letter in letters)
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer(kinds),
        attrs=(
            AttrSpec("output_size", AttrKind.INTS, doc=f"Number of windows: {', '.join(axis_names(rank))}."),
            AttrSpec("layout", AttrKind.STR, layouts[0], layouts, doc="Axes of ``x`` and of the result."),
        ),
        flops=_flops,
        kernel=KERNELS[name],
        doc=f"{doc} Window ``i`` of ``OW`` begins at ``i * W // OW`` and ends before ``ceil((i + 1) * W / OW)``.\n\n"
        f"Shapes (``NC{letters}``): ``(N, C, {sizes}) -> (N, C, {out_sizes})``.",
    )


OPS: tuple[OpDef, ...] = tuple(
    op
    for rank in RANKS
    for op in (
        _op("max", rank, "Gives the largest element of every window; NaN wins.", NUMBER_KINDS),
        _op("avg", rank, "Gives the mean of every window.", FLOAT_KINDS),
    )
)
"""The family's ops."""
