"""The op that continues a tensor beyond its borders; padding with a constant is ``nn.pad``."""

from __future__ import annotations

from byoc_core.kernels import KERNELS
from byoc_core.opset.opdef import AttrKind, AttrSpec, OpDef, OperandSpec, TypeContext, no_flops
from byoc_core.opset.type_rules import padded_type
from byoc_core.opset.types import Type

__all__ = ["OPS"]


def _infer_border_pad(context: TypeContext) -> tuple[Type, ...]:
    result = padded_type(context)
    for axis, size in enumerate(context.shape(0)):
        if size == 0 and any(context.attrs["pad_width"][2 * axis : 2 * axis + 2]):
            raise context.error(f"axis {axis} is empty and cannot be continued", operand=0)
    return (result,)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.border_pad",
        (OperandSpec("x"),),
        _infer_border_pad,
        attrs=(
            AttrSpec(
                "pad_width", AttrKind.INTS, doc="Elements before and after each axis: before0, after0, before1, ..."
            ),
            AttrSpec(
                "mode",
                AttrKind.STR,
                choices=("edge", "reflect", "wrap"),
                doc="``edge``: the first and last element again; ``reflect``: mirrored at them, as often as needed; "
                "``wrap``: from the other end.",
            ),
        ),
        flops=no_flops,
        kernel=KERNELS["nn.border_pad"],
        doc="Gives ``x`` continued on all sides by its own elements.\n\nShapes: each size grows by its two widths.",
    ),
)
"""The family's ops."""
