"""Execution of type rules: the only source of result types for builder, parser, verifier and passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from byoc_core.errors import IRTypeError, type_name
from byoc_core.ir.module import Function, Value, Var
from byoc_core.ir.structural import CALL
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.types import Type

__all__ = ["infer_results"]


def infer_results(
    op: OpDef,
    operands: Sequence[Value],
    attrs: Mapping[str, AttrValue],
    *,
    regions: tuple[Function, ...] = (),
    declared: tuple[Type, ...] | None = None,
    functions: Mapping[str, Function] | None = None,
) -> tuple[Type, ...]:
    """Return the result types of an op.

    Args:
        op: the op.
        operands: the values read by the op.
        attrs: normalised attributes.
        regions: nested functions.
        declared: result types declared in the binding; read only if the op ``declares_results``.
        functions: the functions callable by ``call``.

    Raises:
        IRTypeError: operands, attributes or regions do not fit the op, or the op's type rule returns objects other than
            types.
    """
    op.check_arity(len(operands))
    if len(regions) != op.num_regions:
        raise IRTypeError(
            f"op `{op.name}`", "has the wrong number of regions", got=len(regions), expected=op.num_regions
        )
    if op.declares_results and declared is None:
        raise IRTypeError(f"op `{op.name}`", "needs its result types (`out_types=`)")
    callee = (functions or {}).get(str(attrs["callee"])) if op is CALL else None
    types = op.infer(
        TypeContext(
            op=op.name,
            operands=tuple(operand.type for operand in operands),
            attrs=attrs,
            declared=declared if op.declares_results else None,
            regions=regions,
            callee=callee,
            operand_names=_OperandNames(op, operands),
        )
    )
    types = _stored_types(op, types)
    if not types:
        raise IRTypeError(f"op `{op.name}`", "has no result")
    return types


def _stored_types(op: OpDef, rule_result: object) -> tuple[Type, ...]:
    """Return the result of a type rule (a single type, or any iterable of types) as a tuple of types."""
    if isinstance(rule_result, Type):
        return (rule_result,)
    types = tuple(rule_result) if isinstance(rule_result, Iterable) else None
    if types is None or not all(isinstance(item, Type) for item in types):
        wrong = rule_result if types is None else next(item for item in types if not isinstance(item, Type))
        raise IRTypeError(
            f"op `{op.name}`",
            "the type rule does not return types",
            got=f"{wrong!r} ({type_name(wrong)})",
            expected="a tuple of TensorType",
        )
    return types


class _OperandNames(Sequence[str]):
    """The names of operands in messages, computed on demand: most ops have no error."""

    __slots__ = ("_op", "_operands")

    def __init__(self, op: OpDef, operands: Sequence[Value]) -> None:
        self._op = op
        self._operands = operands

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        name, operand = self._op.operand_names(len(self))[index], self._operands[index]
        return f"{name}={operand.name}" if isinstance(operand, Var) and operand.name != name else name

    def __len__(self) -> int:
        return len(self._operands)
