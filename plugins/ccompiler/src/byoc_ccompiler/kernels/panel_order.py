"""The order of a matrix in panels, as ops on a swappable weight: run once for each value of the weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from byoc_core.ir import Function, FunctionBuilder, Type, Var

__all__ = ["PanelOrder"]


@dataclass(frozen=True, slots=True)
class PanelOrder:
    """The elements of a matrix panel by panel, in the order of :func:`byoc_ccompiler.kernels.blocks.packed_panels`.

    The columns fill vectors, so no panel is padded, and the result has as many elements as the matrix.

    Attributes:
        depth: the rows of the matrix on the right of a product.
        columns: the columns.
        width: the columns of a panel; the last panel has the rest.
        is_transposed: whether the matrix is stored as ``(columns, depth)``.
    """

    depth: int
    columns: int
    width: int
    is_transposed: bool

    def to_function(self, type_: Type) -> Function:
        """Return the function from a stored matrix to the panels, in an array of the matrix's type."""
        builder = FunctionBuilder("panels")
        matrix = builder.param("matrix", type_)
        last = self.columns // self.width * self.width  # the first column of the narrower panel
        parts = [self._panels(builder, matrix, first, end) for first, end in ((0, last), (last, self.columns))]
        found = [part for part in parts if part is not None]
        joined = found[0] if len(found) == 1 else _emit(builder, "concat", *found, axis=0)
        shape = (self.columns, self.depth) if self.is_transposed else (self.depth, self.columns)
        return builder.finish(_emit(builder, "reshape", joined, shape=shape))

    def _panels(self, builder: FunctionBuilder, matrix: Var, first: int, end: int) -> Var | None:
        """Return the elements of panels of equal width, on one axis; ``None`` without columns."""
        count = end - first
        if count == 0:
            return None
        part = matrix
        axis = 0 if self.is_transposed else 1
        if count < self.columns:
            part = _emit(builder, "strided_slice", part, axes=(axis,), begin=(first,), end=(end,), strides=(1,))
        width = min(self.width, count)
        if self.is_transposed:
            shape, order = (count // width, width, self.depth), (0, 2, 1)
        else:
            shape, order = (self.depth, count // width, width), (1, 0, 2)
        panels = _emit(builder, "permute_dims", _emit(builder, "reshape", part, shape=shape), axes=order)
        return _emit(builder, "reshape", panels, shape=(count * self.depth,))


def _emit(builder: FunctionBuilder, op: str, *operands: Var, **attrs: Any) -> Var:
    result = builder.emit(op, *operands, **attrs)
    assert isinstance(result, Var)
    return result
