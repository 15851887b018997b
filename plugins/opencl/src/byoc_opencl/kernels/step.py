"""The view of an op for the writer of kernels: tensors in memory of the device, and sizes as arguments.

Layers of different sizes share a kernel: sizes are arguments. Small sizes are numbers: windows, strides and axes of
size 1 decide the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, product, substitute, symbol
from byoc_core.ir import Binding

__all__ = [
    "DOUBLE",
    "KernelSizes",
    "Step",
    "Tensor",
    "Work",
    "all_of",
    "cast",
    "for_each",
    "literal",
    "loops",
    "lowered",
    "root_of",
]

DOUBLE = c.CType("float64")
"""The type of sums, means and exponentials inside kernels."""

_LARGEST_NUMBER = 8
"""The largest size written into kernels as a number."""

Work = c.Nest | c.Block
"""The work of an op: a nest, into which elementwise ops may be fused, or statements with parallel loops."""


class KernelSizes:
    """The sizes of a kernel: numbers, and symbols standing for sizes of the region."""

    def __init__(self) -> None:
        self._symbols: dict[Dim, Dim] = {}

    def __call__(self, dim: Dim) -> Dim:
        """Return the size to be used in the kernel for a size of the region."""
        if isinstance(dim, int) and dim <= _LARGEST_NUMBER:
            return dim
        if dim not in self._symbols:
            self._symbols[dim] = symbol(f"s{len(self._symbols):03}")
        return self._symbols[dim]

    def of_region(self, size: Dim) -> Dim:
        """Return a size of the kernel, or an expression over such sizes, in the sizes of the region."""
        return substitute(size, {str(name): dim for dim, name in self._symbols.items()})


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A tensor in memory of the device, in row-major order.

    Attributes:
        buffer: the memory.
        dims: the sizes, as known to the region.
        shape: the sizes, as used in the kernel.
    """

    buffer: c.Buffer
    dims: tuple[Dim, ...]
    shape: tuple[Dim, ...]

    @property
    def type(self) -> c.CType:
        """The type of an element."""
        return c.CType(self.buffer.dtype)

    def offset(self, indices: Sequence[c.Expression]) -> c.Expression:
        """Return the offset of an element."""
        result: c.Expression = c.Size(0)
        for axis, index in enumerate(indices):
            if self.shape[axis] != 1:
                result = result + index * product(self.shape[axis + 1 :])
        return result

    def __getitem__(self, indices: Sequence[c.Expression]) -> c.Load:
        """Return an element."""
        return self.buffer[self.offset(indices)]

    def store(self, indices: Sequence[c.Expression], value: c.Expression) -> c.Store:
        """Return the store of an element."""
        return c.Store(self.buffer, self.offset(indices), value)


@dataclass(frozen=True, slots=True)
class Step:
    """An op with its tensors.

    Attributes:
        binding: the op.
        inputs: the operands.
        outputs: the results.
        sizes: the sizes of the kernel.
        scratch: tensors for values between the launches of the op, as declared by :meth:`new_scratch`.
    """

    binding: Binding
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    sizes: KernelSizes
    scratch: list[Tensor] = field(default_factory=list)

    def new_scratch(self, name: str, dtype: str, dims: Sequence[Dim]) -> Tensor:
        """Return a tensor for values between the launches of this op."""
        shape = tuple(map(self.sizes, dims))
        self.scratch.append(Tensor(c.Buffer(name, dtype, c.MemoryAccess.WRITE, product(shape)), tuple(dims), shape))
        return self.scratch[-1]


def for_each(tensor: Tensor, value: Callable[[Sequence[c.Expression]], c.Expression]) -> c.Nest:
    """Return the nest storing a value at each element of a tensor, computed from the indices."""
    axes = tuple(c.Axis(c.Variable(f"i{axis}"), size) for axis, size in enumerate(tensor.shape))
    indices = [axis.index for axis in axes]
    return c.Nest(axes, (tensor.store(indices, value(indices)),))


def lowered(work: Work) -> c.Block:
    """Return work as statements: all points of a nest are shared by threads."""
    if isinstance(work, c.Nest):
        return c.lower_nest(work, c.Schedule(parallel=tuple(axis.name for axis in work.axes)))
    return work


def loops(sizes: Sequence[Dim], name: str, body: Callable[[Sequence[c.Expression]], c.Block]) -> c.Block:
    """Return serial loops around a block, one for each size but sizes of 1."""
    indices = [c.Size(0) if size == 1 else c.Variable(f"{name}{axis}") for axis, size in enumerate(sizes)]
    block = body(indices)
    for index, size in zip(reversed(indices), reversed(sizes), strict=True):
        if isinstance(index, c.Variable):
            block = (c.For(index, c.Size(0), c.Size(size), block),)
    return block


def cast(value: c.Expression, type_: c.CType) -> c.Expression:
    """Return a value as another type."""
    return value if value.type == type_ else c.Cast(value, type_)


def all_of(conditions: Sequence[c.Expression]) -> c.Expression:
    """Return the conjunction of one or more conditions."""
    return reduce(lambda left, right: c.Binary("&&", left, right), conditions)


def literal(value: float, type_: c.CType) -> c.Literal:
    """Return a number of a type."""
    return c.Literal(value, type_)


def root_of(value: c.Expression) -> c.Expression:
    """Return the square root of a float64."""
    return c.Call(c.Callee("sqrt", np.sqrt, flops=1), (value,), value.type)
