"""Einstein sums as one loop nest: over the letters of the result, and inside over the summed letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding
from byoc_core.ops import parse_equation

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.rejections import operand_shape, reject_sizes
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]


def _strides(labels: Sequence[str], shape: Sequence[Dim], sizes: Mapping[str, Dim]) -> dict[str, Dim]:
    """Return the stride of each label in an operand: none for an axis of size 1 broadcast along the label."""
    found: dict[str, Dim] = {}
    for label, size, stride in zip(labels, shape, compact_strides(shape), strict=True):
        if size == sizes[label]:
            found[label] = found.get(label, 0) + stride
    return found


def _write(kernel: Kernel) -> None:
    """Write the kernel; if the result's last letter is contiguous in an operand, neighbouring sums grow together."""
    (step,) = kernel.group.steps
    shapes = [shape_of(operand) for operand in step.operands]
    equation = parse_equation(str(step.binding.attrs["equation"]), shapes)
    result, sizes = equation.result, equation.sizes
    strides = [_strides(labels, shape, sizes) for labels, shape in zip(equation.operands, shapes, strict=True)]
    apart = dict(zip(result, compact_strides(shape_of(step.result)), strict=True))
    indices = {label: c.Variable(f"at_{label}") for label in sizes}

    def offset(of: Mapping[str, Dim]) -> c.Expression:
        return offset_along([indices[label] for label in of], [*of.values()])

    def loops(labels: Sequence[str], body: c.Block, part: int | None = None) -> c.Block:
        rounds = [sizes[label] for label in labels]
        return loops_around(body, [indices[label] for label in labels], rounds, part=part)

    sources, out = [kernel.source(operand) for operand in step.operands], kernel.target(step.result)
    factors: list[c.Expression] = [source[offset(of)] for source, of in zip(sources, strides, strict=True)]
    term, zero = reduce(element_product, factors[1:], factors[0]), c.Literal(0, c.CType(out.dtype))
    if not result or all(of.get(result[-1]) != 1 for of in strides):
        total = c.Variable("total", zero.type)
        add = loops(equation.summed, (c.Assign(total, element_sum(total, term)),))
        body = (c.Declare(total, zero), *add, c.Store(out, offset(apart), total))
        kernel.finish_block(loops(result, body, 0 if result else None))
        return
    *outer, last = result
    to, index = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE), indices[last]
    first, end = map(c.Variable, (FIRST_ITEM, END_ITEM))
    bounds: tuple[c.Expression, c.Expression] = (c.Size(0), c.Size(sizes[last])) if outer else (first, end)
    body = (
        c.Alias(to, out, offset({label: apart[label] for label in outer})),
        c.For(index, *bounds, (c.Store(to, index, zero),)),
        *loops(equation.summed, (c.For(index, *bounds, (c.Store(to, index, element_sum(to[index], term)),)),)),
    )
    if outer:
        kernel.finish_block(loops(outer, body, 0))
    else:
        kernel.finish_block((c.Dispatch(first, end, body, sizes[last]),))


def _reject(binding: Binding) -> Rejection | None:
    """Reject axes of the same letter with sizes not known to be equal."""
    shapes = [operand_shape(binding, index) for index in range(len(binding.operands))]
    equation = parse_equation(str(binding.attrs["equation"]), shapes)
    for labels, shape in zip(equation.operands, shapes, strict=True):
        if any(size not in (1, equation.sizes[label]) for label, size in zip(labels, shape, strict=True)):
            return reject_sizes(binding)
    return None


FAMILY = KernelFamily(frozenset({"einsum"}), _reject, _write)
"""Einstein sums."""
