"""Ops whose results are made of sizes: numbers in a row, and shapes as data."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim
from byoc_core.dims import Dim, product

from byoc_ccompiler.attributes import dim_of, dims_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import MOVE_PS, reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op of :data:`FAMILY`."""
    (step,) = kernel.group.steps
    reserve_locals(kernel)
    out = kernel.output(step.result)
    if step.op == "arange":
        first, apart = (c_dim(dim_of(step.binding, name)) for name in ("start", "step"))
        number = f"({kernel.ctype(step.result)})({first} + k * {apart})"
        line = f"  for (int64_t k = {FIRST_ITEM}; k < {END_ITEM}; ++k) {out}[k] = {number};"
        kernel.finish([ParallelLoop((line,), shape_of(step.result)[0], MOVE_PS)])
        return
    sizes: Sequence[Dim] = ()
    if step.op == "shape_to_tensor":
        sizes = dims_of(step.binding, "sizes")
    elif step.op == "shape_of":
        sizes = shape_of(step.operands[0])
    else:
        sizes = (product(shape_of(step.operands[0])),)
    kernel.finish([f"  {out}[{place}] = {c_dim(size)};" for place, size in enumerate(sizes)])


FAMILY = KernelFamily(frozenset({"arange", "shape_of", "size", "shape_to_tensor"}), reject_nothing, _write)
"""Ops whose results are made of sizes. Elements of operands are not looked at."""
