"""The op that puts axes in another order: permute_dims."""

from __future__ import annotations

from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM, ParallelLoop
from byoc_core.authoring.csource_types import c_dim
from byoc_core.dims import product

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_MOVE_PS = 500
"""Estimated picoseconds to move one element to another order."""


def _permute(kernel: Kernel) -> None:
    (step,) = kernel.group.steps
    shape = shape_of(step.operands[0])
    axes = step.binding.attrs["axes"]
    order = [int(str(axis)) % len(shape) for axis in axes] if isinstance(axes, tuple) else [*range(len(shape))][::-1]
    indices = [f"i{axis}" for axis in range(len(order))]
    kernel.names.reserve(indices)
    source, out = kernel.input(step.operands[0]), kernel.output(step.result)
    result = shape_of(step.result)
    lines = []
    part = next((axis for axis, size in enumerate(result) if size != 1), None)
    for axis, size in enumerate(result):
        first, end = (FIRST_ITEM, END_ITEM) if axis == part else ("0", c_dim(size))
        lines.append(f"{'  ' * (axis + 1)}for (int64_t i{axis} = {first}; i{axis} < {end}; ++i{axis}) {{")
    from_strides, to_strides = kernel.strides(step.operands[0]), kernel.strides(step.result)
    to = " + ".join(f"{i} * {c_dim(to_strides[axis])}" for axis, i in enumerate(indices)) or "0"
    come = " + ".join(f"i{axis} * {c_dim(from_strides[o])}" for axis, o in enumerate(order)) or "0"
    lines.append(f"{'  ' * (len(order) + 1)}{out}[{to}] = {source}[{come}];")
    lines += ["  " * depth + "}" for depth in range(len(order), 0, -1)]
    if part is None:
        kernel.finish(lines)
        return
    kernel.finish([ParallelLoop(tuple(lines), result[part], product(result[part + 1 :]) * _MOVE_PS)])


def _any(step: Step, index: int) -> Access:
    return Access.ANY


FAMILY = KernelFamily(frozenset({"permute_dims"}), reject_nothing, _permute, takes_halves=True, reads=_any, writes=_any)
"""Transposes."""
