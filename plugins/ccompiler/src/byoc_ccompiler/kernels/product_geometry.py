"""The sizes and strides of matrix products, from any op and any ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.ir import Constant, Value
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import index_term, offset_along
from byoc_ccompiler.kernels.epilogue import collapsed_step
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["Matrix", "Product"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand: a matrix for each position along the operand's own batch axes, the last axes of the batch."""

    value: Value
    batch_dims: tuple[Dim, ...]
    batch_strides: tuple[Dim, ...]
    row_step: Dim
    column_step: Dim

    @classmethod
    def of(cls, kernel: Kernel, value: Value) -> Matrix:
        """Return the matrices of a value; a vector is a single row."""
        dims, strides = (1, *shape_of(value)), (0, *kernel.strides(value))
        return cls(value, dims[1:-2], strides[1:-2], *strides[-2:])

    def transposed(self) -> Matrix:
        """Return the transposed matrices."""
        return replace(self, row_step=self.column_step, column_step=self.row_step)

    def offset(self, batch: Sequence[Dim], indices: Sequence[c.Expression]) -> c.Expression:
        """Return the offset of the matrix at a position of the batch."""
        first = len(batch) - len(self.batch_dims)
        return sum(map(index_term, indices[first:], self.batch_dims, batch[first:], self.batch_strides), c.Size(0))


def _may_prepack(value: Value, kernel: Kernel) -> bool:
    """Return whether a swappable weight of this kernel may arrive in panels: the columns fill vectors."""
    if value not in kernel.context.prepackable:
        return False
    step, shape = kernel.group.steps[0], shape_of(value)
    depth, columns = shape[::-1] if step.op == "nn.dense" else shape
    is_known = isinstance(depth, int) and isinstance(columns, int) and depth * columns > 0
    return is_known and columns % kernel.unit.lanes(dtype_of(value)) == 0


@dataclass(frozen=True, slots=True)
class Product:
    """``result[b, m, n] = sum over k of left[b, m, k] * right[b, k, n]``, all of equal dtype.

    The first axes of the result are the batch axes. Rows run over the following axes except the last; the last axis is
    the column axis. A result without a column axis has a single column.

    Attributes:
        dtype: of the operands and the result.
        batch: the batch axes.
        num_rows: the rows of all axes between the batch axes and the column axis.
        num_columns: the columns.
        depth: the steps of a sum.
        left: the left operand.
        right: the right operand.
        has_columns: whether the result has a column axis.
        may_prepack: whether the right operand is a swappable weight that may arrive in panels.
    """

    dtype: str
    batch: tuple[Dim, ...]
    num_rows: Dim
    num_columns: Dim
    depth: Dim
    left: Matrix
    right: Matrix
    has_columns: bool = True
    may_prepack: bool = False

    @classmethod
    def of_kernel(cls, kernel: Kernel) -> Product:
        """Return the product at the start of a kernel."""
        step = kernel.group.steps[0]
        x, y = step.operands
        space, dtype, depth = shape_of(step.result), dtype_of(step.result), shape_of(x)[-1]
        is_prepackable = _may_prepack(y, kernel)
        left, right = Matrix.of(kernel, x), Matrix.of(kernel, y)
        if step.op == "nn.dense":
            right = right.transposed()
        elif len(shape_of(y)) == 1:
            # A vector on the right is the row on the left of the transposed matrices.
            left, right = (right, left) if space else (left, right)
            return cls(dtype, space[:-1], 1, product(space[-1:]), depth, left, right.transposed(), bool(space))
        if any(dim != 1 for dim in right.batch_dims):
            rank = len(space) - min(2, len(shape_of(x)))
            return cls(dtype, space[:rank], product(space[rank:-1]), space[-1], depth, left, right)
        # A single matrix on the right serves all: the batch is only more rows, as far as strides permit.
        lead, own = space[:-1], kernel.strides(x)[:-1]
        strides: tuple[Dim, ...] = (*(0,) * (len(lead) - len(own)), *own)  # Axes of y alone have size 1.
        steps = [collapsed_step(lead[axis:], lead[axis:], strides[axis:]) for axis in range(len(lead) + 1)]
        first, row_step = next((axis, apart) for axis, apart in enumerate(steps) if apart is not None)
        left = replace(left, batch_dims=lead[:first], batch_strides=strides[:first], row_step=row_step)
        right = replace(right, batch_dims=(), batch_strides=())
        rows = product(lead[first:])
        return cls(dtype, lead[:first], rows, space[-1], depth, left, right, may_prepack=is_prepackable)

    def position(self, index: c.Expression) -> tuple[c.Block, tuple[c.Variable, ...]]:
        """Return the statements declaring the batch position of a row-major index, and the declared variables."""
        found = tuple(c.Variable(f"b{axis}") for axis in range(len(self.batch)))
        return tuple(map(c.Let, found, c.unravelled(index, self.batch))), found

    def nest(self, left: c.Buffer, right: c.Buffer, result: c.Buffer) -> c.Nest:
        """Return the nest of the product, from buffers of the operands to a buffer of the row-major result."""
        *along, m, n = indices = [*map(c.Variable, map("b{}".format, range(len(self.batch)))), *c.variables("m n")]
        sizes, k = (*self.batch, self.num_rows, self.num_columns), c.Variable("k")
        x = left[self.left.offset(self.batch, along) + m * self.left.row_step + k * self.left.column_step]
        y = right[self.right.offset(self.batch, along) + k * self.right.row_step + n * self.right.column_step]
        total = c.Variable("total", x.type)
        sums = c.Accumulator(total, c.Literal(0, x.type), element_sum(total, element_product(x, y)))
        store = c.Store(result, offset_along(indices, compact_strides(sizes)), total)
        return c.Nest(tuple(map(c.Axis, indices, sizes)), (store,), (c.Axis(k, self.depth),), accumulators=(sums,))

    @property
    def known_rows(self) -> int | None:
        """The number of rows, if known."""
        return self.num_rows if isinstance(self.num_rows, int) else None

    @property
    def known_columns(self) -> int | None:
        """The number of columns, if known."""
        return self.num_columns if isinstance(self.num_columns, int) else None

    def has_ragged_columns(self, lanes: int) -> bool:
        """Return whether the last columns may not fill a vector."""
        return self.known_columns is None or self.known_columns % lanes != 0

    @property
    def has_weights(self) -> bool:
        """Whether the right operand is a single matrix known before all calls, so that its panels cost no call."""
        return self.weights is not None or self.may_prepack

    @property
    def weights(self) -> Constant | None:
        """The right operand, if a single constant non-empty matrix."""
        value, is_one = self.right.value, all(dim == 1 for dim in self.right.batch_dims)
        return value if isinstance(value, Constant) and is_one and 0 not in shape_of(value) else None

    def weight_matrix(self, kernel: Kernel) -> NDArray | None:
        """Return the elements of :attr:`weights`, ``depth x num_columns``, if any."""
        if self.weights is None:
            return None
        array, depth = kernel.scope.constants.array(self.weights, kernel.scope.where), int(str(self.depth))
        return array.reshape(-1, depth).T if self.right.row_step == 1 else array.reshape(depth, -1)
