"""The contexts of an op's rules: operand types, result types and attributes, without the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byoc_core.dims import Dim, product, symbol
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError
from byoc_core.opset.types import TensorType, Type

__all__ = ["OpContext", "TypeContext", "bytes_touched", "no_flops", "unstated_flops"]


@dataclass(frozen=True, slots=True)
class TypeContext:
    """The context of a type rule.

    Attributes:
        op: the op's name, for messages.
        operands: operand types, in order.
        attrs: normalised attributes, defaults filled in.
        declared: result types as declared, for ops with a rule unable to infer the types alone (``declares_results``);
            else ``None``.
        regions: the nested functions (:class:`~byoc_core.ir.Function`).
        callee: the function named by a ``call``, else ``None``.
        operand_names: names for messages, parallel to ``operands``.
    """

    op: str
    operands: tuple[Type, ...]
    attrs: Mapping[str, Any]
    declared: tuple[Type, ...] | None = None
    regions: tuple[Any, ...] = ()  # typed Any: the runtime imports ops, but not the IR
    callee: Any = None
    operand_names: Sequence[str] = ()

    def tensor(self, index: int) -> TensorType:
        """Return the type of operand ``index``, a tensor.

        Raises:
            IRTypeError: the operand is an opaque object.
        """
        type_ = self.operands[index]
        if not isinstance(type_, TensorType):
            raise self.error("is not a tensor", operand=index, got=type_)
        return type_

    def shape(self, index: int) -> tuple[Dim, ...]:
        """Return the shape of tensor operand ``index``.

        Raises:
            IRTypeError: the operand is no tensor, or the rank is unknown.
        """
        shape = self.tensor(index).shape
        if shape is None:
            raise self.error("needs a known rank", operand=index)
        return shape

    def error(
        self, problem: str, *, operand: int | None = None, got: object = None, expected: object = None
    ) -> IRTypeError:
        """Return the error to raise; the error names the op and, if given, the operand."""
        where = f"op `{self.op}`"
        if operand is not None and operand < len(self.operand_names):
            where += f", operand `{self.operand_names[operand]}`"
        return IRTypeError(where, problem, got=got, expected=expected)


@dataclass(frozen=True, slots=True)
class OpContext:
    """A use of an op, as seen by formulas and rules about the op.

    Attributes:
        operands: operand types, in order.
        results: result types, in order.
        attrs: normalised attributes.
    """

    operands: tuple[Type, ...]
    results: tuple[Type, ...]
    attrs: Mapping[str, Any]

    def elements(self, index: int = 0) -> Dim:
        """Return the number of elements of result ``index``; symbol ``unknown`` if the rank is unknown."""
        return _elements(self.results[index])

    def operand_elements(self, index: int) -> Dim:
        """Return the number of elements of operand ``index``; symbol ``unknown`` if the rank is unknown."""
        return _elements(self.operands[index])

    def operand_shape(self, index: int = 0) -> tuple[Dim, ...]:
        """Return the shape of tensor operand ``index``; no sizes if the rank is unknown."""
        return _shape(self.operands[index])

    def result_shape(self, index: int = 0) -> tuple[Dim, ...]:
        """Return the shape of tensor result ``index``; no sizes if the rank is unknown."""
        return _shape(self.results[index])

    def ints(self, name: str) -> tuple[int, ...]:
        """Return the integers of attribute ``name``; none if the attribute is ``None``, symbols left out."""
        value = self.attrs[name]
        return tuple(item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, int))


def _shape(type_: Type) -> tuple[Dim, ...]:
    return (type_.shape or ()) if isinstance(type_, TensorType) else ()


def _elements(type_: Type) -> Dim:
    if not isinstance(type_, TensorType):
        return 0
    return symbol("unknown") if type_.shape is None else product(type_.shape)


def bytes_touched(context: OpContext) -> Dim:
    """Return the bytes of all operands read once and all results written once."""
    total: Dim = 0
    for type_ in (*context.operands, *context.results):
        if isinstance(type_, TensorType):
            total = total + _elements(type_) * dtype_info(type_.dtype).itemsize
    return total


def no_flops(context: OpContext) -> Dim:
    """Return 0: the op only moves data."""
    return 0


def unstated_flops(context: OpContext) -> Dim:
    """Return one operation for each element of the results: the count of an op without a formula."""
    total: Dim = 0
    for type_ in context.results:
        total = total + _elements(type_)
    return total
