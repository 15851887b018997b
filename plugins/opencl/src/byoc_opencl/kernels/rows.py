"""Rows: the elements of a tensor along some of its axes. A thread works on a row, in the order of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, product

from byoc_opencl.kernels.step import Tensor, cast, literal, loops

__all__ = ["Row", "lowest", "parallel"]


def lowest(type_: c.CType) -> c.Literal:
    """Return the lowest value of a type: the maximum of no elements."""
    if type_.is_float:
        return literal(-np.inf, type_)
    return literal(0 if type_.dtype == "bool" else int(np.iinfo(type_.dtype).min), type_)


def highest(type_: c.CType) -> c.Literal:
    """Return the highest value of a type: the minimum of no elements."""
    if type_.is_float:
        return literal(np.inf, type_)
    return literal(1 if type_.dtype == "bool" else int(np.iinfo(type_.dtype).max), type_)


def parallel(item: c.Variable, sizes: Sequence[Dim], block: c.Block) -> c.Block:
    """Return a loop over all positions along axes, shared by threads."""
    return (c.For(item, c.Size(0), c.Size(product(sizes)), block, kind=c.LoopKind.PARALLEL),)


class Row:
    """The row of a thread.

    Args:
        x: the tensor.
        axes: the axes inside a row.

    Attributes:
        item: the number of the row, counted along the other axes.
        sizes: the sizes of the axes inside a row.
        outer: the axes outside of rows.
        outer_indices: the indices along the axes outside of rows.
    """

    def __init__(self, x: Tensor, axes: Sequence[int]) -> None:
        self.x = x
        self.axes = sorted(axes)
        self.item = c.Variable("row")
        self.sizes = [x.shape[axis] for axis in self.axes]
        self.outer = [axis for axis in range(len(x.shape)) if axis not in self.axes]
        outer_sizes = [x.shape[axis] for axis in self.outer]
        self.outer_indices = dict(zip(self.outer, c.unravelled(self.item, outer_sizes), strict=True))
        self._outer_sizes = outer_sizes

    def indices(self, inner: Sequence[c.Expression]) -> list[c.Expression]:
        """Return the indices of an element from the indices along the axes of the row."""
        outer_indices = {**self.outer_indices, **dict(zip(self.axes, inner, strict=True))}
        return [outer_indices[axis] for axis in range(len(self.x.shape))]

    def load(self, inner: Sequence[c.Expression]) -> c.Load:
        """Return an element of the row."""
        return self.x[self.indices(inner)]

    def collect(
        self, total: c.Variable, start: c.Expression, update: Callable[[c.Expression, c.Variable], c.Expression]
    ) -> c.Block:
        """Return the statements collecting the elements of the row in a variable.

        Args:
            total: the variable, declared here.
            start: the value before the first element.
            update: returns the value after an element, from the value so far and the element in the same type.
        """

        def block(inner: Sequence[c.Expression]) -> c.Block:
            value = c.Variable("value", total.type)
            return (c.Let(value, cast(self.load(inner), total.type)), c.Assign(total, update(total, value)))

        return (c.Declare(total, start), *self.each(block))

    def largest(self, best: c.Variable) -> c.Block:
        """Return the statements collecting the largest element; NaN is the largest."""
        return self.collect(
            best, lowest(best.type), lambda so_far, value: c.Element("maximum", (so_far, value), best.type)
        )

    def each(self, block: Callable[[Sequence[c.Expression]], c.Block]) -> c.Block:
        """Return loops over the elements of the row around a block."""
        return loops(self.sizes, "k", block)

    def in_parallel(self, block: c.Block) -> c.Block:
        """Return the loop over all rows around the statements of a row."""
        return parallel(self.item, self._outer_sizes, block)
