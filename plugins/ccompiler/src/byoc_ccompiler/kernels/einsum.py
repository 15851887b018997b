"""Einstein sums as one loop nest: over the letters of the result, and inside over those that are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_suffix
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.ir import Binding

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.rejections import operand_shape, reject_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

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
    sizes, result = equation.sizes, equation.result
    kernel.names.reserve(["to", "total", *(f"at_{label}" for label in sizes)])
    pointers = [kernel.input(operand) for operand in step.operands]
    strides = [_strides(labels, shape, sizes) for labels, shape in zip(equation.terms, shapes, strict=True)]
    out, ctype = kernel.output(step.result), kernel.ctype(step.result)
    summed = [label for label in sizes if label not in result]
    apart = dict(zip(result, compact_strides([sizes[label] for label in result]), strict=True))
    side_by_side = bool(result) and any(of.get(result[-1]) == 1 for of in strides)
    outer, last = (result[:-1], result[-1]) if side_by_side else (result, "")
    term = _product(step, [f"{p}[{_offset(of)}]" for p, of in zip(pointers, strides, strict=True)])
    lines, depth = _open(outer, sizes, 1, shared=True)
    indent = "  " * depth
    if side_by_side:
        here = f"for (int64_t at_{last} = 0; at_{last} < {c_dim(sizes[last])}; ++at_{last})"
        if not outer:
            here = here.replace("= 0", f"= {FIRST_ITEM}").replace(f"< {c_dim(sizes[last])}", f"< {END_ITEM}")
        lines += [
            f"{indent}{ctype} *const to = {out} + {_offset({label: apart[label] for label in outer})};",
            f"{indent}{here} to[at_{last}] = 0;",
        ]
        inner, deepest = _open(summed, sizes, depth)
        lines += [*inner, f"{'  ' * deepest}{here} to[at_{last}] = {_sum(step, f'to[at_{last}]', term)};"]
        lines += ["  " * level + "}" for level in range(deepest - 1, 0, -1)]
    else:
        inner, deepest = _open(summed, sizes, depth)
        lines += [f"{indent}{ctype} total = 0;", *inner, f"{'  ' * deepest}total = {_sum(step, 'total', term)};"]
        lines += ["  " * level + "}" for level in range(deepest - 1, depth - 1, -1)]
        lines.append(f"{indent}{out}[{_offset(apart)}] = total;")
        lines += ["  " * level + "}" for level in range(depth - 1, 0, -1)]
    if not result:
        kernel.finish(lines)
        return
    part = outer[0] if outer else last
    others = product(size for label, size in sizes.items() if label != part)
    kernel.finish([ParallelLoop(tuple(lines), sizes[part], others * _TERM_PS)])


def _open(
    labels: Sequence[str], sizes: Mapping[str, Dim], depth: int, *, shared: bool = False
) -> tuple[list[str], int]:
    """Gives the lines that open loops over labels, and the depth inside; the first is shared among threads or not."""
    lines = []
    for number, label in enumerate(labels):
        first, end = (FIRST_ITEM, END_ITEM) if shared and number == 0 else ("0", c_dim(sizes[label]))
        lines.append(f"{'  ' * depth}for (int64_t at_{label} = {first}; at_{label} < {end}; ++at_{label}) {{")
        depth += 1
    return lines, depth


def _offset(strides: Mapping[str, Dim]) -> str:
    return " + ".join(f"at_{label} * {c_dim(stride)}" for label, stride in strides.items()) or "0"


def _product(step: Step, factors: Sequence[str]) -> str:
    dtype = dtype_of(step.result)
    text = factors[0]
    for factor in factors[1:]:
        is_float = dtype.startswith("float")
        text = f"{text} * {factor}" if is_float else f"byoc_multiply_{c_suffix(dtype)}({text}, {factor})"
    return text


def _sum(step: Step, total: str, term: str) -> str:
    dtype = dtype_of(step.result)
    return f"{total} + {term}" if dtype.startswith("float") else f"byoc_add_{c_suffix(dtype)}({total}, {term})"


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
