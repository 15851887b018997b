"""Equations of Einstein sums: labels of the axes of operands and results, and the size of each label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from byoc_core.dims import Dim, broadcast_dim
from byoc_core.errors import IRTypeError

__all__ = ["Equation", "parse_equation"]


@dataclass(frozen=True, slots=True)
class Equation:
    """The equation of an Einstein sum over operands of known ranks.

    The label of an axis is a letter. Axes covered by ``...`` are numbered from the last.

    Attributes:
        operands: the labels of the axes of each operand.
        result: the labels of the axes of the result.
        sizes: the size of each label, in order of first appearance.
    """

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    sizes: Mapping[str, Dim]

    @property
    def summed(self) -> tuple[str, ...]:
        """The labels missing from the result."""
        return tuple(label for label in self.sizes if label not in self.result)


class _ErrorFactory(Protocol):
    def __call__(
        self, problem: str, *, operand: int | None = None, got: object = None, expected: object = None
    ) -> IRTypeError: ...


def _error(problem: str, *, operand: int | None = None, got: object = None, expected: object = None) -> IRTypeError:
    where = "op `einsum`" if operand is None else f"op `einsum`, operand {operand}"
    return IRTypeError(where, problem, got=got, expected=expected)


def parse_equation(text: str, shapes: Sequence[Sequence[Dim]], *, error: _ErrorFactory = _error) -> Equation:
    """Parse the equation of an Einstein sum over operands of these shapes.

    Args:
        text: letters and ``...`` for each operand, separated by commas; then optionally ``->`` and the letters of the
            result.
        shapes: the shapes of the operands.
        error: builds the error to raise, like :meth:`byoc_core.ops.TypeContext.error`.

    Raises:
        IRTypeError: the equation is malformed, or does not fit the shapes.
    """
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not all(map(_is_term, (*terms, right))):
        problem, syntax = "is malformed", "letters and `...`, operands separated by commas, then `->` and the result"
        raise error(f"attribute `equation` {problem}", got=repr(text), expected=syntax)
    if len(terms) != len(shapes):
        raise error(f"attribute `equation` names {len(terms)} operands", got=repr(text), expected=len(shapes))
    sizes: dict[str, Dim] = {}
    operands, most_hidden = [], 0
    for index, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        named = len(term.replace("...", ""))
        labels = _labels(term, len(shape) - named)
        if len(labels) != len(shape):
            problem = f"has rank {len(shape)}, but attribute `equation` names {named} axes"
            raise error(problem, operand=index, got=repr(term))
        for axis, (label, size) in enumerate(zip(labels, shape, strict=True)):
            try:
                sizes[label] = broadcast_dim(sizes.get(label, 1), size)
            except IRTypeError as misfit:
                expected = f"{sizes[label]}, as the other axes of the label"
                raise error(f"axis {axis} has size {size}", operand=index, expected=expected) from misfit
        operands.append(labels)
        most_hidden = max(most_hidden, len(shape) - named)
    if not arrow:
        right = ("..." if "..." in left else "") + "".join(sorted(label for label in sizes if left.count(label) == 1))
    result = _labels(right, most_hidden)
    if not sizes.keys() >= set(result) or len(set(result)) != len(result):
        raise error("attribute `equation` has a result with an unknown or repeated axis", got=right)
    return Equation(tuple(operands), result, sizes)


def _is_term(term: str) -> bool:
    letters = term.replace("...", "", 1)
    return letters.isascii() and (letters.isalpha() or not letters)


def _labels(term: str, hidden: int) -> tuple[str, ...]:
    """Return the labels of a term; a ``...`` in the term stands for ``hidden`` axes."""
    before, ellipsis, after = term.partition("...")
    numbers = reversed(range(hidden)) if ellipsis else ()
    return (*before, *map(str, numbers), *after)
