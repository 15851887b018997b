"""Removal of ops without effects and readers, and of functions unreachable from entry functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_core.ir import CALL, Binding, Function, IRModule, has_effect
from byoc_core.ir.sizes import cited_symbols, learnt_symbols, type_symbols
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["RemoveDeadCode", "RemoveUnusedFunctions"]


@dataclass(frozen=True)
class RemoveDeadCode(Pass):
    """Removal of ops without effects and without read results, unless a result determines a needed size."""

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module without dead ops. Cost: linear."""
        return map_functions(module, lambda function: _strip(function, module.functions))


def _strip(function: Function, functions: Mapping[str, Function]) -> Function:
    live = {id(result) for result in function.results}
    learnt = {id(binding): learnt_symbols(binding, functions) for binding in function.bindings}
    tracks_sizes = any(learnt.values())
    sizes = set(type_symbols(function.results)) if tracks_sizes else set()
    live_bindings: list[Binding] = []
    for binding in reversed(function.bindings):
        is_read = any(id(result) in live for result in binding.results) or not sizes.isdisjoint(learnt[id(binding)])
        if is_read or has_effect(binding, functions):
            live.update(id(operand) for operand in binding.operands)
            sizes |= cited_symbols([binding]) if tracks_sizes else set()
            live_bindings.append(binding)
    live_bindings = list(map_regions(reversed(live_bindings), lambda region: _strip(region, functions)))
    return with_bindings(function, live_bindings)


@dataclass(frozen=True)
class RemoveUnusedFunctions(Pass):
    """Removal of functions not called by any entry function, directly or indirectly.

    Attributes:
        entry_functions: names of the functions called from outside; these stay.
    """

    entry_functions: tuple[str, ...] = ("main",)

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with reachable functions only.

        Raises:
            IRError: an entry function is not in the module.
        """
        pending = [module[name].name for name in self.entry_functions]
        reached = set(pending)
        while pending:
            for binding in module[pending.pop()].walk():
                callee = str(binding.attrs["callee"]) if binding.op is CALL else None
                if callee is not None and callee not in reached:
                    reached.add(callee)
                    pending.append(callee)
        if len(reached) == len(module.functions):
            return module
        return module.with_functions({name: f for name, f in module.functions.items() if name in reached})
