"""Bindings and functions of a single op, made from the op's canonical cases.

The linter of backends and the conformance kit draw trial inputs from these cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from byoc_core.dims import Dim, symbol
from byoc_core.dtypes import computing_dtypes
from byoc_core.errors import IRTypeError
from byoc_core.ir.infer import infer_results
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.cases import OpCase, OperandCase, Shape, array_of, example, integers
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.types import TensorType, Type

__all__ = [
    "OpCase",
    "OperandCase",
    "accepts_dtype",
    "array_of",
    "canonical_cases",
    "case",
    "dtypes_of",
    "function_of",
    "infer_case",
    "integers",
    "new_function",
]


def canonical_cases(ops: Mapping[str, OpDef]) -> Mapping[str, tuple[OpCase, ...]]:
    """Return the canonical cases of each op with cases, the most common case of an op first."""
    return {name: op.canonical_cases for name, op in ops.items() if op.canonical_cases}


def case(op: str, *operands: Shape | OperandCase, dtype: str = "float32", **attrs: object) -> OpCase:
    """Return a case of an op."""
    return replace(example(*operands, dtype=dtype, **attrs), op=op)


def dtypes_of(case: OpCase, op: OpDef) -> tuple[str, ...]:
    """Return the dtypes for which an op accepts a case, the dtype of the case first."""
    return (case.dtype, *(name for name in computing_dtypes() if name != case.dtype and accepts_dtype(case, op, name)))


def accepts_dtype(case: OpCase, op: OpDef, dtype: str) -> bool:
    """Return whether an op accepts a case in a dtype; a case with fixed dtypes has its own dtype alone."""
    if dtype == case.dtype or all(operand.dtype is not None for operand in case.operands):
        return dtype == case.dtype
    operands = [Var(f"x{index}", type_) for index, type_ in enumerate(case.types(dtype))]
    try:
        infer_case(op, operands, op.normalise_attrs(case.attrs))
    except IRTypeError:
        return False
    return True


def infer_case(op: OpDef, operands: Sequence[Value], attrs: Mapping[str, AttrValue]) -> tuple[Type, ...]:
    """Return the result types of an op, with a fresh symbol for a size known only at run time.

    External calls declare result types and get the type of the first operand here.

    Raises:
        IRTypeError: operands or attributes do not fit the op, or the op needs regions.
    """
    declared: tuple[Type, ...] | None = None
    if op.declares_results:
        types = tuple(operand.type for operand in operands)
        if op.sized_results is not None:
            context = TypeContext(op.name, types, attrs, operand_names=op.operand_names(len(types)))
            declared = op.sized_results(context, _fresh_symbol(types))
        else:
            declared = types[:1]
    return infer_results(op, operands, attrs, declared=declared)


def _fresh_symbol(types: Sequence[Type]) -> Dim:
    used_names = {name for type_ in types if isinstance(type_, TensorType) for name in type_.symbols}
    return symbol(
        next(name for name in (f"k{number}" for number in range(len(used_names) + 1)) if name not in used_names)
    )


def new_function(
    op: OpDef, types: Sequence[TensorType], given: Mapping[str, object], name: str = "main"
) -> tuple[Function, Binding]:
    """Build a function of a single op on the function's parameters; return the function and its only binding.

    Raises:
        IRTypeError: operands or attributes do not fit the op.
    """
    return function_of(op, [Var(f"x{index}", type_) for index, type_ in enumerate(types)], given, name)


def function_of(
    op: OpDef, operands: Sequence[Value], given: Mapping[str, object], name: str = "main"
) -> tuple[Function, Binding]:
    """Build a function of a single op on these operands; return the function and the only binding.

    Operands of type :class:`Var` become the parameters of the function.

    Raises:
        IRTypeError: operands or attributes do not fit the op.
    """
    attrs = op.normalise_attrs(given)
    results = tuple(Var(f"y{index}", type_) for index, type_ in enumerate(infer_case(op, operands, attrs)))
    binding = Binding(results, op, tuple(operands), attrs)
    params = tuple(operand for operand in operands if isinstance(operand, Var))
    return Function(name, params, (binding,), results), binding
