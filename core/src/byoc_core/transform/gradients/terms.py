"""Terms: tensors with arithmetic, to write rules as formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.errors import IRError
from byoc_core.ir import Function, FunctionBuilder, Location, TensorType, Value

__all__ = ["Emitter", "Term", "choose"]


class Emitter:
    """Emission of ops into a function under construction.

    Args:
        builder: the builder of the function.

    Attributes:
        builder: the builder of the function.
        location: the origin of the emitted bindings.
    """

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder
        self.location: Location | None = None

    def emit(
        self,
        op: str,
        operands: Sequence[Term] = (),
        attrs: Mapping[str, object] | None = None,
        *,
        regions: Sequence[Function] = (),
    ) -> tuple[Term, ...]:
        """Add a binding and return all results."""
        values = [operand.value for operand in operands]
        binding = self.builder.bind(op, values, attrs or {}, regions=regions, location=self.location)
        return tuple(Term(self, result) for result in binding.results)

    def number(self, number: float, dtype: str) -> Term:
        """Return a number as a constant without axes; infinity for a number beyond the dtype."""
        with np.errstate(over="ignore"):
            array = np.asarray(number).astype(to_numpy(dtype))
        return Term(self, self.builder.const(array))

    def full(self, number: float, shape: Sequence[Dim], dtype: str) -> Term:
        """Return a tensor of equal elements."""
        return self.number(number, dtype).broadcast_to(shape)

    def positions(self, size: Dim) -> Term:
        """Return the positions along an axis of this size: the numbers from 0 on, int64."""
        return self.emit("arange", attrs={"stop": size})[0]

    def size(self, size: Dim, dtype: str = "int64") -> Term:
        """Return a size as a number without axes."""
        if isinstance(size, int):
            return self.number(size, dtype)
        (vector,) = self.emit("shape_to_tensor", attrs={"sizes": (size,)})
        return vector.cast(dtype).reshape(())

    def identity_matrix(self, size: Dim, dtype: str) -> Term:
        """Return the identity matrix ``(size, size)``."""
        ends = (self.number(1, dtype), self.number(0, dtype))
        return self.emit("one_hot", (self.positions(size), *ends), {"depth": size})[0]


class Term:
    """A tensor with arithmetic: operators emit ops, and numbers become constants of the tensor's dtype.

    Args:
        emitter: the emitter of ops.
        value: the tensor.

    Raises:
        IRError: the value is no tensor.
    """

    __slots__ = ("emitter", "type", "value")

    def __init__(self, emitter: Emitter, value: Value) -> None:
        if not isinstance(value.type, TensorType):
            raise IRError("differentiation", "meets a value other than a tensor", got=value.type)
        self.emitter = emitter
        self.value = value
        self.type: TensorType = value.type

    @property
    def dtype(self) -> str:
        """The dtype."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes.

        Raises:
            IRError: the rank is unknown.
        """
        if self.type.shape is None:
            raise IRError("differentiation", "needs the rank of a tensor, but the rank is unknown", got=self.type)
        return self.type.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def apply(self, op: str, *operands: Term | float, **attrs: object) -> Term:
        """Return the only result of an op with this tensor as first operand."""
        return self.emitter.emit(op, (self, *map(self.convert, operands)), attrs)[0]

    def convert(self, other: Term | float) -> Term:
        """Return a number as a constant of the tensor's dtype; tensors stay."""
        return other if isinstance(other, Term) else self.emitter.number(other, self.dtype)

    def __add__(self, other: Term | float) -> Term:
        return self.apply("add", other)

    def __radd__(self, other: float) -> Term:
        return self.apply("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.apply("subtract", other)

    def __rsub__(self, other: float) -> Term:
        return self.convert(other).apply("subtract", self)

    def __mul__(self, other: Term | float) -> Term:
        return self.apply("multiply", other)

    def __rmul__(self, other: float) -> Term:
        return self.apply("multiply", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply("divide", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.convert(other).apply("divide", self)

    def __neg__(self) -> Term:
        return self.apply("negative")

    def __matmul__(self, other: Term) -> Term:
        return self.apply("matmul", other)

    def cast(self, dtype: str) -> Term:
        """Return the tensor in a dtype."""
        return self if self.dtype == dtype else self.apply("cast", dtype=dtype)

    def where(self, condition: Term, otherwise: Term | float = 0.0) -> Term:
        """Return the tensor where a condition holds, else another tensor or number."""
        return choose(condition, self, self.convert(otherwise))

    # Axes

    def reshape(self, shape: Sequence[Dim]) -> Term:
        """Return the elements in another shape; the tensor itself if already of this shape."""
        return self if self.type.shape == tuple(shape) else self.apply("reshape", shape=tuple(shape))

    def permute(self, axes: Sequence[int]) -> Term:
        """Return the tensor with axes in another order."""
        return self if list(axes) == list(range(self.rank)) else self.apply("permute_dims", axes=tuple(axes))

    def move_axis(self, source: int, target: int) -> Term:
        """Return the tensor with an axis at another position; both are counted from the front."""
        axes = [axis for axis in range(self.rank) if axis != source]
        return self.permute([*axes[:target], source, *axes[target:]])

    def transposed(self) -> Term:
        """Return the tensor with the last two axes swapped."""
        return self.move_axis(self.rank - 1, self.rank - 2)

    def broadcast_to(self, shape: Sequence[Dim]) -> Term:
        """Return the tensor repeated to a shape."""
        return self if self.type.shape == tuple(shape) else self.apply("broadcast_to", shape=tuple(shape))

    def sum(self, axes: Sequence[int], *, keepdims: bool = False) -> Term:
        """Return the sum along axes."""
        return self.apply("sum", axis=tuple(axes), keepdims=keepdims) if axes else self

    def mean(self, axes: Sequence[int]) -> Term:
        """Return the mean along axes, with size 1 in place of the axes."""
        return self.apply("mean", axis=tuple(axes), keepdims=True) if axes else self

    def split(self, sizes: Sequence[Dim], axis: int) -> tuple[Term, ...]:
        """Return consecutive parts along an axis."""
        return self.emitter.emit("split", (self,), {"sections": tuple(sizes), "axis": axis})

    def over_size(self, size: Dim) -> Term:
        """Return the tensor divided by a size; a size of 0 counts as 1 if known."""
        if isinstance(size, int) and size > float_limits(self.dtype).largest:
            return self * (1 / size)
        return self / self.emitter.size(max(size, 1) if isinstance(size, int) else size, self.dtype)

    def take_first(self, sizes: Mapping[int, Dim]) -> Term:
        """Return the first slices along axes, by axis the number of slices; the tensor has no fewer."""
        cut = {axis: size for axis, size in sizes.items() if self.shape[axis] != size}
        if not cut:
            return self
        zeros, ones = (0,) * len(cut), (1,) * len(cut)
        attrs = {"axes": tuple(cut), "begin": zeros, "end": tuple(cut.values()), "strides": ones}
        shape = [sizes.get(axis, size) for axis, size in enumerate(self.shape)]
        return self.apply("strided_slice", **attrs).reshape(shape)

    def sum_to(self, shape: Sequence[Dim]) -> Term:
        """Return the sum over repeated elements: the adjoint of broadcasting from ``shape`` to the tensor's shape.

        An axis of unknown size in ``shape`` with another size in the tensor is either of size 1 or of the size in the
        tensor: a scatter adds the slices at their positions, limited to the axis.
        """
        added = self.rank - len(shape)
        ones = [axis + added for axis, size in enumerate(shape) if size == 1 and self.shape[axis + added] != 1]
        total = self.sum((*range(added), *ones), keepdims=True)
        total = total.reshape(total.shape[added:])
        for axis, size in enumerate(shape):
            if not isinstance(size, int) and total.shape[axis] != size:
                last = self.emitter.size(size - 1)
                positions = self.emitter.positions(total.shape[axis]).apply("minimum", last)
                total = total.scatter_slices(positions, axis, size)
        return total.reshape(shape)

    def scatter_slices(self, positions: Term, axis: int, size: Dim) -> Term:
        """Return slices added at their positions along an axis of another size; the adjoint of taking slices.

        Args:
            positions: a vector of integers, a position for each slice.
            axis: the axis, counted from the front.
            size: the size of the axis of the result.
        """
        slices = self.move_axis(axis, 0)
        zeros = self.emitter.full(0, (size, *slices.shape[1:]), self.dtype)
        column = positions.reshape((*positions.shape, 1))
        return zeros.apply("scatter_nd", column, slices, reduction="add").move_axis(0, axis)

    def contract(self, axis: int, matrix: Term) -> Term:
        """Return the products of the vectors along an axis with a matrix ``(axis, new axis)``."""
        return (self.move_axis(axis, self.rank - 1) @ matrix).move_axis(self.rank - 1, axis)

    def num_elements(self, axes: Sequence[int] | None = None) -> Dim:
        """Return the product of the sizes of axes; of all axes by default."""
        return product(self.shape if axes is None else [self.shape[axis] for axis in axes])


def choose(condition: Term, x: Term, y: Term) -> Term:
    """Return ``x`` where a condition holds, else ``y``."""
    return condition.emitter.emit("where", (condition, x, y))[0]
