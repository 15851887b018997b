"""Casts, if a reorder to another dtype gives the op's number for every element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["lower_cast"]

_TARGETS: Mapping[str, tuple[str, ...]] = {
    "float32": ("float16",),
    "float16": ("float32", "bfloat16"),
    "bfloat16": ("float32", "float16"),
    "int32": ("float32",),
    "int8": ("float32", "float16", "bfloat16", "int32"),
    "uint8": ("float32", "float16", "bfloat16", "int32"),
}
"""The dtypes to which oneDNN converts each dtype with the op's meaning."""


def lower_cast(call: Call, planner: Planner) -> str | None:
    """Add a reorder to another dtype; the result has the layout of the operand.

    Not taken: floats to integers, integers to bytes, float32 to bfloat16, int32 to other dtypes than float32.
    """
    (x,), source, target = call.inputs, call.operands[0].dtype, call.result.dtype
    if target not in _TARGETS[source]:
        if target == "bfloat16":
            return "oneDNN flushes subnormal bfloat16 numbers to 0"
        is_rounded = target in ("int8", "uint8", "int32")
        return "oneDNN rounds and saturates" if is_rounded else f"oneDNN does not convert {source} to {target}"
    location = planner.location(x)
    desc = location.desc.cast(planner.engine, target)
    if desc is None:
        location = planner.row_major_location(x)
        desc = planner.row_major(location.desc.sizes, target)
    reorder = planner.factory.reorder(location.desc, desc)
    planner.add_step(
        call.op, reorder, {Argument.SRC: location, Argument.DST: planner.allocate_result(call.output, desc)}
    )
    return None
