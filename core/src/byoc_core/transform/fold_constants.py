"""Constant folding: ops whose operands are all constants are computed once, at compile time."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import Binding, Constant, ConstantStore, Function, IRModule, Trait, Value, is_static
from byoc_core.ir.types import TensorType
from byoc_core.transform.evaluate import evaluate_binding
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, remap, with_bindings

__all__ = ["FoldConstants"]


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces pure ops of constants by their values.

    Attributes:
        max_growth_nbytes: a result may be larger than the operands by no more than this (a broadcast of a small
            constant to a large one stays in the program).
    """

    max_growth_nbytes: int = 1 << 20

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the folded module. Cost: linear in ops, plus the kernels of what is folded."""
        return map_functions(module, lambda function: self._fold(function, module.constants))

    def _fold(self, function: Function, store: ConstantStore) -> Function:
        mapping: dict[int, Value] = {}
        kept: list[Binding] = []
        for binding in map_regions(function.bindings, lambda region: self._fold(region, store)):
            operands = tuple(remap(operand, mapping) for operand in binding.operands)
            if any(map(operator.is_not, operands, binding.operands)):
                binding = replace(binding, operands=operands)
            outputs = _value_of(binding, store) if self._is_foldable(binding) else None
            if outputs is None:
                kept.append(binding)
            else:
                mapping.update((id(r), store.add(output)) for r, output in zip(binding.results, outputs, strict=True))
        if not mapping:
            return with_bindings(function, kept)
        results = tuple(remap(result, mapping) for result in function.results)
        return replace(function, bindings=tuple(kept), results=results)

    def _is_foldable(self, binding: Binding) -> bool:
        if (
            binding.op.kernel is None
            or binding.codegen is not None
            or not binding.op.has_trait(Trait.PURE)
            or not all(isinstance(operand, Constant) for operand in binding.operands)
            or not all(is_static(result.type) for result in binding.results)
        ):
            return False
        grown = sum(_static_nbytes(r) for r in binding.results) - sum(_static_nbytes(o) for o in binding.operands)
        return grown <= self.max_growth_nbytes


def _value_of(binding: Binding, store: ConstantStore) -> tuple[npt.NDArray[Any], ...] | None:
    """Gives the results of an op of constants; ``None`` where it depends on a size, or fails (as when it runs)."""
    arrays = [store[operand.digest] for operand in binding.operands if isinstance(operand, Constant)]
    try:
        return evaluate_binding(binding, arrays, {})
    except (ExecutionError, IRTypeError):
        return None


def _static_nbytes(value: Value) -> int:
    nbytes = value.type.nbytes if isinstance(value.type, TensorType) else 0
    return nbytes if isinstance(nbytes, int) else 0
