"""Copies of bindings and functions without shared vars; constants are shared."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import replace

from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Function, Value, Var

__all__ = ["clone_bindings", "clone_function", "remap"]


def remap(value: Value, mapping: MutableMapping[int, Value]) -> Value:
    """Return the replacement of a value; the value itself if there is none."""
    return value if isinstance(value, Constant) else mapping.get(id(value), value)


def clone_bindings(bindings: Iterable[Binding], mapping: MutableMapping[int, Value]) -> list[Binding]:
    """Copy bindings with fresh results.

    Args:
        bindings: in SSA order.
        mapping: the replacement of each outer value, by ``id``; the results of the copies are added.
    """
    copies = []
    for binding in bindings:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        results = tuple(Var(result.name, result.type) for result in binding.results)
        mapping.update((id(old), new) for old, new in zip(binding.results, results, strict=True))
        regions = tuple(clone_function(region) for region in binding.regions)
        copies.append(replace(binding, operands=operands, results=results, regions=regions))
    return copies


def clone_function(function: Function) -> Function:
    """Copy a function: equal structure, no var shared."""
    params = tuple(Var(param.name, param.type) for param in function.params)
    mapping: dict[int, Value] = {id(old): new for old, new in zip(function.params, params, strict=True)}
    bindings = clone_bindings(function.bindings, mapping)
    results = tuple(remap(result, mapping) for result in function.results)
    return replace(function, params=params, bindings=tuple(bindings), results=results)
