"""Moving of nondeterministic ops without operands, such as ``random.seed``, to the start of their body."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.ir import Binding, Function, IRModule, Trait
from byoc_core.ir.sizes import attribute_symbols
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["HoistSeeds"]


@dataclass(frozen=True)
class HoistSeeds(Pass):
    """Moving of nondeterministic ops without operands to the start of their body, in their order.

    No region contains an op from before and an op from after a nondeterministic op. At the start of the body, such an
    op separates nothing. Bodies of ``if`` and ``loop`` keep their ops: each round of a loop draws anew.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with moved ops. Cost: linear."""
        return map_functions(module, lambda function: function if "Codegen" in function.attrs else _hoist(function))


def _hoist(function: Function) -> Function:
    bindings = list(map_regions(function.bindings, _hoist))
    # Sorting is stable.
    return with_bindings(function, sorted(bindings, key=lambda binding: not _is_movable(binding)))


def _is_movable(binding: Binding) -> bool:
    is_free = not binding.operands and not attribute_symbols(binding.attrs)
    return is_free and binding.op.has_trait(Trait.NONDETERMINISTIC)
