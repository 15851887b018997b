"""The sizes and strides of matrix products, whichever op and ranks they come from."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from byoc_core.authoring import c
from byoc_core.authoring.csource import align
from byoc_core.dims import Dim, product
from byoc_core.ir import Constant, Value

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import collapsed_step, index_term, operand_strides
from byoc_ccompiler.kernels.epilogue_text import text_index_term, unravel
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["Matrix", "Product"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One operand: a matrix for each position along the axes of the batch.

    Attributes:
        value: the operand.
        batch_dims: its sizes along the axes of the batch (1 where it broadcasts).
        batch_strides: its strides along them.
        row_step: elements from row to row.
        column_step: elements from column to column.
    """

    value: Value
    batch_dims: tuple[Dim, ...]
    batch_strides: tuple[Dim, ...]
    row_step: Dim
    column_step: Dim

    def place(self, batch: Sequence[Dim], indices: Sequence[c.Expression]) -> c.Expression:
        """Return the offset of the matrix at a position of the batch."""
        axes = zip(indices, self.batch_dims, batch, self.batch_strides, strict=True)
        return reduce(operator.add, (index_term(*axis) for axis in axes), c.Size(0))

    def offset(self, batch: Sequence[Dim], indices: Sequence[str]) -> str:
        """Gives the C expression of the offset of the matrix at a position of the batch, empty for 0."""
        axes = zip(indices, self.batch_dims, batch, self.batch_strides, strict=True)
        terms = [text_index_term(index, dim, size, stride) for index, dim, size, stride in axes]
        return " + ".join(term for term in terms if term)


