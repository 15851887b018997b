"""What a canonical case of an op is, and how it varies: by dtype and by symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, symbol
from byoc_core.dtypes import all_dtypes, dtype_info, to_numpy
from byoc_core.errors import IRTypeError
from byoc_core.ir.infer import infer_results
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.opset import data_dependent
from byoc_core.opset.opdef import AttrValue, OpDef, TypeContext
from byoc_core.opset.types import TensorType, Type

__all__ = [
    "OpCase",
    "OperandCase",
    "Shape",
    "array_of",
    "case",
    "function_of",
    "infer_case",
    "integers",
    "new_function",
]

Shape = tuple[int, ...]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class OperandCase:
    """One operand of a case.

    Attributes:
        shape: its sizes.
        dtype: its dtype where the op fixes it; ``None`` for the dtype that the case varies.
        low: the least integer that fits, where ``dtype`` is one of integers.
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
    """One way in which an op is commonly used.

    Sizes that mean different things are different numbers, as far as the op permits, and none of them is 1 by chance.

    Attributes:
        op: the op's name.
        operands: what it is given, in order.
        attrs: attributes that differ from their defaults.
        dtype: the dtype of the operands that fix none.
    """

    op: str
    operands: tuple[OperandCase, ...]
    attrs: Mapping[str, object] = field(default_factory=_no_attrs)
    dtype: str = "float32"

    def types(self, dtype: str | None = None) -> tuple[TensorType, ...]:
        """Gives the operands' types, with another dtype where one is given."""
        return tuple(TensorType(operand.shape, operand.dtype or dtype or self.dtype) for operand in self.operands)

    def symbolic_types(self, *, everywhere: bool = False) -> tuple[TensorType, ...]:
        """Gives the operands' types with symbols in place of sizes; equal sizes have one symbol, and 1 stays 1.

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

    def arrays(self, generator: np.random.Generator, dtype: str | None = None) -> tuple[Array, ...]:
        """Gives operands that fit, indices in range among them."""
        return tuple(
            array_of(type_, generator, operand.low, operand.high)
            for type_, operand in zip(self.types(dtype), self.operands, strict=True)
        )

    def dtypes(self, op: OpDef) -> tuple[str, ...]:
        """Gives the dtypes with which the op takes the case, the case's own first."""
        others = [name for name in all_dtypes() if name != self.dtype]
        if all(operand.dtype is not None for operand in self.operands):
            others = []
        return (self.dtype, *(name for name in others if self._is_taken(op, name)))

    def _is_taken(self, op: OpDef, dtype: str) -> bool:
        operands = [Var(f"x{index}", type_) for index, type_ in enumerate(self.types(dtype))]
        try:
            infer_case(op, operands, op.normalise_attrs(self.attrs))
        except IRTypeError:
            return False
        return True


def case(op: str, *operands: Shape | OperandCase, dtype: str = "float32", **attrs: object) -> OpCase:
    """Gives a case; a bare shape stands for an operand of the dtype that the case varies."""
    given = tuple(item if isinstance(item, OperandCase) else OperandCase(item) for item in operands)
    return OpCase(op, given, MappingProxyType(attrs), dtype)


def integers(shape: Shape, low: int, high: int, dtype: str = "int64") -> OperandCase:
    """Gives an operand of integers from ``low`` to ``high``: indices, lengths, starts."""
    return OperandCase(shape, dtype, low, high)


def array_of(type_: TensorType, generator: np.random.Generator, low: int = -4, high: int = 4) -> Array:
    """Gives an array of a static type: floats of both signs, integers from ``low`` to ``high``, or truth values."""
    shape = tuple(int(str(dim)) for dim in type_.shape or ())
    kind = dtype_info(type_.dtype).kind
    if kind == "float":
        return np.asarray(generator.standard_normal(shape)).astype(to_numpy(type_.dtype))
    low, high = (0, 1) if kind == "bool" else (max(low, 0) if kind == "uint" else low, high)
    return np.asarray(generator.integers(low, high, shape, endpoint=True)).astype(to_numpy(type_.dtype))


def infer_case(op: OpDef, operands: Sequence[Value], attrs: Mapping[str, AttrValue]) -> tuple[Type, ...]:
    """Gives the result types of an op, with a fresh symbol for a size that only running tells.

    External calls, which say themselves what they give, give what they take.

    Raises:
        IRTypeError: operands or attributes do not fit the op, or it needs regions.
    """
    declared: tuple[Type, ...] | None = None
    if op.declares_results:
        types = tuple(operand.type for operand in operands)
        if any(op is known for known in data_dependent.OPS):
            context = TypeContext(op.name, types, attrs, operand_names=op.operand_names(len(types)))
            declared = data_dependent.result_types(op, context, _fresh_symbol(types))
        else:
            declared = types[:1]
    return infer_results(op, operands, attrs, declared=declared)


def _fresh_symbol(types: Sequence[Type]) -> Dim:
    taken = {name for type_ in types if isinstance(type_, TensorType) for name in type_.symbols}
    return symbol(next(name for name in (f"k{number}" for number in range(len(taken) + 1)) if name not in taken))


def new_function(
    op: OpDef, types: Sequence[TensorType], given: Mapping[str, object], name: str = "main"
) -> tuple[Function, Binding]:
    """Gives a function of one op on its parameters, and its only binding.

    Raises:
        IRTypeError: operands or attributes do not fit the op.
    """
    return function_of(op, [Var(f"x{index}", type_) for index, type_ in enumerate(types)], given, name)


def function_of(
    op: OpDef, operands: Sequence[Value], given: Mapping[str, object], name: str = "main"
) -> tuple[Function, Binding]:
    """Gives a function of one op on these operands, those that vary being its parameters, and its only binding.

    Raises:
        IRTypeError: operands or attributes do not fit the op.
    """
    attrs = op.normalise_attrs(given)
    results = tuple(Var(f"y{index}", type_) for index, type_ in enumerate(infer_case(op, operands, attrs)))
    binding = Binding(results, op, tuple(operands), attrs)
    params = tuple(operand for operand in operands if isinstance(operand, Var))
    return Function(name, params, (binding,), results), binding
