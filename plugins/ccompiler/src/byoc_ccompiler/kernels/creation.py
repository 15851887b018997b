"""Ops whose results are made of sizes: numbers in a row, and shapes as data."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring import c
from byoc_core.dims import Dim, product

from byoc_ccompiler.attributes import dim_of, dims_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import MOVE_PS
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op of :data:`FAMILY`."""
    (step,) = kernel.group.steps
    out = kernel.target(step.result)
    type_ = c.CType(out.dtype)
    if step.op == "arange":
        k = c.Variable("k")
        first, apart = (dim_of(step.binding, name) for name in ("start", "step"))
        number = c.Cast(c.Binary("+", c.Size(first), k * apart), type_)
        count = c.Size(shape_of(step.result)[0])
        loop = c.For(k, c.Size(0), count, (c.Store(out, k, number),), kind=c.LoopKind.PARALLEL, round_ps=MOVE_PS)
        kernel.finish_block((loop,))
        return
    sizes: Sequence[Dim] = ()
    if step.op == "shape_to_tensor":
        sizes = dims_of(step.binding, "sizes")
    elif step.op == "shape_of":
        sizes = shape_of(step.operands[0])
    else:
        sizes = (product(shape_of(step.operands[0])),)
    kernel.finish_block(
        tuple(c.Store(out, c.Size(place), c.Cast(c.Size(size), type_)) for place, size in enumerate(sizes))
    )


FAMILY = KernelFamily(frozenset({"arange", "shape_of", "size", "shape_to_tensor"}), reject_nothing, _write)
"""Ops whose results are made of sizes. Elements of operands are not looked at."""