@dataclass(frozen=True, slots=True)
class Product:
    """``result[b, m, n] = sum over k of left[b, m, k] * right[b, k, n]``.

    Attributes:
        dtype: the dtype of all three.
        batch: the sizes of the axes of the result that come first.
        num_rows: the product of the sizes of those that ``m`` runs over.
        num_columns: the size of the last one; 1 where the result has none.
        depth: the length of the sums.
        left: ``num_rows x depth``.
        right: ``depth x num_columns``.
        is_transposed: whether the right operand's last axis is that of the sums, as in ``x @ w.T``.
        has_columns: whether the last axis of the result is that of the columns.
    """

    dtype: str
    batch: tuple[Dim, ...]
    num_rows: Dim
    num_columns: Dim
    depth: Dim
    left: Matrix
    right: Matrix
    is_transposed: bool
    has_columns: bool = True

    @classmethod
    def of_kernel(cls, kernel: Kernel) -> Product:
        """Gives the product that a kernel begins with."""
        step = kernel.group.steps[0]
        x, y = step.operands
        space, dtype = shape_of(step.result), dtype_of(step.result)
        depth = shape_of(x)[-1]
        if step.op == "nn.dense":
            down, across = kernel.strides(y)
            right = Matrix(y, (1,) * len(space[:-1]), (0,) * len(space[:-1]), across, down)
            return cls._of_rows(kernel, dtype, depth, x, right, space, is_transposed=True)
        if len(shape_of(y)) == 1:
            return cls._of_vector(kernel, dtype, depth, x, y)
        batch_rank = len(space) - (1 if len(shape_of(x)) == 1 else 2)
        right_dims = align(shape_of(y)[:-2], batch_rank)
        right_strides = _batch_strides(kernel, y, right_dims)
        down, across = kernel.strides(y)[-2:]
        if len(shape_of(x)) > 1 and all(dim == 1 for dim in right_dims):
            # One matrix on the right serves all: the batch is only more rows.
            right = Matrix(y, (1,) * (batch_rank + 1), (0,) * (batch_rank + 1), down, across)
            return cls._of_rows(kernel, dtype, depth, x, right, space, is_transposed=False)
        right = Matrix(y, right_dims, right_strides, down, across)
        batch, num_rows = space[:batch_rank], product(space[batch_rank:-1])
        return cls(dtype, batch, num_rows, space[-1], depth, _left(kernel, x, batch_rank), right, False)

    @classmethod
    def _of_rows(
        cls,
        kernel: Kernel,
        dtype: str,
        depth: Dim,
        x: Value,
        right: Matrix,
        space: tuple[Dim, ...],
        *,
        is_transposed: bool,
    ) -> Product:
        """Gives a product with one matrix on the right: as many axes as possible are those of the rows."""
        *own, along = kernel.strides(x)
        lead = space[:-1]
        strides: list[Dim] = [*(0,) * (len(lead) - len(own)), *own]  # axes that y alone has are of size 1
        first, step = next(
            (axis, step)
            for axis in range(len(lead) + 1)
            if (step := collapsed_step(lead[axis:], lead[axis:], strides[axis:])) is not None
        )
        left = Matrix(x, lead[:first], tuple(strides[:first]), step, along)
        right = Matrix(
            right.value, right.batch_dims[:first], right.batch_strides[:first], right.row_step, right.column_step
        )
        return cls(dtype, lead[:first], product(lead[first:]), space[-1], depth, left, right, is_transposed)

    @classmethod
    def _of_vector(cls, kernel: Kernel, dtype: str, depth: Dim, x: Value, vector: Value) -> Product:
        """Gives the product with a vector on the right: it is the row on the left of the transposed matrices."""
        (along,) = kernel.strides(vector)
        if len(shape_of(x)) == 1:
            left = Matrix(x, (), (), 0, kernel.strides(x)[0])
            return cls(dtype, (), 1, 1, depth, left, Matrix(vector, (), (), along, 0), True, has_columns=False)
        *batch, num_columns, _ = shape_of(x)
        *strides, down, across = kernel.strides(x)
        left = Matrix(vector, (1,) * len(batch), (0,) * len(batch), 0, along)
        right = Matrix(x, tuple(batch), tuple(strides), across, down)
        return cls(dtype, tuple(batch), 1, num_columns, depth, left, right, True)

    @property
    def indices(self) -> tuple[str, ...]:
        """The C names of the position along the axes of the batch."""
        return tuple(f"b{axis}" for axis in range(len(self.batch)))

    @property
    def positions(self) -> list[tuple[str, str]]:
        """Their declarations and values, which read the position ``b`` in row-major order."""
        return [(f"const int64_t {n}", v) for n, v in zip(self.indices, unravel("b", self.batch), strict=True)]

    def position(self, index: c.Expression) -> tuple[c.Block, tuple[c.Variable, ...]]:
        """Return the position along the axes of the batch from a row-major index: statements, and what they declare."""
        found = tuple(map(c.Variable, self.indices))
        places = c.unravelled(index, self.batch)
        return tuple(c.Let(*pair) for pair in zip(found, places, strict=True)), found

    @property
    def known_rows(self) -> int | None:
        """How many rows there are, where that is known."""
        return self.num_rows if isinstance(self.num_rows, int) else None

    @property
    def known_columns(self) -> int | None:
        """How many columns there are, where that is known."""
        return self.num_columns if isinstance(self.num_columns, int) else None

    @property
    def weights(self) -> Constant | None:
        """The right operand, where it is one constant matrix with elements."""
        right = self.right
        if not isinstance(right.value, Constant) or 0 in shape_of(right.value):
            return None
        return right.value if all(dim == 1 for dim in right.batch_dims) else None


def _batch_strides(kernel: Kernel, value: Value, dims: Sequence[Dim]) -> tuple[Dim, ...]:
    return operand_strides(shape_of(value)[:-2], kernel.strides(value)[:-2], dims)


def _left(kernel: Kernel, value: Value, batch_rank: int) -> Matrix:
    shape, strides = shape_of(value), kernel.strides(value)
    if len(shape) == 1:
        return Matrix(value, (1,) * batch_rank, (0,) * batch_rank, 0, strides[0])
    dims = align(shape[:-2], batch_rank)
    return Matrix(value, dims, _batch_strides(kernel, value, dims), strides[-2], strides[-1])
