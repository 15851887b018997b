"""Constant folding: ops whose operands are all constants are computed once, at compile time."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import CALL, Binding, Constant, ConstantStore, Function, IRModule, Trait, Value, Var, is_static
from byoc_core.ir.sizes import is_data_dependent
from byoc_core.opset.types import TensorType
from byoc_core.transform.evaluate import evaluate_binding
from byoc_core.transform.infer_types import retype
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, remap, with_bindings

__all__ = ["FoldConstants"]


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces pure ops of constants by their values.

    Attributes:
        max_growth_nbytes: a result may be larger than the operands by no more than this (a broadcast of a small
            constant to a large one stays in the program).
        kept: names of ops that stay in the program.
    """

    max_growth_nbytes: int = 1 << 20
    kept: tuple[str, ...] = ()

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the folded module.

        Cost: linear in ops, plus the kernels of what is folded; once more for each folded data-dependent op whose
        operands another one's size makes known.
        """
        called = {str(b.attrs["callee"]) for f in module.functions.values() for b in f.walk() if b.op is CALL}
        return map_functions(module, lambda f: self._fold(f, module, keeps_types=f.name in called))

    def _fold(self, function: Function, module: IRModule, *, keeps_types: bool) -> Function:
        folded = self._fold_static(function, module)
        told = {
            id(binding): outputs
            for binding in folded.bindings
            if self._is_foldable_selection(binding)
            and (outputs := _value_of(binding, module.constants)) is not None
            and sum(output.nbytes for output in outputs) <= self.max_growth_nbytes + _nbytes(binding.operands)
        }
        if not told:
            return folded
        replaced = [
            (result, module.constants.add(output))
            for binding in folded.bindings
            for result, output in zip(binding.results, told.get(id(binding), ()), strict=False)
        ]
        rest = tuple(binding for binding in folded.bindings if id(binding) not in told)
        try:
            retyped = retype(replace(folded, bindings=rest), module.functions, replaced)
        except IRTypeError:  # an op does not fit the size, which it says when it runs
            return folded
        if keeps_types and retyped.result_types != folded.result_types:
            return folded
        return self._fold(retyped, module, keeps_types=keeps_types)

    def _is_foldable_selection(self, binding: Binding) -> bool:
        """Tells whether a data-dependent op is one of constants, and gives no more elements than they have.

        What scalars alone decide (a range) has no bound.
        """
        is_scalar = all(isinstance(o.type, TensorType) and o.type.shape == () for o in binding.operands)
        return is_data_dependent(binding) and _is_open(binding) and not is_scalar

    def _fold_static(self, function: Function, module: IRModule) -> Function:
        store = module.constants
        mapping: dict[int, Value] = {}
        kept: list[Binding] = []
        for binding in map_regions(function.bindings, lambda region: self._fold(region, module, keeps_types=True)):
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
            binding.op.name in self.kept
            or not _is_open(binding)
            or not all(is_static(result.type) for result in binding.results)
        ):
            return False
        return _nbytes(binding.results) - _nbytes(binding.operands) <= self.max_growth_nbytes


def _is_open(binding: Binding) -> bool:
    """Tells whether an op is one of constants that may be computed here."""
    return (
        binding.op.kernel is not None
        and binding.codegen is None
        and binding.op.has_trait(Trait.PURE)
        and all(isinstance(operand, Constant) for operand in binding.operands)
    )


def _value_of(binding: Binding, store: ConstantStore) -> tuple[npt.NDArray[Any], ...] | None:
    """Return the results of an op of constants, ``None`` where it depends on a size.

    ``None`` as well where the kernel fails, or gives something else than the declared types: running it says so.
    """
    arrays = [store[operand.digest] for operand in binding.operands if isinstance(operand, Constant)]
    try:
        outputs = evaluate_binding(binding, arrays, {})
    except (ExecutionError, IRTypeError):
        return None
    fits = len(outputs) == len(binding.results) and all(map(_is_of_type, outputs, binding.results))
    return outputs if fits else None


def _is_of_type(array: npt.NDArray[Any], result: Var) -> bool:
    """Return whether an array has the declared dtype and rank, and the sizes that are known."""
    type_ = result.type
    return (
        isinstance(type_, TensorType)
        and array.dtype == to_numpy(type_.dtype)
        and (type_.shape is None or array.ndim == len(type_.shape))
        and all(dim == size for dim, size in zip(type_.shape or (), array.shape, strict=False) if isinstance(dim, int))
    )


def _nbytes(values: Sequence[Value]) -> int:
    sizes = (value.type.nbytes for value in values if isinstance(value.type, TensorType))
    return sum(nbytes for nbytes in sizes if isinstance(nbytes, int))
