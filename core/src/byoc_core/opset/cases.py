"""Canonical cases of an op, as data: common operands and attributes, and their variations.

A case is a trial input for backends, and a small valid input of an op for other purposes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc_core.dims import Dim, symbol
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.opset.types import TensorType

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["OpCase", "OperandCase", "Shape", "array_of", "axis_cases", "example", "integers"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperandCase:
    """An operand of a case.

    Attributes:
        shape: the sizes.
        dtype: the dtype if fixed by the op; ``None`` for the dtype varied by the case.
        low: the least valid integer, if ``dtype`` is an integer type.
        high: the largest.
    """

    shape: Shape
    dtype: str | None = None
    low: int = -4
    high: int = 4


def _no_attrs() -> Mapping[str, object]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OpCase:
    """A common use of an op.

    Sizes of different meaning are different numbers, as far as the op permits, and no size is 1 by chance.

    Attributes:
        op: the op's name, filled in by the op.
        operands: the operands, in order.
        attrs: attributes with values other than the defaults.
        dtype: the dtype of operands without a fixed dtype.
    """

    op: str
    operands: tuple[OperandCase, ...]
    attrs: Mapping[str, object] = field(default_factory=_no_attrs)
    dtype: str = "float32"

    def types(self, dtype: str | None = None) -> tuple[TensorType, ...]:
        """Return the operands' types, with another dtype if given."""
        return tuple(TensorType(operand.shape, operand.dtype or dtype or self.dtype) for operand in self.operands)

    def symbolic_types(self, *, everywhere: bool = False) -> tuple[TensorType, ...]:
        """Return the operands' types with symbols in place of sizes; equal sizes share a symbol, and 1 stays 1.

        Args:
            everywhere: all sizes, ``s2`` for 2 and so on; else only the first size of the first operand, ``n``.
        """
        sizes = [operand.shape for operand in self.operands]
        names: dict[int, Dim] = {size: symbol(f"s{size}") for shape in sizes for size in shape if size > 1}
        if not everywhere:
            names = {size: symbol("n") for size in sizes[0][:1] if size > 1} if sizes else {}
        return tuple(
            TensorType(tuple(names.get(size, size) for size in operand.shape), operand.dtype or self.dtype)
            for operand in self.operands
        )

    def arrays(self, generator: np.random.Generator, dtype: str | None = None) -> tuple[npt.NDArray[Any], ...]:
        """Return random valid operands, with indices in range."""
        return tuple(
            array_of(type_, generator, operand.low, operand.high)
            for type_, operand in zip(self.types(dtype), self.operands, strict=True)
        )


def example(*operands: Shape | OperandCase, dtype: str = "float32", **attrs: object) -> OpCase:
    """Return a case; a bare shape stands for an operand of the dtype varied by the case."""
    operand_cases = tuple(item if isinstance(item, OperandCase) else OperandCase(item) for item in operands)
    return OpCase("", operand_cases, MappingProxyType(attrs), dtype)


def axis_cases() -> Iterable[OpCase]:
    """Return the cases of ops on an operand along a single axis: of a matrix, of tokens, of an image."""
    return (example(shape, axis=axis) for shape, axis in (((2, 3), 1), ((2, 5, 3), -1), ((2, 16, 9, 8), 1)))


def integers(shape: Shape, low: int, high: int, dtype: str = "int64") -> OperandCase:
    """Return an operand of integers from ``low`` to ``high``: indices, lengths, starts."""
    return OperandCase(shape, dtype, low, high)


def array_of(type_: TensorType, generator: np.random.Generator, low: int = -4, high: int = 4) -> npt.NDArray[Any]:
    """Return an array of a static type: floats of both signs, integers from ``low`` to ``high``, or truth values."""
    shape = tuple(int(str(dim)) for dim in type_.shape or ())
    kind = dtype_info(type_.dtype).kind
    if kind == "float":
        return np.asarray(generator.standard_normal(shape)).astype(to_numpy(type_.dtype))
    low, high = (0, 1) if kind == "bool" else (max(low, 0) if kind == "uint" else low, high)
    return np.asarray(generator.integers(low, high, shape, endpoint=True)).astype(to_numpy(type_.dtype))
