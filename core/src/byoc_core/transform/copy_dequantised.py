"""A separate dequantisation of constants for each reader."""

from __future__ import annotations

from dataclasses import dataclass, replace

from byoc_core.ir import Binding, Constant, Function, IRModule, Trait, Value, Var
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["CopyDequantised"]


@dataclass(frozen=True)
class CopyDequantised(Pass):
    """Copies of ``dequantize`` of constants: one for each reader, with the transposes and reshapes between.

    Backends claim a product together with the dequantisation of its weights, to compute on the integers. A value with
    further readers cannot be claimed in this way. The constants stay shared. Copies which no backend claims are folded
    behind partition.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with copies. Cost: linear in ops and copies."""
        return map_functions(module, lambda function: function if "Codegen" in function.attrs else _copy(function))


def _copy(function: Function) -> Function:
    copier = _Copier({id(result) for result in function.results})
    for binding in map_regions(function.bindings, _copy):
        copier.add(binding)
    return with_bindings(function, copier.bindings)


class _Copier:
    """The bindings of a function so far, with copies.

    Args:
        read: the values already read, by ``id``.
    """

    def __init__(self, read: set[int]) -> None:
        self.bindings: list[Binding] = []
        self._read = read
        self._makers: dict[int, Binding] = {}

    def add(self, binding: Binding) -> None:
        """Append a binding, and the copies read by the binding."""
        operands = tuple(map(self._own, binding.operands))
        if any(new is not old for new, old in zip(operands, binding.operands, strict=True)):
            binding = replace(binding, operands=operands)
        self.bindings.append(binding)
        op = binding.op
        is_weight = op.has_trait(Trait.WIDENING) and all(isinstance(value, Constant) for value in operands)
        is_moved = op.has_trait(Trait.SELECTING) and len(operands) == 1 and id(operands[0]) in self._makers
        if (is_weight or is_moved) and len(binding.results) == 1 and binding.codegen is None:
            self._makers[id(binding.results[0])] = binding

    def _own(self, value: Value) -> Value:
        """Return a value for a single reader: the value itself, or the result of a copy."""
        maker = self._makers.get(id(value))
        if maker is None:
            return value
        if id(value) not in self._read:
            self._read.add(id(value))
            return value
        (result,) = maker.results
        copied = Var(result.name, result.type)
        self.bindings.append(replace(maker, operands=tuple(map(self._own, maker.operands)), results=(copied,)))
        return copied
