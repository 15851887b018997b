"""Kernels of reductions and of what is elementwise before, between and after them: every row once through the cache.

A row is what one result of a reduction is made of. Where its elements lie side by side, pieces of it are combined by
vector (:mod:`~byoc_ccompiler.kernels.row_lines`). Where they do not, rows that lie side by side are computed together
(:mod:`~byoc_ccompiler.kernels.row_columns`).
"""

from __future__ import annotations

from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.composites import COMPOSITES, reject_composite
from byoc_ccompiler.kernels.copies import StridedNest
from byoc_ccompiler.kernels.row_columns import ColumnWriter
from byoc_ccompiler.kernels.row_lines import LineWriter
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.kernels.row_writer import row_layouts
from byoc_ccompiler.rejections import operand_type
from byoc_ccompiler.steps import Step

__all__ = ["FAMILIES", "write_rows"]


def write_rows(kernel: Kernel) -> None:
    """Write the kernel of a group that has reductions."""
    space, reduced = kernel.group.space or (), kernel.group.reduced or frozenset()
    layouts = row_layouts(kernel)
    wide = [axis for axis, size in enumerate(space) if size != 1]
    if not wide or wide[-1] in reduced:
        LineWriter(kernel, layouts).write()
        return
    after = max((axis for axis in wide if axis in reduced), default=-1)
    loops = StridedNest(space, layouts, range(after + 1, len(space)))
    ColumnWriter(kernel, layouts, loops.groups[-1]).write()


def _reject_reduction(binding: Binding) -> Rejection | None:
    dtype, op = operand_type(binding, 0).dtype, binding.op.name
    if op == "mean" and dtype not in ("float32", "float64"):
        return Rejection("dtype", f"mean has no C form for {dtype}")
    return None


def _rows(step: Step, index: int) -> Access:
    return Access.ROWS


FAMILIES = (
    KernelFamily(REDUCTIONS, _reject_reduction, write_rows, reads=_rows, writes=_rows),
    KernelFamily(frozenset(COMPOSITES), reject_composite, write_rows, reads=_rows, writes=_rows),
)
"""Reductions, and the ops that are taken apart into them."""
