"""Einstein sums as one loop nest: over the letters of the result, and inside over those that are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.arithmetic import element_product, element_sum
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.rejections import operand_shape, reject_sizes
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]

_TERM_PS = 500
"""Estimated picoseconds of one product and its addition."""


class _Equation(NamedTuple):
    """What an equation says: a label for each axis, those under ``...`` being numbered from the last.

    Attributes:
        terms: the labels of each operand.
        result: those of the result.
        sizes: the size of each label.
    """

    terms: list[list[str]]
    result: list[str]
    sizes: Mapping[str, Dim]


def _parse(text: str, shapes: Sequence[Sequence[Dim]]) -> _Equation:
    """Gives what an equation says of operands of these shapes; the type rule has checked that it says something."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = [_labels(term, len(shape)) for term, shape in zip(left.split(","), shapes, strict=True)]
    if not arrow:
        once = sorted(letter for letter in set(left) if letter.isalpha() and left.count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    hidden = max(sum(label.isdigit() for label in labels) for labels in terms)
    names = len(right.replace("...", ""))
    result = _labels(right, names + (hidden if "..." in right else 0))
    sizes: dict[str, Dim] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = size
    return _Equation(terms, result, sizes)


def _labels(term: str, rank: int) -> list[str]:
    before, _, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    return [*before, *(str(place) for place in reversed(range(hidden))), *after]


def _strides(labels: Sequence[str], shape: Sequence[Dim], sizes: Mapping[str, Dim]) -> dict[str, Dim]:
    """Gives how far apart the places of each label lie in an operand: 0 where it has size 1 and is read again."""
    found: dict[str, Dim] = {}
    for label, size, stride in zip(labels, shape, compact_strides(shape), strict=True):
        if size == sizes[label]:
            found[label] = found.get(label, 0) + stride
    return found


def _write(kernel: Kernel) -> None:
    """Writes the kernel; where the result's last letter lies side by side in an operand, sums grow side by side too."""
    (step,) = kernel.group.steps
    shapes = [shape_of(operand) for operand in step.operands]
    equation = _parse(str(step.binding.attrs["equation"]), shapes)
    sources, out = [kernel.source(operand) for operand in step.operands], kernel.target(step.result)
    strides = [_strides(labels, shape, equation.sizes) for labels, shape in zip(equation.terms, shapes, strict=True)]
    result, indices = equation.result, {label: c.Variable(f"at_{label}") for label in equation.sizes}
    factors: list[c.Expression] = [source[_offset(indices, of)] for source, of in zip(sources, strides, strict=True)]
    nest = _Nest(equation.sizes, indices, [label for label in equation.sizes if label not in result])
    term = reduce(element_product, factors[1:], factors[0])
    apart = dict(zip(result, compact_strides([equation.sizes[label] for label in result]), strict=True))
    if not result or all(of.get(result[-1]) != 1 for of in strides):
        kernel.finish_block(nest.loops(result, nest.total(term, out, _offset(indices, apart)), is_shared=True))
        return
    *outer, last = result
    if equation.sizes[last] == 0:
        kernel.finish_block(())
        return
    to = c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    line = c.Alias(to, out, _offset(indices, {label: apart[label] for label in outer}))
    if outer:
        sums = nest.sums(term, to, last, c.Size(0), c.Size(equation.sizes[last]))
        kernel.finish_block(nest.loops(outer, (line, *sums), is_shared=True))
        return
    first, end, count = c.Variable(FIRST_ITEM), c.Variable(END_ITEM), equation.sizes[last]
    sums = nest.sums(term, to, last, first, end)
    kernel.finish_block((c.Dispatch(first, end, (line, *sums), count, 1, count * nest.round_ps(last)),))


class _Nest(NamedTuple):
    """The loops of an equation.

    Attributes:
        sizes: the size of each label.
        indices: the index of each label.
        summed: the labels that the result does not have.
    """

    sizes: Mapping[str, Dim]
    indices: Mapping[str, c.Variable]
    summed: Sequence[str]

    def loops(self, labels: Sequence[str], body: c.Block, *, is_shared: bool = False) -> c.Block:
        """Return loops over labels around a block; several threads may share the outermost one."""
        indices, sizes = [self.indices[label] for label in labels], [self.sizes[label] for label in labels]
        if not is_shared or not labels:
            return loops_around(body, indices, sizes)
        return loops_around(body, indices, sizes, part=0, round_ps=self.round_ps(labels[0]))

    def round_ps(self, part: str) -> Dim:
        """Return estimated picoseconds of a round of the loop over a label that is outside of all others."""
        return product(size for label, size in self.sizes.items() if label != part) * _TERM_PS

    def total(self, term: c.Expression, out: c.Buffer, place: c.Expression) -> c.Block:
        """Return the statements that store the sum of all terms at a place."""
        total = c.Variable("total", c.CType(out.dtype))
        add = c.Assign(total, element_sum(total, term))
        return (
            c.Declare(total, c.Literal(0, total.type)),
            *self.loops(self.summed, (add,)),
            c.Store(out, place, total),
        )

    def sums(self, term: c.Expression, to: c.Buffer, last: str, first: c.Expression, end: c.Expression) -> c.Block:
        """Return the statements that let sums side by side grow, those from one index of a label to another."""
        index = self.indices[last]
        clear = c.For(index, first, end, (c.Store(to, index, c.Literal(0, c.CType(to.dtype))),))
        add = c.For(index, first, end, (c.Store(to, index, element_sum(to[index], term)),))
        return (clear, *self.loops(self.summed, (add,)))


def _offset(indices: Mapping[str, c.Variable], strides: Mapping[str, Dim]) -> c.Expression:
    return offset_along([indices[label] for label in strides], list(strides.values()))


def _reject(binding: Binding) -> Rejection | None:
    """Refuses axes of one letter of which only running shows whether they have one size."""
    shapes = [operand_shape(binding, index) for index in range(len(binding.operands))]
    equation = _parse(str(binding.attrs["equation"]), shapes)
    for labels, shape in zip(equation.terms, shapes, strict=True):
        if any(size not in (1, equation.sizes[label]) for label, size in zip(labels, shape, strict=True)):
            return reject_sizes(binding)
    return None


FAMILY = KernelFamily(frozenset({"einsum"}), _reject, _write)
"""Einstein sums."""
