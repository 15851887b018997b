"""Ops whose results are made of sizes: numbers in a row, and shapes as data."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dims import product

from byoc_ccompiler.attributes import dim_of, dims_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import MOVE_PS, loops_around
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]


def _write(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    out, k = kernel.target(step.result), c.Variable("k")
    type_ = c.CType(out.dtype)
    if step.op == "arange":
        first, apart = (dim_of(step.binding, name) for name in ("start", "step"))
        number = c.Cast(c.Binary("+", c.Size(first), k * apart), type_)
        loop = loops_around((c.Store(out, k, number),), [k], shape_of(step.result), part=0, round_ps=MOVE_PS)
        kernel.finish_block(loop)
        return
    sizes = dims_of(step.binding, "sizes") if step.op == "shape_to_tensor" else shape_of(step.operands[0])
    if step.op == "size":
        sizes = (product(sizes),)
    stores = (c.Store(out, c.Size(place), c.Cast(c.Size(size), type_)) for place, size in enumerate(sizes))
    kernel.finish_block(tuple(stores))


FAMILY = KernelFamily(frozenset({"arange", "shape_of", "size", "shape_to_tensor"}), reject_nothing, _write)
"""Ops whose results are made of sizes. Elements of operands are not looked at."""
