"""Functions compiled already: kept beside the external modules for counting in reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from byoc_core.ir import CALL, CALL_DPS_PACKED, CALL_PACKED, Binding, Function, IRModule
from byoc_core.ir.printer import EXTERNAL_FUNCTIONS
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["record_compiled", "with_compiled_regions"]


def record_compiled(module: IRModule, functions: Iterable[Function]) -> IRModule:
    """Return the module with a record of compiled functions, by ``global_symbol``."""
    recorded: Mapping[str, Function] = module.attrs.get(EXTERNAL_FUNCTIONS, {})
    added = {str(function.attrs["global_symbol"]): function for function in functions}
    return module.with_attrs(**{EXTERNAL_FUNCTIONS: {**recorded, **added}}) if added else module


def with_compiled_regions(module: IRModule) -> tuple[IRModule, frozenset[str]]:
    """Return the module as if the called external functions were not compiled yet, and their symbols.

    For counting only: calls of external functions become calls of the recorded annotated functions.

    Cost: linear in the bindings; free without compiled functions.
    """
    recorded: Mapping[str, Function] = module.attrs.get(EXTERNAL_FUNCTIONS, {})
    if not recorded:
        return module, frozenset()
    called: dict[str, Function] = {}
    used_names = set(module.functions)

    def restore(function: Function) -> Function:
        return with_bindings(function, [call(binding) for binding in map_regions(function.bindings, restore)])

    def call(binding: Binding) -> Binding:
        symbol = str(binding.attrs["symbol"]) if binding.op in (CALL_DPS_PACKED, CALL_PACKED) else ""
        if symbol not in recorded:
            return binding
        if symbol not in called:
            called[symbol] = _renamed(recorded[symbol], used_names)
        attrs = CALL.normalise_attrs({"callee": called[symbol].name})
        return replace(binding, op=CALL, attrs=attrs)

    changed = map_functions(module, restore)
    regions = {function.name: function for function in called.values()}
    return changed.with_functions({**changed.functions, **regions}), frozenset(called)


def _renamed(function: Function, used_names: set[str]) -> Function:
    """Return the function under a free name; the original function of the ops stays the same."""
    name, count = function.name, 1
    while name in used_names:
        count += 1
        name = f"{function.name}_{count}"
    used_names.add(name)
    if name == function.name:
        return function
    return replace(function, name=name).with_attrs(source=function.attrs.get("source", function.name))
