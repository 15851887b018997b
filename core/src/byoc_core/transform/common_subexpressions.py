"""Elimination of common subexpressions: equal computations run once."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from byoc_core.dtypes import is_float
from byoc_core.ir import (
    CALL,
    Binding,
    Constant,
    Function,
    IRModule,
    TensorType,
    Trait,
    Value,
    is_pure,
    structural_hash,
)
from byoc_core.ir.structural_equality import attributes_text
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, remap, with_bindings
from byoc_core.transform.rewriter import is_open

__all__ = ["EliminateCommonSubexpressions", "may_swap"]


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Removal of pure ops equal to an earlier op.

    Two ops are equal if op, operands (in any order where :func:`may_swap` permits), attributes, result types, regions
    and claim agree. Every region is a scope of its own. Impure ops, functions annotated for a backend and bodies of
    composites are left alone.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module without repeated ops. Cost: linear."""
        purity: dict[str, bool] = {}
        return map_functions(
            module, lambda function: _merge(function, module.functions, purity) if is_open(function) else function
        )


def may_swap(binding: Binding) -> bool:
    """Return whether swapping the two operands of a binding keeps every bit of the result.

    Operands of a commutative op may be swapped, except for ops of floats with :attr:`Trait.EITHER_ZERO`: of two zeros
    of different sign these ops may return either.
    """
    if len(binding.operands) != 2 or not binding.op.has_trait(Trait.COMMUTATIVE):
        return False
    type_ = binding.operands[0].type
    chooses_zero = binding.op.has_trait(Trait.EITHER_ZERO)
    return not (chooses_zero and isinstance(type_, TensorType) and is_float(type_.dtype))


def _merge(function: Function, functions: Mapping[str, Function], purity: dict[str, bool]) -> Function:
    seen: dict[Hashable, Binding] = {}
    mapping: dict[int, Value] = {}
    unique: list[Binding] = []
    for binding in map_regions(function.bindings, lambda region: _merge(region, functions, purity)):
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        if not all(map(operator.is_, operands, binding.operands)):
            binding = replace(binding, operands=operands)
        if _is_pure(binding, functions, purity):
            first = seen.setdefault(_key(binding), binding)
            if first is not binding:
                mapping.update((id(old), new) for old, new in zip(binding.results, first.results, strict=True))
                continue
        unique.append(binding)
    if not mapping:
        return with_bindings(function, unique)
    results = tuple(remap(result, mapping) for result in function.results)
    return replace(function, bindings=tuple(unique), results=results)


def _is_pure(binding: Binding, functions: Mapping[str, Function], purity: dict[str, bool]) -> bool:
    """Return the same as :func:`is_pure`, but look at each called function only once."""
    if binding.op is not CALL:
        return is_pure(binding, functions)
    callee = str(binding.attrs["callee"])
    if callee not in purity:
        purity[callee] = is_pure(binding, functions)
    return purity[callee]


def _key(binding: Binding) -> Hashable:
    operands: list[tuple[str, object]] = [
        ("constant", (operand.digest, str(operand.type))) if isinstance(operand, Constant) else ("value", id(operand))
        for operand in binding.operands
    ]
    if may_swap(binding):
        operands.sort(key=repr)
    return (
        id(binding.op),
        tuple(operands),
        attributes_text(binding.attrs),
        tuple(result.type for result in binding.results),
        tuple(map(structural_hash, binding.regions)),
        binding.codegen,
    )
