"""Snapshots of a module's parts by identity, to detect in-place changes of frozen IR.

The driver compares snapshots around hooks of plugins and around a user's passes. A part missing in the list of parts
can be changed unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_

from byoc_core.ir.module import Function, IRModule, Value, Var

__all__ = ["Snapshot"]


class Snapshot:
    """All parts of a module at a moment. Nothing is copied; equal parts with another identity count as changed.

    Cost: a visit of every value and binding.
    """

    def __init__(self, module: IRModule) -> None:
        self._module = module
        self._parts = _list_parts(module)

    def is_current(self) -> bool:
        """Return whether the module still consists of the same parts."""
        parts = _list_parts(self._module)
        return len(parts) == len(self._parts) and all(map(is_, parts, self._parts))


def _list_parts(module: IRModule) -> list[object]:
    parts: list[object] = [module.functions, module.constants, module.ops, module.attrs]
    parts += (*module.attrs.values(), *module.functions)
    for function in module.functions.values():
        _add_function(parts, function)
    return parts


def _add_function(parts: list[object], function: Function) -> None:
    parts += (function, function.name, function.params, function.bindings, function.results)
    parts += (function.attrs, *function.attrs, *function.attrs.values())
    _add_values(parts, function.params)
    _add_values(parts, function.results)
    for binding in function.bindings:
        parts += (binding, binding.op, binding.results, binding.operands, binding.regions)
        parts += (
            binding.codegen,
            binding.location,
            binding.schedule,
            binding.attrs,
            *binding.attrs,
            *binding.attrs.values(),
        )
        _add_values(parts, binding.results)
        _add_values(parts, binding.operands)
        for region in binding.regions:
            _add_function(parts, region)


def _add_values(parts: list[object], values: Iterable[Value]) -> None:
    for value in values:
        kind = value.type
        parts += (value, value.name if isinstance(value, Var) else value.digest, kind)
        parts += (getattr(kind, "shape", None), getattr(kind, "dtype", None))
