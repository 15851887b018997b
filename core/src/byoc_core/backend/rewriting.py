"""The module-rewriting hooks of a backend, and the law for each result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.ir.module import Function, IRModule

__all__ = ["REWRITES", "Law"]

Law = Callable[["IRModule", "IRModule", str], str | None]
"""Returns the fault of a result, given the module before, the module after, and the backend's name."""


def _may_change_all(before: IRModule, after: IRModule, backend: str) -> str | None:
    return None


def _may_change_own_regions(before: IRModule, after: IRModule, backend: str) -> str | None:
    """Allow other bodies, also with other parameter names, in functions annotated for the backend."""
    if list(before.functions) != list(after.functions):
        return "added, removed or reordered functions"
    for name, function in before.functions.items():
        changed = after.functions[name]
        if changed is function:
            continue
        if function.attrs.get("Codegen") != backend:
            return f"changed function `{name}`, not annotated for the backend"
        if changed.attrs != function.attrs:
            return f"changed the annotations of function `{name}`"
        if _interface(changed) != _interface(function):
            return f"changed the parameters or results of function `{name}`"
    return None


def _may_change_own_modules(before: IRModule, after: IRModule, backend: str) -> str | None:
    """Allow replacement of external modules holding the backend's functions only."""
    from byoc_core.ir.printer import EXTERNAL_FUNCTIONS, EXTERNAL_MODULES

    if after.functions != before.functions:
        return "changed functions"
    if after.attrs.keys() != before.attrs.keys():
        return "added or removed attributes of the module"
    if after.attrs.get(EXTERNAL_FUNCTIONS) != before.attrs.get(EXTERNAL_FUNCTIONS):
        return "changed the record of compiled functions"
    compiled: Mapping[str, Function] = before.attrs.get(EXTERNAL_FUNCTIONS, {})
    own = {symbol for symbol, function in compiled.items() if function.attrs.get("Codegen") == backend}
    old, new = before.attrs.get(EXTERNAL_MODULES, ()), after.attrs.get(EXTERNAL_MODULES, ())
    if [module.function_names for module in old] != [module.function_names for module in new]:
        return "added or removed compiled functions"
    for was, now in zip(old, new, strict=True):
        if now is not was and not own.issuperset(was.function_names):
            return f"replaced a module with a function of another backend, `{next(iter(was.function_names))}`"
    return None


REWRITES: Mapping[str, Law] = MappingProxyType(
    {
        "byoc_prepare": _may_change_all,
        "byoc_after_partition": _may_change_own_regions,
        "byoc_after_codegen": _may_change_own_modules,
    }
)
"""The changes allowed to each hook. In every case the result must be a valid module of the same meaning."""


def _interface(function: Function) -> tuple[list[object], list[object]]:
    return [param.type for param in function.params], [result.type for result in function.results]
